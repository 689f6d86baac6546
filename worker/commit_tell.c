#include "worker/commit_tell.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/model/tree.h"
#include "common/store/queue.h"

#define QUEUE_TIMEOUT_NOTE "the claim will expire and be looked at again"

struct commit_teller {
    struct inflight *inflight;
    struct commit_queue *ends;
    struct queue queue; /* of the thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news, room;
    struct tell_batch ring[TELL_BATCHES_MAX]; /* the first is being told while n counts it */
    int first, n;
    bool stopping;
};

/* Tell the scheduler what these have cost, so that shares are true and room is filled. Lost notices
 * are made good by its own counting; those of a life before are not known any more. */
static void tell_cost(struct commit_teller *t, const struct tell_batch *b)
{
    struct intake_note notes[COMMIT_BATCH_MAX] = { 0 };
    struct err err = { 0 };
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        const struct commit_entry *e = b->entries[i];
        if (e->ref.index < 0) {
            continue;
        }
        struct intake_note *note = &notes[n++];
        note->priority = e->priority;
        note->jobs = 1;
        note->slot_us = e->slot_us;
        memcpy(note->tenant, e->claim.tenant, sizeof note->tenant);
    }
    if (n > 0 && queue_done_add(&t->queue, notes, n, &err) < 0) {
        log_debug("the scheduler was not told what was done", "error", err.text);
    }
}

/* The entries are in Postgres (or of no use): let go of the claims, tell of the ends, free. */
static void tell(struct commit_teller *t, struct tell_batch *b)
{
    assert(b->n >= 1 && b->n <= COMMIT_BATCH_MAX);
    const char *ids[COMMIT_BATCH_MAX] = { 0 };
    struct finished_event events[COMMIT_BATCH_MAX];
    int n_events = 0;
    for (int i = 0; i < b->n; i++) {
        const struct commit_entry *e = b->entries[i];
        commit_entry_let_go(e, t->inflight);
        ids[i] = e->claim.stream_id;
        if (b->verdicts[i]) {
            events[n_events++] = (struct finished_event){ e->claim.job_id, b->verdicts[i] };
        }
    }
    struct err err = { 0 };
    int rc = queue_claim_ack(&t->queue, ids, b->n, &err);
    if (rc >= 0 && n_events > 0) {
        rc = queue_events_finished(&t->queue, events, n_events, &err);
    }
    if (rc >= 0) {
        tell_cost(t, b);
    } else {
        log_warn("committed, but Redis did not take the acknowledgement; " QUEUE_TIMEOUT_NOTE,
                 "error", err.text);
    }
    commit_queue_finish(t->ends, b->entries, b->n);
    if (b->again && queue_wake(&t->queue, &err) < 0) {
        log_debug("the scheduler will see by itself that jobs are tried again", "error", err.text);
    }
}

static void *teller_main(void *arg)
{
    struct commit_teller *t = arg;
    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->n == 0 && !t->stopping) {
            (void)pthread_cond_wait(&t->news, &t->lock);
        }
        if (t->n == 0) {
            break;
        }
        struct tell_batch *b = &t->ring[t->first]; /* nobody else touches it while n counts it */
        (void)pthread_mutex_unlock(&t->lock);
        tell(t, b);
        (void)pthread_mutex_lock(&t->lock);
        t->first = (t->first + 1) % TELL_BATCHES_MAX;
        t->n--;
        (void)pthread_cond_signal(&t->room);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

void commit_tell(struct commit_teller *t, const struct tell_batch *batch)
{
    assert(batch->n >= 1 && batch->n <= COMMIT_BATCH_MAX);
    (void)pthread_mutex_lock(&t->lock);
    assert(!t->stopping);
    while (t->n == TELL_BATCHES_MAX) {
        (void)pthread_cond_wait(&t->room, &t->lock);
    }
    struct tell_batch *b = &t->ring[(t->first + t->n) % TELL_BATCHES_MAX];
    size_t n = (size_t)batch->n;
    memcpy(b->entries, batch->entries, n * sizeof b->entries[0]);
    memcpy(b->verdicts, batch->verdicts, n * sizeof b->verdicts[0]);
    b->n = batch->n;
    b->again = batch->again;
    t->n++;
    (void)pthread_cond_signal(&t->news);
    (void)pthread_mutex_unlock(&t->lock);
}

static void teller_free(struct commit_teller *t)
{
    queue_close(&t->queue);
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_cond_destroy(&t->news);
    (void)pthread_cond_destroy(&t->room);
    free(t);
}

int commit_teller_start(const struct config *config, struct inflight *inflight,
                        struct commit_queue *ends, struct commit_teller **ret_teller,
                        struct err *err)
{
    struct commit_teller *t = calloc(1, sizeof *t);
    if (!t) {
        abort();
    }
    t->inflight = inflight;
    t->ends = ends;
    int rc = pthread_mutex_init(&t->lock, NULL);
    assert(rc == 0);
    rc = pthread_cond_init(&t->news, NULL);
    assert(rc == 0);
    rc = pthread_cond_init(&t->room, NULL);
    assert(rc == 0);
    rc = queue_open(&t->queue, config->redis_url, err);
    rc = rc == -ERR_UNAVAILABLE ? 0 : rc; /* found when it is there */
    if (rc == 0 && (errno = pthread_create(&t->thread, NULL, teller_main, t)) != 0) {
        rc = err_sys(err, "teller: thread");
    }
    if (rc < 0) {
        teller_free(t);
        return rc;
    }
    *ret_teller = t;
    return 0;
}

void commit_teller_stop(struct commit_teller *t)
{
    if (!t) {
        return;
    }
    (void)pthread_mutex_lock(&t->lock);
    t->stopping = true;
    (void)pthread_cond_signal(&t->news);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    teller_free(t);
}
