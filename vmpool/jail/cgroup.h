/* The cgroups of the jails, of cgroup v1 (one folder a controller) or v2 (one folder). Every
 * machine has one, made ahead and used again: making them may wait for the kernel's grace periods.
 *
 * A copy of a seed joins its cgroup itself, by a descriptor that was opened with the jailer's
 * rights, as the first thing that it does: with v1 by `tasks`, where a thread that moves only
 * itself waits for nobody; with v2 `cgroup.procs`. */
#pragma once
#include <stdbool.h>
#include "common/base/err.h"
#include "vmpool/jail/wire.h"

#define CGROUP_OVERHEAD_MIB                                                                        \
    320u /* of QEMU itself: 128 of translated code, tables, heap, page tables */
#define CGROUP_PIDS_MAX 96u

enum cgroup_controller { CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_CONTROLLERS };

struct cgroups {
    bool v2;
    bool has[CGROUP_CONTROLLERS];
    int dir[CGROUP_CONTROLLERS]; /* our folder in each hierarchy; v2: the first only */
    char path[CGROUP_CONTROLLERS][512];
    char name[64];
    char why[JAIL_TEXT_MAX]; /* what is missing */
};

/* Find the hierarchies and make the folder called name in each. Never fails: what is missing is in
 * has and why. proc: descriptor of /proc. */
void cgroups_open(struct cgroups *c, int proc, const char *name);
/* Folder of a slot, when it is not there yet. */
MUST_CHECK int cgroups_make(const struct cgroups *c, unsigned slot, struct err *err);
/* Upper limits of a slot: memory_mib + CGROUP_OVERHEAD_MIB, vcpus + 1 processors. */
MUST_CHECK int cgroups_limit(const struct cgroups *c, unsigned slot, unsigned memory_mib,
                             unsigned vcpus, struct err *err);
/* Nobody is in it (a slot without a folder is empty). */
bool cgroups_empty(const struct cgroups *c, unsigned slot);
/* Descriptors to join by: writing "0" moves the writer. Returns how many. */
MUST_CHECK int cgroups_join_fds(const struct cgroups *c, unsigned slot, int fds[JAIL_CGROUPS_MAX],
                                struct err *err);
/* Remove everything below and the folders themselves, waiting at most so long for their processes
 * to end. */
void cgroups_remove(const struct cgroups *c, int64_t wait_ms);
