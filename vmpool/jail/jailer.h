/* The jailer: vmpool's privileged part, a process of its own. jailer.c says how it works. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "vmpool/jail/wire.h"

struct jailer_options {
    uint32_t uid_first;         /* of the machines' users; a multiple of JAIL_UIDS */
    bool kvm;                   /* this host's QEMUs run with KVM */
    const char *qemu, *preload; /* absolute paths; preload "": there is none */
};

/* Fork the jailer, before this process gives up its rights and before it has threads. *ret_fd: our
 * end of its socket; when the last copy of it is closed the jailer ends, and with it every machine.
 * *ret_hello: what holds on this host. Waits for that, some 50 ms. */
MUST_CHECK int jailer_fork(const struct jailer_options *o, int *ret_fd,
                           struct jail_hello *ret_hello, struct err *err);
