/* Starting a child that dies with us. */
#pragma once
#include <sys/types.h>
#include "common/base/err.h"

#define SPAWN_FDS_MAX 16

struct spawn_fd {
    int from; /* ours */
    int to;   /* number in the child, 3 .. 3 + SPAWN_FDS_MAX - 1 */
};

struct spawn_options {
    const char *path;  /* absolute */
    char *const *argv; /* NULL at the end */
    char *const *envp; /* NULL: ours */
    const struct spawn_fd *fds;
    int n_fds;
    int stderr_fd; /* becomes 2; -1: /dev/null. 0 is always /dev/null */
    int stdout_fd; /* becomes 1; 0: /dev/null */
    int null_fd;   /* of /dev/null; 0: it is opened */
};

/* Start it: SIGKILL when this process dies (also when it died between fork and prctl), a session of
 * its own, default signals, no fd but the listed ones. *ret_pidfd is the caller's, CLOEXEC. exec
 * errors come as exit status 127 and a line on stderr_fd. */
MUST_CHECK int spawn_child(const struct spawn_options *options, pid_t *ret_pid, int *ret_pidfd,
                           struct err *err);
/* In a forked child: its descriptors, then prepare (0, or -1 with errno), then exec. Ends with
 * status 127 and a line on stderr_fd when anything fails. */
typedef int spawn_prepare(void *user);
_Noreturn void spawn_exec(const struct spawn_options *o, spawn_prepare *prepare, void *user);
/* SIGKILL by pidfd; a process already gone is no error. */
void spawn_kill(int pidfd);
/* Reap without waiting. 1: reaped or not ours any more; 0: still running. */
int spawn_reap(int pidfd);
