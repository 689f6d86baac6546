/* The brood of this build as a process, its output kept. For test programs (the path is compiled
 * into them); what waits for a deadline and has a home is tests/e2e/cli.h. */
#pragma once
#include <sys/types.h>
#include "common/base/buf.h"

struct cli_run {
    pid_t pid;           /* 0: waited for */
    int exit_code;       /* 128 + signal when a signal ended it */
    int fds[2];          /* where stdout and stderr go */
    struct buf out, err; /* texts, after the end */
};

/* argv[0] is the path; it dies with the test. Aborts the test when it cannot be started. */
void cli_start(struct cli_run *r, const char *const *argv);
/* Wait for its end, two minutes at most. */
void cli_finish(struct cli_run *r);
void cli_run_done(struct cli_run *r);
#define cleanup_cli_run __attribute__((cleanup(cli_run_done)))

#define BROOD_START(r, ...)                                                                        \
    cli_start((r), (const char *const[]){ BROOD_BINARY_DIR "/brood", __VA_ARGS__, NULL })
#define BROOD(r, ...) (BROOD_START(r, __VA_ARGS__), cli_finish(r))
