/* The container of one job in a machine that is shared by the jobs of one batch.
 *
 * Theory: a cell is an init process of its own (cell_init.c) in fresh pid, mount, ipc and uts
 * namespaces, with a fresh tmpfs below /work, /tmp and /var/tmp and another at /dev/shm; everything
 * of the job runs below that init, so that killing it ends all of it, and the kernel says when it
 * has. What a job of uid 1000 can write to is in the cell's layer or in the memory of its own
 * processes; the namespaces and the layer go with the init. A cell is made before its job's files
 * come, and ended before the next is made: two are never alive at once. The network namespace is
 * kept from cell to cell as long as no socket is left in it, since making one is by far the dearest
 * part; a job cannot configure it.
 *
 * The first cell turns the machine into a shared one, for good: no user namespaces, and a filter
 * on system calls that are not a container's (cell_filter.c). After each cell the machine is looked
 * at; what should not be is `trouble`, and the host throws the machine away. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"

#define CELL_TROUBLE_MAX 160u
#define CELL_STAT_MAX 1024u /* bytes of a sockstat that are compared */

struct cell {
    bool shared;  /* the machine is */
    pid_t init;   /* 0: no cell */
    int pidfd;    /* of init; names its namespaces */
    int layer_fd; /* root of the tmpfs below /work, /tmp and /var/tmp */
    int work_fd;  /* the cell's /work */
    int net_fd;   /* kept network namespace, or -1 */
    int sockstat_fd;
    char sockstat[CELL_STAT_MAX];               /* of the namespace when it was new */
    int kmsg_fd;                                /* at the end of what the kernel had said */
    int own_pid_fd;                             /* the agent's pid namespace */
    int base_fd;                                /* of the machine's own writable layer */
    uint64_t base_free_blocks, base_free_files; /* ... what it had left before the first cell */
    int mounts_fd, cell_mounts_fd;              /* tell of changed mounts: the agent's, a cell's */
    uint32_t made;
    char trouble[CELL_TROUBLE_MAX]; /* the first that was found; "" */
};

/* Called for each child that ends while a cell is waited for, the cell's own init excepted. */
typedef void cell_reaped(void *ctx, pid_t pid, int status);

/* base_fd (a folder on the machine's writable layer) stays the caller's. */
void cell_init_none(struct cell *c, int base_fd);
/* End the cell: every process in it is dead and reaped when this returns. Then look at the machine.
 * No run may be under way. warm_pid: the only child that may be left, or 0. No cell: nothing. */
void cell_end(struct cell *c, pid_t warm_pid, cell_reaped *reaped, void *ctx);
/* Make the next. The previous one was ended. */
MUST_CHECK int cell_make(struct cell *c, struct err *err);
/* A child has ended: when it was the cell's init, that is trouble. */
void cell_ended(struct cell *c, pid_t pid);
/* The agent's next children start in the cell's pid namespace (enter), or in its own (leave). */
MUST_CHECK int cell_pid_enter(const struct cell *c, struct err *err);
void cell_pid_leave(const struct cell *c);
/* Join the cell's other namespaces; for a child that was started so. 0, or -1 with errno. */
int cell_join(const struct cell *c);

/* ---- cell_init.c: what runs as PID 1 of a cell ---- */
struct cell_init {
    int layer_fd, shm_fd; /* detached mounts */
    int net_fd;           /* to join; -1: it is in a new one, whose loopback is to be brought up */
    int ready_fd;         /* one byte when all is mounted; closed otherwise */
};
_Noreturn void cell_init_main(const struct cell_init *i);

/* ---- cell_filter.c ---- */
/* The filter as bytes of struct sock_filter, for processes that the agent did not start. */
const void *cell_filter_bytes(size_t *ret_len);
/* Put it on the calling process and its children to come. Needs CAP_SYS_ADMIN. */
MUST_CHECK int cell_filter_install(struct err *err);
