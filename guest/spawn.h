/* Starting a program for a run: straight into the run's cgroup, as the job's user, with nothing
 * inherited but 0, 1, 2. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"
#include "guest/cell.h"
#include "guest/strs.h"

struct spawn {
    const struct strs *argv, *env;
    const char *cwd;
    int cgroup_dir_fd;
    int pipes[3]; /* become 0, 1, 2 */
    bool as_root;
    const struct cell *cell; /* to start it in; NULL: in the machine itself */
    uint64_t open_files, stack_bytes;
};

#define SPAWN_TEXT_MAX 160u

struct spawn_failure {
    int exit_code; /* 127: not there; 126: there, but cannot be started; 0: it was started */
    char text[SPAWN_TEXT_MAX]; /* for the user */
};

/* Fork and exec; returns when the program runs or has failed to. The child exists in both cases and
 * must be waited for. -ERR_SYS when there is no child. */
MUST_CHECK int spawn_program(const struct spawn *s, pid_t *ret_pid,
                             struct spawn_failure *ret_failure, struct err *err);
