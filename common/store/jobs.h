/* Jobs in Postgres: submission, dispatch, commit, reading back. Each call is one transaction. */
#pragma once
#include <stdint.h>
#include "common/base/id.h"
#include "common/model/branch_result.h"
#include "common/model/job.h"
#include "common/model/result.h"
#include "common/model/retry.h"
#include "common/model/usage.h"
#include "common/store/pg.h"

/* ---- templates ---- */
MUST_CHECK int store_template_put(struct pg *pg, const struct template_info *t, struct err *err);
/* "name" or "name@digest" (the digest must be the current one). -ERR_NOT_FOUND names those there
 * are. */
MUST_CHECK int store_template_get(struct pg *pg, const char *name, struct template_info *ret_t,
                                  struct err *err);
/* Up to max rows, by name; returns the count. */
MUST_CHECK int store_template_list(struct pg *pg, struct template_info *ret_rows, int max,
                                   struct err *err);

/* ---- submission: durable when it returns ---- */
struct submit_item {
    const struct job_spec *spec;
    const char *id; /* id the job shall have, lower-case UUID; NULL: a new one. The same id twice is
                     * one job, so a caller that gives ids may repeat a call whose outcome it does
                     * not know (lost connection). */
    bool id_is_new; /* the id was made for this call: no row has it, which saves looking for one */
    int seq;        /* order inside the batch; used only when first_seq is negative */
    struct id ret_id;   /* id of the new job, or of the first one with the same key and content */
    bool ret_duplicate; /* true: the key was there with the same content; nothing was added */
    struct err
        ret_error; /* code CONFLICT: the key was there with other content; LIMIT: a cap of the
                      tenant's, come back after retry_after_ms. This item was not added */
};
/* Insert items (already validated, 1..SUBMIT_MAX) in one transaction. batch_id NULL: no batch;
 * otherwise the batch row is made when missing and its job count grows by what was added; a batch
 * of another tenant is -ERR_CONFLICT. seq of item i is first_seq + i, or items[i].seq when
 * first_seq is negative. all_or_nothing: a conflict in any item adds nothing and returns
 * -ERR_CONFLICT naming the item (0-based); so does a cap of the tenant's (queue's length, rate,
 * stopped: tenants.h) with -ERR_LIMIT and err->retry_after_ms. Otherwise as many as fit are added,
 * the first of items. */
#define SUBMIT_MAX 10000
MUST_CHECK int store_submit(struct pg *pg, const char *tenant, const char *batch_id,
                            const char *batch_name, int first_seq, struct submit_item *items, int n,
                            bool all_or_nothing, struct err *err);

/* ---- dispatch (scheduler) ---- */
struct dispatch_row {
    char job_id[ID_TEXT_BYTES];
    char tenant[JOB_TENANT_MAX + 1];
    char batch[ID_TEXT_BYTES]; /* "": none */
    char template_name[JOB_TEMPLATE_MAX + 1];
    int attempt;           /* already counted up: the number of this attempt */
    int64_t submitted_ms;  /* UTC */
    int share;             /* index of the want that it belongs to */
    int64_t not_before_us; /* UTC: its place in its queue */
    char *spec;            /* canonical JSON, owned by the row; "": longer than the maximum below */
    size_t spec_len;
};
/* A longer spec does not go through the queue: who runs the job asks store_spec for it. Redis would
 * copy it again and again, and a claim would be held by nobody who knows of it for as long as it is
 * on its way. */
#define DISPATCH_SPEC_BYTES_MAX (64u << 10)
/* Up to n jobs of one tenant and priority, first those whose place in the queue (not_before) is
 * from_us or later, then the others. 0: all in their order. */
struct dispatch_want {
    const char *tenant;
    enum job_priority priority;
    int n;
    int64_t from_us; /* UTC */
};
#define DISPATCH_WANTS_MAX 256
void dispatch_rows_done(struct dispatch_row *rows, int n);
/* Move what wants[n_wants] (1..DISPATCH_WANTS_MAX) names from queued/retrying (not_before passed,
 * deadline not) to scheduled, attempt + 1, of each the oldest due first (FOR UPDATE SKIP LOCKED).
 * max: room in ret_rows, at least the sum of the wants. Rows come in the order of the wants.
 * Returns count. Runs with synchronous_commit off: a lost dispatch is found again as an expired
 * one. */
MUST_CHECK int store_dispatch(struct pg *pg, const struct dispatch_want *wants, int n_wants,
                              struct dispatch_row *ret_rows, int max, struct err *err);
/* A job's spec, malloc'ed: the caller's. -ERR_NOT_FOUND. */
MUST_CHECK int store_spec(struct pg *pg, const char *job_id, char **ret_spec, size_t *ret_len,
                          struct err *err);
/* Jobs in scheduled/running whose scheduled_at is older than age_ms and whose id is not in keep
 * (ids that Redis still knows): back to retrying at once; the attempt counts as lost. For a Redis
 * that lost its data: take the ids from Redis first, then call this with an age longer than the
 * time between a dispatch and its XADD. Returns how many. */
MUST_CHECK int store_requeue_lost(struct pg *pg, int64_t age_ms, const char *const *keep_ids,
                                  int n_keep, struct err *err);
/* When the next retrying job becomes due, milliseconds from now; -1 when none (returned through
 * ret_ms). */
MUST_CHECK int store_next_due(struct pg *pg, int64_t *ret_ms, struct err *err);

/* ---- ends of attempts ---- */
struct snapshot_row;
enum attempt_end { ATTEMPT_COMMITTED, ATTEMPT_LOST, ATTEMPT_STALE };
struct commit_item {
    const char *job_id, *tenant, *template_name, *worker;
    int attempt;
    const struct job_result *result;
    bool billed; /* the job's own sandbox (of a job with branches: node 0's); its lines are priced
                    from result */
    const struct branch_result *branches; /* n_branches: of all nodes but 0 */
    int n_branches;
    const struct manifest *artifacts;     /* of node 0; NULL: none */
    const struct snapshot_row *snapshots; /* n_snapshots that this job keeps: job_id and tenant are
                                             the item's, ids can be derived again (snapshots.h) */
    int n_snapshots;
    bool ret_again; /* won, but the job has a retry on request left and waits for it: no end yet */
    bool ret_won; /* false: another attempt is in force or the job has ended; nothing was written */
};
/* One transaction for all items, pipelined: state + verdict guarded by (id, attempt, in flight),
 * result row, usage rows, attempt row, and of those that won: branch rows with their usage,
 * artifacts, kept snapshots. After an error nothing of the call is in force, or (connection lost at
 * the commit) all of it: the same call can be repeated, and ret_won is true where this worker's
 * attempt already stands. Verdict infra_error ends as dead, cancelled as cancelled. */
MUST_CHECK int store_commit(struct pg *pg, struct commit_item *items, int n, struct err *err);
/* A fault of ours in attempt `attempt`: what retry_plan() says, that is retrying after a delay, or
 * dead with verdict infra_error and a result row saying why. No-op when that attempt is not in
 * force. The row in attempts has the outcome "infra" or "lost"; an attempt that got no sandbox has
 * none, unless the job ends by it. ret_dead may be NULL. Follow it with queue_wake, so that the
 * scheduler learns when the job is due. */
MUST_CHECK int store_attempt_failed(struct pg *pg, const char *job_id, int attempt,
                                    const char *worker, enum retry_cause cause, const char *reason,
                                    const struct retry_policy *policy, bool *ret_dead,
                                    struct err *err);
/* scheduled -> running, best effort, not on the latency path (may be batched). */
MUST_CHECK int store_mark_running(struct pg *pg, const char *job_id, int attempt, struct err *err);

/* ---- taking back: cancel.h ---- */
/* Batches of that name with jobs that have not ended, oldest first; returns how many (up to max).
 */
MUST_CHECK int store_open_batches(struct pg *pg, const char *tenant, const char *name, int max,
                                  struct id *ret_ids, struct err *err);

/* ---- reading back ---- */
struct batch_counts {
    int total, done; /* done = terminal */
    int by_state[STATE_COUNT];
    int by_verdict[VERDICT_COUNT];
};
MUST_CHECK int store_batch_counts(struct pg *pg, const char *batch_id,
                                  struct batch_counts *ret_counts, struct err *err);
MUST_CHECK int store_latest_batch(struct pg *pg, const char *tenant, struct id *ret_id,
                                  struct err *err);

struct result_row {
    char job_id[ID_TEXT_BYTES];
    int seq, attempt;
    char *name; /* or NULL */
    char template_name[JOB_TEMPLATE_MAX + 1];
    char *labels; /* JSON object text */
    enum job_state state;
    bool has_result;
    struct job_result result;
    int64_t submitted_ms, finished_ms; /* UTC; finished -1 when not */
    int64_t cost_nanousd, charged_ms,
        measured_ms;  /* sums of the job's usage records (vcpu meter for the times) */
    char *last_error; /* or NULL */
    char *tries;      /* JSON list of the tries before this one, of retries on request; or NULL */
};
void result_row_done(struct result_row *row);
/* Calls fn for each job of the batch in submission order, row by row off the wire: memory does not
 * grow with the batch. fn must not use pg; it returns <0 to stop, which is returned. A batch
 * without rows calls nothing and returns 0; returns the count. */
typedef int (*result_fn)(void *ctx, const struct result_row *row, struct err *err);
MUST_CHECK int store_results(struct pg *pg, const char *batch_id, result_fn fn, void *ctx,
                             struct err *err);
/* One job; -ERR_NOT_FOUND. Caller calls result_row_done. */
MUST_CHECK int store_job(struct pg *pg, const char *job_id, struct result_row *ret_row,
                         struct err *err);

/* ---- branches and artifacts of a job that has committed ---- */
#define BRANCHES_PAGE_MAX 256
/* Up to max (BRANCHES_PAGE_MAX) nodes behind after_node (0: from the first), in order, into
 * ret_rows (branch_result_done each; artifacts and usage are not read). Without output: the bytes
 * of its streams stay in the database. Returns how many; 0: no more, or the job has no branches. */
MUST_CHECK int store_branches(struct pg *pg, const char *job_id, int after_node, int max,
                              bool with_output, struct branch_result *ret_rows, struct err *err);
/* One artifact of a job: the node it is of, and its place in that node's manifest. */
struct artifact_row {
    int node, ord;
    struct artifact artifact; /* owns path and target: artifact_row_done */
};
void artifact_row_done(struct artifact_row *row);
/* Up to max (ARTIFACTS_PAGE_MAX) in order of node and manifest, behind (after_node, after_ord);
 * after_node -1: from the first. only_node -1: of all nodes. Returns how many. */
#define ARTIFACTS_PAGE_MAX 1000
MUST_CHECK int store_artifacts(struct pg *pg, const char *job_id, int only_node, int after_node,
                               int after_ord, int max, struct artifact_row *ret_rows,
                               struct err *err);

/* An artifact's content has come to the object store after all: the job's rows that wait for it
 * (reason 'pending') are stored from now on. 1: so it is, or the job has ended and none waits; 0:
 * the job has not ended. */
MUST_CHECK int store_artifact_came(struct pg *pg, const char *job_id, const char *sha256,
                                   struct err *err);

/* Whole-queue figures for status. */
struct queue_counts {
    int64_t by_state[STATE_COUNT];
    int64_t oldest_queued_ms; /* age of the oldest waiting job; -1 none */
};
MUST_CHECK int store_queue_counts(struct pg *pg, struct queue_counts *ret_counts, struct err *err);
