/* Starting a QEMU in its jail: what happens between the jailer's clone and QEMU's exec. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "common/base/err.h"
#include "vmpool/jail/wire.h"

#define JAIL_ENV "BROOD_JAIL"

/* What the jailer found at its start. */
struct jail_host {
    int root;        /* descriptor of the jails' root; -1: this host gives none */
    int life;        /* readable (end of file) when the jailer has gone */
    int life_end;    /* the end that only the jailer holds */
    int null;        /* of /dev/null */
    unsigned spaces; /* CLONE_NEW* that work here */
    uint32_t uid_first;
    gid_t kvm_gid;              /* of /dev/kvm, with JAIL_KVM */
    const char *qemu, *preload; /* host paths; preload "": there is none */
};

struct jail_place {
    uint32_t slot, uid;
    int cgroups[JAIL_CGROUPS_MAX];
    int n_cgroups;
};

/* Fork the first process of the jail, which says on fds[JAIL_FD_REPORT] how it went; nothing is
 * waited for. fds were checked and stay the caller's. */
MUST_CHECK int jail_start(const struct jail_host *host, const struct jail_place *place,
                          const struct jail_request *request, const int fds[JAIL_FD_END],
                          struct err *err);
/* Drop every capability but keep, and the bounding set; in a child. Ambient too, so that keep
 * survives an exec. */
MUST_CHECK int jail_drop(uint32_t uid, const gid_t *groups, int n_groups, uint64_t keep,
                         struct err *err);
