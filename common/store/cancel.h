/* Ends of jobs that nobody runs to their end: taken back, or past their deadline. One statement a
 * transaction; rows are locked in the order of their ids, as a commit does. */
#pragma once
#include "common/base/id.h"
#include "common/store/pg.h"
#include "common/store/queue.h"

/* A job that was asked to end. */
struct cancelled {
    struct id id;
    bool ended; /* at once: it had only waited. false: in flight, a worker has to be told */
};
/* Which jobs: of a batch, or one (the other NULL). What waits is cancelled, with a result row and
 * no usage; what is in flight is marked (cancel_at), and ends with what it has cost so far when its
 * worker hears of it. Up to max at a time; returns how many, call again until 0: a job that is
 * marked is not returned again. */
MUST_CHECK int store_cancel(struct pg *pg, const char *batch_id, const char *job_id, int max,
                            struct cancelled *ret_rows, struct err *err);
/* Mark up to max jobs in flight of tenants whose budget is spent and that asked for this
 * (budgets.h, cancel_running). What waits goes on waiting. Returns how many; ids in ret_ids. */
MUST_CHECK int store_cancel_spent(struct pg *pg, int max, struct id *ret_ids, struct err *err);
/* Up to max marked jobs that are still in flight, marked more than age_ms ago. */
MUST_CHECK int store_cancelling(struct pg *pg, int64_t age_ms, int max, struct id *ret_ids,
                                struct err *err);
/* Marked jobs end as cancelled: those of ids (n; no worker has them), or with ids NULL up to max
 * that wait. Returns how many ended, their ids in ret_ids (room for n or max). */
MUST_CHECK int store_cancel_marked(struct pg *pg, const struct id *ids, int n, int max,
                                   struct id *ret_ids, struct err *err);
/* Up to max jobs that wait past their deadline: expired, verdict skipped. Ids in ret_ids. */
MUST_CHECK int store_expire(struct pg *pg, int max, struct id *ret_ids, struct err *err);
/* Tell the workers that these jobs (n up to QUEUE_DROP_MAX) are to end; those that no worker had
 * claimed are taken off the ready stream and end here. Returns how many ended here. Safe to repeat.
 */
MUST_CHECK int cancel_tell(struct pg *pg, struct queue *q, const struct id *ids, int n,
                           struct err *err);
