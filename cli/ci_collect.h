/* What the shards hand in: verdicts and reports, put together (docs/ci.md, "What counts as
 * passed").
 *
 * Reports come out of sandboxes: each is read within the bounds of common/report, and all of them
 * within the maxima below. What is not read for any reason makes the merged report incomplete,
 * which is no pass. ci_collect_report is pure; fetching is ci_collect_fetch. */
#pragma once
#include "cli/ci_job.h"
#include "cli/ci_pack.h"
#include "common/model/branch_result.h"
#include "common/report/report.h"
#include "common/store/pg.h"

#define CI_REPORTS_MAX 10000              /* files read, all shards */
#define CI_REPORTS_BYTES_MAX (512u << 20) /* of them together */
#define CI_READ_MS_MAX 120000             /* reading them; the file in hand is finished */
#define CI_STORE_MS_MAX 60000             /* waiting for an object store that is away */

/* The numbers of `brood run` for what is no test's fault. */
enum ci_exit {
    CI_PASSED = 0,
    CI_TESTS_FAILED = 1,
    CI_USAGE = 2,
    CI_LIMIT = 123, /* setup failed, or a limit other than time */
    CI_TIME_LIMIT = 124,
    CI_FAILED = 125,      /* brood could not run it */
    CI_INTERRUPTED = 130, /* by ^C; the job is cancelled */
};

struct ci_shard {
    char label[CI_LABEL_MAX];
    bool present; /* it has a verdict */
    enum verdict verdict;
    char reason[RESULT_REASON_MAX];
    int exit_code, signal; /* -1, 0: none */
    int64_t wall_us, cpu_us;
    size_t count[REPORT_STATUS_END], n_cases; /* of its reports */
    int n_reports;
};
struct ci_collect {
    const struct brood_json *plan;
    const struct ci_deal *deal;
    const struct ci_stale *stale;
    struct ci_shard *shards; /* deal->shards */
    struct report *report;   /* merged */
    int n_reports;
    uint64_t bytes;
    int64_t started_ms;          /* mono_ms of the first report; 0: none */
    bool gave_up;                /* a maximum was passed: the rest is not read */
    const volatile bool *broken; /* becomes true: no more waiting for the store; NULL: never */
    bool lacking; /* a report that a shard left cannot be had, by no fault of the tests */
};
/* plan, deal and stale stay the caller's and outlive it. */
void ci_collect_init(struct ci_collect *c, const struct brood_json *plan,
                     const struct ci_deal *deal, const struct ci_stale *stale);
void ci_collect_done(struct ci_collect *c);

/* The verdict of a shard. */
void ci_collect_verdict(struct ci_collect *c, unsigned shard, const struct job_result *r);
/* One file that a shard left. Never fails: what cannot be read is a note, and incomplete. */
void ci_collect_report(struct ci_collect *c, unsigned shard, const char *path, const char *data,
                       size_t len);
/* Fetch and read every artifact of the job that is a report; those that are still to come into the
 * object store are waited for. -ERR_X: the database. */
MUST_CHECK int ci_collect_fetch(struct ci_collect *c, struct pg *pg, struct object_store *store,
                                const char *job_id, struct err *err);
/* When all is in: a row for each shard whose end its reports do not explain (a crash, a limit), or
 * for every shard when no reports were asked for. */
void ci_collect_finish(struct ci_collect *c);
/* The status that `brood ci` ends with: the highest of what happened to the shards, or before them,
 * then the tests'. job NULL: it ended without a result. Call after ci_collect_finish. */
int ci_collect_exit(const struct ci_collect *c, const struct job_result *job);
/* What ended the run did so before the shards, or in a set-up of its own (ci_keep.h). */
bool ci_collect_none_ran(const struct ci_collect *c);
