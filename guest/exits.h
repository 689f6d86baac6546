/* Word of a program's end before its memory is taken down.
 *
 * Theory: wait() tells of an end when the kernel has given back all that the process had; for a
 * fork of a large interpreter on an emulated processor that takes longer than the program itself.
 * The kernel's task statistics (taskstats, generic netlink) tell of it as the first step of the
 * same end: from then on nothing of the process runs its own code, and its exit status stands. A
 * filter in the kernel lets the one process through that is waited for, so that programs with many
 * children wake nobody. What cannot be had this way (no such kernel, a message lost, threads that
 * end in another order) is told by wait() as ever. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "common/base/err.h"

struct exits {
    int fd; /* -1: this kernel does not tell */
};

/* A negative error: fd is -1, and the other calls do nothing. */
MUST_CHECK int exits_init(struct exits *x, struct err *err);
/* Tell of this process only. 0: of none. */
void exits_watch(const struct exits *x, pid_t pid);
/* What came since: true when the process `pid` has ended as a whole; *ret_status as wait() gives
 * it. */
bool exits_take(const struct exits *x, pid_t pid, int *ret_status);
