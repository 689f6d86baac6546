/* Until the job of `brood ci` has ended: progress on stderr, output of the shards.
 *
 * The live channel carries the output of a job without branches, so that of a single shard comes as
 * it is written; what it missed follows at the end. Branches have no live channel and are committed
 * together with their job: their output comes when the job has ended, each line with the shard's
 * label. */
#pragma once
#include "cli/ci_collect.h"
#include "cli/cli.h"
#include "common/store/jobs.h"

struct ci_wait {
    const struct cli *cli; /* cli->json: no output of the shards */
    struct pg *pg;
    struct queue *queue;
    const char *job;
    bool live;         /* one shard */
    uint64_t shown[3]; /* bytes written of 1 stdout, 2 stderr */
};
/* -ERR_CLOSED: the reader of our stdout has gone. *ret_row is set on success (result_row_done). */
MUST_CHECK int ci_wait(struct ci_wait *w, struct result_row *ret_row, struct err *err);
/* Output of a failed setup, and of a single shard what was not shown yet. */
void ci_wait_rest(struct ci_wait *w, const struct job_result *r);
/* The output of a branch, each line behind "[label] ". */
void ci_print_shard(const char *label, const struct run_result *run);
/* Every line of data[n] behind "[label] ", the last one ended by LF also when it is not. */
void ci_print_prefixed(FILE *to, const char *label, const char *data, size_t n);
