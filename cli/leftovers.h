/* What a supervisor leaves when it is killed: found and removed by the next `brood up`, and by
 * `brood down`. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "common/base/config.h"

#define SUPERVISOR_NAME "supervisor"

/* Take the home's lock. 1: taken, *ret_fd stays open for as long as the supervisor runs; 0: another
 * one runs, *ret_pid is its pid (0: unknown). */
MUST_CHECK int home_lock(const struct config *c, int *ret_fd, pid_t *ret_pid, struct err *err);
/* End the recorded processes that are still ours (the supervisor left out), then remove run_dir.
 * The caller holds the lock. Says on stderr what it ended. Returns how many. */
int leftovers_clean(const struct config *c);
/* Remove the empty run folders of other homes, beside ours: eight hex digits, of our user,
 * untouched for a minute. The name is a hash, so the home cannot be asked; but a home that runs has
 * the record of its supervisor in there, and one that is about to has just touched it. Returns how
 * many. */
int leftovers_sweep(const struct config *c);
