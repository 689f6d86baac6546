/* What follows a commit, by a thread of its own: claims acknowledged, ends told, memory freed,
 * while the committer has the next batch on its way to Postgres.
 *
 * Theory: the committer's turn was Postgres, then Redis, one after the other, and all jobs wait for
 * that one thread. Batches are told in the order in which they were committed. There are few places
 * (TELL_BATCHES_MAX): while Redis is silent the committer waits as it would have waited itself. An
 * entry keeps its claim and its place in the committer's queue until it was told. A crash between
 * the commit and this is repaired by the expiry of the claim, which finds the job ended. The
 * committer's own (commit.c). */
#pragma once
#include <stdbool.h>
#include "common/base/config.h"
#include "worker/commit_queue.h"
#include "worker/inflight.h"

struct commit_teller;

/* What was committed, at most COMMIT_BATCH_MAX. */
struct tell_batch {
    struct commit_entry *entries[COMMIT_BATCH_MAX];
    const char *verdicts[COMMIT_BATCH_MAX]; /* NULL: no event; else it lives for ever */
    int n;
    bool again; /* some are tried again: the scheduler is woken */
};

/* Starts the thread; Redis need not be there. config, inflight and ends must outlive it. */
MUST_CHECK int commit_teller_start(const struct config *config, struct inflight *inflight,
                                   struct commit_queue *ends, struct commit_teller **ret_teller,
                                   struct err *err);
/* Copies the batch and takes its entries; waits for a place. Thread-safe. */
void commit_tell(struct commit_teller *t, const struct tell_batch *batch);
/* Tells what it has, ends the thread, frees. NULL is allowed. */
void commit_teller_stop(struct commit_teller *t);
