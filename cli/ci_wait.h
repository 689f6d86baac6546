/* Until the job of `brood ci` has ended: progress on stderr, output of the shards.
 *
 * The live channel carries the output of every shard as it is written, each line with the shard's
 * label (none, when there is one shard); what it missed follows from the results (ci_out.h). */
#pragma once
#include "cli/ci_collect.h"
#include "cli/ci_out.h"
#include "cli/cli.h"
#include "common/store/jobs.h"

struct ci_wait {
    struct pg *pg;
    struct queue *queue;
    const char *job;
    const struct ci_deal *deal;
    struct ci_out *outs;         /* deal->shards of them; NULL: nothing is shown */
    const volatile bool *broken; /* set by a signal: -ERR_STALE */
};
/* -ERR_CLOSED: the reader of our stdout has gone. *ret_row is set on success (result_row_done). */
MUST_CHECK int ci_wait(struct ci_wait *w, struct result_row *ret_row, struct err *err);
