/* Watching a batch and summing it up: shared by submit --wait, watch and report. */
#pragma once
#include "cli/cli.h"
#include "cli/stats.h"
#include "common/store/jobs.h"

#define BATCH_UNEXPECTED_MAX 1000 /* listed; more are only counted */
#define BATCH_DEAREST 3

struct batch_job {
    char *name; /* or the id when it has none */
    char want[JOB_LABEL_VALUE_MAX + 1];
    enum verdict got;
    char reason[RESULT_REASON_MAX];
    int64_t cost_nanousd, charged_ms;
};

struct batch_summary {
    int total, done, by_verdict[VERDICT_COUNT];
    int expected_total, expected_met; /* jobs with the label expected_verdict */
    struct batch_job unexpected[BATCH_UNEXPECTED_MAX];
    int n_unexpected; /* filled; expected_total - expected_met may be more */
    struct batch_job dearest[BATCH_DEAREST];
    int n_dearest;
    int64_t first_submit_ms, last_finish_ms, cost_nanousd, charged_ms, measured_ms;
    struct samples latency_ms; /* submit to verdict, of finished jobs */
};

/* Large: heap. NULL only with err set. */
struct batch_summary *batch_summary_new(struct pg *pg, const char *batch_id, struct err *err);
void batch_summary_free(struct batch_summary *s);
/* Verdict counts, expectations and the unexpected ones; CLI_OK or CLI_NOT_AS_WANTED. */
int batch_summary_print(const struct cli *cli, const char *batch_id, const struct batch_summary *s);
/* Progress on stderr until every job has ended. */
MUST_CHECK int batch_watch(const struct cli *cli, struct pg *pg, const char *batch_id,
                           struct err *err);
/* batch_watch, then the summary: what `watch` and `submit --wait` do. Returns the exit code. */
int batch_follow(const struct cli *cli, struct pg *pg, const char *batch_id);
