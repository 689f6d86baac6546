/* Support of the end-to-end tests: the real `brood` binary, a real home, real microVMs.
 *
 * Which binary: $BROOD_BUILD/brood, else the build these programs come from. Which home:
 * $BROOD_TEST_HOME (scripts/test and CTest's fixture set it; the templates' snapshots are there
 * already), else one below the build folder. CTest starts `brood up` once before all programs and
 * stops it after the last (fixture.sh); a program run by hand starts it for itself and stops it
 * when it ends, also when a test failed (hooks.c). Criterion runs a test in a process of its own,
 * so nothing is shared between tests but the home. Every wait is bounded; none of the tests asserts
 * speed. Failures of the support code itself abort the test with a message. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/buf.h"
#include "common/base/config.h"

#define E2E_OUT_MAX (64u << 20) /* kept of a command's stdout or stderr, bytes */
#define E2E_SHORT_MS 60000      /* commands that only ask */
#define E2E_BATCH_MS 900000     /* a whole batch on a slow host */
#define E2E_PIDS_MAX 256

struct e2e_run {
    int exit_code; /* 128 + signal when a signal ended it; -1 when it was killed for time */
    bool timed_out;
    struct buf out, err;
};

/* Run argv (NULL-ended; argv[0] looked up in PATH), stdin from stdin_text (NULL: /dev/null). The
 * whole process group is killed after timeout_ms. r is initialised here; e2e_run_done releases it.
 */
void e2e_run(struct e2e_run *r, const char *const *argv, const char *stdin_text,
             int64_t timeout_ms);
void e2e_run_done(struct e2e_run *r);
#define cleanup_e2e_run __attribute__((cleanup(e2e_run_done)))

/* `brood ARGS...` against the test home: E2E_BROOD(&r, E2E_SHORT_MS, "status", "--json"). */
#define E2E_BROOD(r, timeout_ms, ...)                                                              \
    e2e_run((r), (const char *const[]){ e2e_binary(), __VA_ARGS__, NULL }, NULL, (timeout_ms))

const char *e2e_binary(void);
const char *e2e_home(void);
/* The repository's top folder (compiled in). */
const char *e2e_top(void);
/* Configuration of the home as brood itself loads it. */
const struct config *e2e_config(void);

/* Start `brood up --detach` unless it runs; e2e_stop_if_started undoes only that. Called by
 * hooks.c. */
void e2e_start(void);
void e2e_stop_if_started(void);

/* ---- jobs ---- */

/* Write text to a new file below $TMPDIR; the path is the caller's (free, unlink). */
char *e2e_temp_file(const char *text, size_t len);
/* Submit a JSON array of jobs as one batch and return its id (free). Aborts when it is refused. */
char *e2e_submit(const json_t *jobs);
/* Wait until every job of the batch has ended, then its results in submission order (json_decref).
 */
json_t *e2e_wait_results(const char *batch, int64_t timeout_ms);
/* Both. */
json_t *e2e_run_batch(const json_t *jobs);
/* A job that runs a Python program / a shell line. Borrowed references are not taken. */
json_t *e2e_python(const char *code);
json_t *e2e_shell(const char *line);
/* Follow "a.b.c" through objects; NULL when a part is missing. */
const json_t *e2e_at(const json_t *v, const char *path);
/* The kept bytes of "stdout" or "stderr" of a result line (or of its "setup"): head, then tail. */
void e2e_output(const json_t *run, const char *stream, struct buf *ret_bytes);
/* Text of the verdict of a result line; "" when there is none. */
const char *e2e_verdict(const json_t *result);

/* ---- what only an operator sees ---- */

/* One integer of one SQL query against the home's Postgres. */
int64_t e2e_sql(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Poll e2e_sql until it gives want; false after timeout_ms. */
bool e2e_sql_becomes(int64_t want, int64_t timeout_ms, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Processes of this home whose program name (comm, or the last part of exe) starts with name.
 * Returns how many. */
int e2e_pids(const char *name, pid_t *ret_pids, int max);
/* kill -9 all of them; returns how many. */
int e2e_kill9(const char *name);
/* redis-cli -s <socket> ARGS of the home. */
#define E2E_REDIS(r, ...)                                                                          \
    e2e_run((r),                                                                                   \
            (const char *const[]){ "redis-cli", "-s", e2e_redis_socket(), __VA_ARGS__, NULL },     \
            NULL, E2E_SHORT_MS)
const char *e2e_redis_socket(void);
