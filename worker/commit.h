/* The committer: a thread that brings ends of attempts into Postgres, a second one that helps it
 * when many wait, and one behind them that acknowledges claims and tells of the end
 * (commit_tell.h).
 *
 * Theory: slots hand over what they have and go on. The thread takes whatever is queued, up to
 * worker.commit_batch_max, in one transaction; while one is on its way the next batch gathers, so
 * batches grow with the load and a lone result goes at once. When as many have gathered as one
 * batch takes, the second thread takes them, by a connection of its own: fewer at a time would only
 * make more transactions. It has no part in trouble. While Postgres is away ends go to the spool on
 * disk (spool.h) and are committed from there in their order when it is back; until the spool is
 * empty everything goes through it. Their claims are renewed all the while. When the spool is full
 * too, or its disk, ends wait in memory and slots stop claiming: a slot reserves a place before it
 * claims, so handing over never waits. An item that Postgres refuses for what is in it is tried
 * alone, then given back as a failed attempt; whatever else it refuses counts as away. Order:
 * Postgres, then XACK, then the event; a crash in between is repaired by the expiry of the claim,
 * which finds the job ended. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include "common/base/config.h"
#include "common/model/branch_result.h"
#include "common/model/result.h"
#include "common/model/retry.h"
#include "common/store/queue.h"
#include "common/store/snapshots.h"
#include "worker/inflight.h"

#define COMMIT_QUEUE_MAX 1024               /* places, those reserved included */
#define COMMIT_QUEUE_BYTES_MAX (256u << 20) /* output bytes queued; no new places above it */

#define COMMIT_BATCH_MAX 256 /* entries that are committed together */
#define TELL_BATCHES_MAX 2   /* committed and not told yet */

/* Claims that one worker may hold besides those in its slots: in memory, in the spool, and, from
 * there, committed and not told yet. */
#define COMMIT_CLAIMS_MAX (COMMIT_QUEUE_MAX + 4096 + TELL_BATCHES_MAX * COMMIT_BATCH_MAX)

/* One ended attempt. Made by a slot, owned by the committer once pushed. */
struct commit_entry {
    struct claim claim;      /* its spec is not needed any more and may be NULL */
    struct inflight_ref ref; /* index -1: read from the spool of before, no claim of this process */
    char template_name[JOB_TEMPLATE_MAX + 1];
    bool failed; /* a fault of ours: reason and cause; else result */
    char reason[ERR_TEXT_MAX];
    enum retry_cause cause;
    enum job_priority priority;
    int64_t slot_us; /* how long it held a slot, and its branches slots of their own */
    struct job_result result;
    bool billed;                    /* node 0's sandbox; each branch says it of its own */
    struct branch_result *branches; /* n_branches; NULL: a plain job */
    int n_branches;
    struct manifest artifacts;      /* of node 0 */
    struct snapshot_row *snapshots; /* n_snapshots that the job keeps */
    int n_snapshots;
    char worker[64]; /* who ran it, when that was not this worker; "" else */
    struct commit_entry *next;
};
struct commit_entry *commit_entry_new(void);
void commit_entry_free(struct commit_entry *e);
/* Its claim is not held any more; one of before, which is not held here, is left alone. */
void commit_entry_let_go(const struct commit_entry *e, struct inflight *inflight);
/* Add a copy of row to what is committed. */
void commit_entry_keep(struct commit_entry *e, const struct snapshot_row *row);

struct committer;

/* What is in the spool, for others to see: the committer writes it. */
struct spool_view {
    atomic_int records; /* not committed yet */
    atomic_llong bytes; /* of the file */
};

/* Starts the thread, opens the spool. Postgres and Redis need not be there. config, inflight, name
 * (of the worker) and view must outlive it. */
MUST_CHECK int committer_start(const struct config *config, const char *name,
                               struct inflight *inflight, struct spool_view *view,
                               struct committer **ret_committer, struct err *err);
/* A place for one entry: true when it was had within wait_ms. */
bool commit_reserve(struct committer *c, int64_t wait_ms);
void commit_unreserve(struct committer *c);
/* Hand over e, using a place reserved before. Never waits. */
void commit_push(struct committer *c, struct commit_entry *e);
/* Commit what is queued for at most wait_ms, spool what is left, then end the thread and free.
 * Returns how many entries were left behind: neither committed nor spooled. */
int committer_stop(struct committer *c, int64_t wait_ms);
