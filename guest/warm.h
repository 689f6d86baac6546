/* The warm interpreter, seen from the agent.
 *
 * The template's /usr/lib/brood/warm runs for as long as the machine does, with one SOCK_SEQPACKET
 * socket on fd 3. For each run it is asked ahead of time for a spare: a forked, already
 * unprivileged interpreter in the run's cgroup, with the run's pipes as its 0, 1, 2, waiting on a
 * socket of its own. Its parent is the agent (it is orphaned at once), so its end is an ordinary
 * child's end here. Starting a run is then one message.
 *
 *   agent -> warm    one byte 'A' with 5 fds: cgroup.procs, the spare's socket, stdin, stdout,
 * stderr; or 'C' and a filter (cell_filter.c) with 6 fds: the cgroup's folder, socket, stdin,
 * stdout, stderr, the pidfd of a cell's init spare -> agent   on its socket: its pid as decimal
 * text, when it waits agent -> spare   NUL-ended strings: argc, env count, open files, stack bytes,
 * cwd; then argv, then env */
#pragma once
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"
#include "guest/strs.h"

#define WARM_PROGRAM "/usr/lib/brood/warm"

struct warm {
    pid_t pid; /* 0: none in this template, or it died */
    int sock;  /* -1 with it */
};

struct warm_spare {
    pid_t pid; /* 0: none */
    int sock;
};

/* Start the template's warm program and wait until it is ready (it sends one byte). No such
 * program: pid 0, no error. env_defaults, at most STRS_DEFAULTS_MAX: its environment, and most
 * runs'. */
MUST_CHECK int warm_start(struct warm *w, char *const *env_defaults, size_t env_defaults_n,
                          struct err *err);
/* Ask for a spare. pipes: stdin to read, stdout and stderr to write; they stay the caller's.
 * -ERR_CLOSED when the warm interpreter is gone: *w is then none. */
MUST_CHECK int warm_arm(struct warm *w, int cgroup_procs_fd, const int pipes[3],
                        struct warm_spare *ret_spare, struct err *err);
/* The same in a cell, which pidfd names. */
MUST_CHECK int warm_arm_cell(struct warm *w, int cgroup_dir_fd, const int pipes[3], int pidfd,
                             struct warm_spare *ret_spare, struct err *err);
/* Hand a run to the spare; it is used up in every case. -ERR_CLOSED when it was dead already. */
MUST_CHECK int warm_run(struct warm_spare *spare, const struct strs *argv, const struct strs *env,
                        const char *cwd, uint64_t open_files, uint64_t stack_bytes,
                        struct err *err);
/* A process that has ended: forget it when it was w's or the spare's. */
void warm_ended(struct warm *w, pid_t pid);
