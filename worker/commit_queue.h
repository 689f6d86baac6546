/* What the slots hand over to the committer: a bounded queue of ended attempts. A place is reserved
 * before a job is claimed, so that handing over never waits; an entry that was taken keeps its
 * place until it is finished. The committer's own (commit.c); any thread. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include "worker/commit.h"

struct commit_queue {
    pthread_mutex_t lock;
    pthread_cond_t work, room, full; /* full: as many are queued as one batch takes */
    int batch;
    struct commit_entry *first, *last;
    int queued, reserved;
    size_t queued_bytes;
    bool stopping;
    int64_t stop_us; /* mono: when to leave although entries are left */
};

/* batch: how many are taken together at most. */
void commit_queue_init(struct commit_queue *q, int batch);
/* Frees what is left. */
void commit_queue_done(struct commit_queue *q);

/* true: had within wait_ms, and not while it stops. */
bool commit_queue_reserve(struct commit_queue *q, int64_t wait_ms);
void commit_queue_unreserve(struct commit_queue *q);
/* Takes e, and the place reserved for it. */
void commit_queue_push(struct commit_queue *q, struct commit_entry *e);

/* Up to max of the oldest; waits for the first until until_us (mono), or until it stops. They are
 * the caller's, to finish or to put back. */
int commit_queue_take(struct commit_queue *q, int64_t until_us, struct commit_entry **ret_entries,
                      int max);
/* A whole batch of the oldest, as soon as there is one. 0: it stops. */
int commit_queue_take_full(struct commit_queue *q, struct commit_entry **ret_entries);
/* Entries from elsewhere count as taken, so that they can be finished or put back too. */
void commit_queue_add_taken(struct commit_queue *q, int n);
/* Done with: frees them and their places. */
void commit_queue_finish(struct commit_queue *q, struct commit_entry **entries, int n);
/* Back to where they were, before all others. */
void commit_queue_put_back(struct commit_queue *q, struct commit_entry **entries, int n);

/* No more places; what is queued may be taken for wait_ms. */
void commit_queue_stop(struct commit_queue *q, int64_t wait_ms);
/* false: time to end. more: there is something to do elsewhere, too. */
bool commit_queue_goes_on(struct commit_queue *q, bool more);
