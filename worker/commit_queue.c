#include "worker/commit_queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/cond.h"

/* ---- entries ---- */

struct commit_entry *commit_entry_new(void)
{
    struct commit_entry *e = calloc(1, sizeof *e);
    if (!e) {
        abort();
    }
    job_result_init(&e->result);
    return e;
}

void commit_entry_free(struct commit_entry *e)
{
    if (e) {
        claim_done(&e->claim);
        job_result_done(&e->result);
        branch_results_free(e->branches, e->n_branches);
        free(e->snapshots);
        manifest_done(&e->artifacts);
        free(e);
    }
}

void commit_entry_let_go(const struct commit_entry *e, struct inflight *inflight)
{
    if (e->ref.index >= 0) {
        inflight_remove(inflight, e->ref);
    }
}

void commit_entry_keep(struct commit_entry *e, const struct snapshot_row *row)
{
    size_t n = (size_t)e->n_snapshots + 1;
    struct snapshot_row *rows = realloc(e->snapshots, n * sizeof *rows);
    if (!rows) {
        abort();
    }
    rows[e->n_snapshots++] = *row;
    e->snapshots = rows;
}

static size_t stream_bytes(const struct stream_result *s)
{
    return s->head.len + s->tail.len;
}

static size_t entry_bytes(const struct commit_entry *e)
{
    const struct job_result *r = &e->result;
    size_t below = 0;
    for (int i = 0; i < e->n_branches; i++) {
        below += sizeof e->branches[i] + (size_t)branch_result_bytes(&e->branches[i]);
    }
    return sizeof *e + below + stream_bytes(&r->setup.out) + stream_bytes(&r->setup.err_out) +
           stream_bytes(&r->run.out) + stream_bytes(&r->run.err_out);
}

/* ---- the queue ---- */

void commit_queue_init(struct commit_queue *q, int batch)
{
    assert(batch > 0);
    *q = (struct commit_queue){ .first = NULL, .batch = batch };
    int rc = pthread_mutex_init(&q->lock, NULL);
    assert(rc == 0);
    (void)rc;
    cond_init(&q->work);
    cond_init(&q->room);
    cond_init(&q->full);
}

void commit_queue_done(struct commit_queue *q)
{
    while (q->first) {
        struct commit_entry *e = q->first;
        q->first = e->next;
        commit_entry_free(e);
    }
    (void)pthread_mutex_destroy(&q->lock);
    (void)pthread_cond_destroy(&q->work);
    (void)pthread_cond_destroy(&q->room);
    (void)pthread_cond_destroy(&q->full);
}

bool commit_queue_reserve(struct commit_queue *q, int64_t wait_ms)
{
    int64_t until_us = mono_us() + wait_ms * 1000;
    (void)pthread_mutex_lock(&q->lock);
    bool full = true;
    int rc = 0;
    while (rc == 0) {
        full =
            q->queued + q->reserved >= COMMIT_QUEUE_MAX || q->queued_bytes > COMMIT_QUEUE_BYTES_MAX;
        if (!full || q->stopping) {
            break;
        }
        rc = cond_wait_until(&q->room, &q->lock, until_us);
    }
    bool had = !full && !q->stopping;
    q->reserved += had;
    (void)pthread_mutex_unlock(&q->lock);
    return had;
}

void commit_queue_unreserve(struct commit_queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    assert(q->reserved > 0);
    q->reserved--;
    (void)pthread_cond_signal(&q->room);
    (void)pthread_mutex_unlock(&q->lock);
}

/* With the lock held. */
static void enqueue(struct commit_queue *q, struct commit_entry *e, bool front)
{
    e->next = front ? q->first : NULL;
    if (front) {
        q->first = e;
        q->last = q->last ? q->last : e;
    } else {
        if (q->last) {
            q->last->next = e;
        } else {
            q->first = e;
        }
        q->last = e;
    }
    q->queued++;
    q->queued_bytes += entry_bytes(e);
}

void commit_queue_push(struct commit_queue *q, struct commit_entry *e)
{
    (void)pthread_mutex_lock(&q->lock);
    assert(q->reserved > 0);
    q->reserved--;
    enqueue(q, e, false);
    (void)pthread_cond_signal(&q->work);
    if (q->queued >= q->batch) {
        (void)pthread_cond_signal(&q->full);
    }
    (void)pthread_mutex_unlock(&q->lock);
}

/* With the lock held. */
static int take(struct commit_queue *q, struct commit_entry **ret_entries, int max)
{
    int n = 0;
    while (q->first && n < max) {
        struct commit_entry *e = q->first;
        q->first = e->next;
        q->last = q->first ? q->last : NULL;
        q->queued--;
        q->queued_bytes -= entry_bytes(e);
        ret_entries[n++] = e;
    }
    q->reserved += n;
    return n;
}

int commit_queue_take(struct commit_queue *q, int64_t until_us, struct commit_entry **ret_entries,
                      int max)
{
    (void)pthread_mutex_lock(&q->lock);
    int rc = 0;
    while (!q->first && !q->stopping && rc == 0) {
        rc = cond_wait_until(&q->work, &q->lock, until_us);
    }
    int n = take(q, ret_entries, max);
    (void)pthread_mutex_unlock(&q->lock);
    return n;
}

int commit_queue_take_full(struct commit_queue *q, struct commit_entry **ret_entries)
{
    (void)pthread_mutex_lock(&q->lock);
    while (q->queued < q->batch && !q->stopping) {
        (void)pthread_cond_wait(&q->full, &q->lock);
    }
    int n = q->stopping ? 0 : take(q, ret_entries, q->batch);
    (void)pthread_mutex_unlock(&q->lock);
    return n;
}

void commit_queue_add_taken(struct commit_queue *q, int n)
{
    (void)pthread_mutex_lock(&q->lock);
    q->reserved += n;
    (void)pthread_mutex_unlock(&q->lock);
}

/* Whoever waits for a place wants one: no more are woken than there are. */
void commit_queue_finish(struct commit_queue *q, struct commit_entry **entries, int n)
{
    (void)pthread_mutex_lock(&q->lock);
    assert(q->reserved >= n);
    q->reserved -= n;
    (void)pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < n; i++) {
        (void)pthread_cond_signal(&q->room);
        commit_entry_free(entries[i]);
    }
}

void commit_queue_put_back(struct commit_queue *q, struct commit_entry **entries, int n)
{
    (void)pthread_mutex_lock(&q->lock);
    for (int i = n - 1; i >= 0; i--) {
        q->reserved--;
        enqueue(q, entries[i], true);
    }
    (void)pthread_cond_signal(&q->work);
    (void)pthread_mutex_unlock(&q->lock);
}

void commit_queue_stop(struct commit_queue *q, int64_t wait_ms)
{
    (void)pthread_mutex_lock(&q->lock);
    q->stopping = true;
    q->stop_us = mono_us() + wait_ms * 1000;
    (void)pthread_cond_broadcast(&q->work);
    (void)pthread_cond_broadcast(&q->room);
    (void)pthread_cond_broadcast(&q->full);
    (void)pthread_mutex_unlock(&q->lock);
}

bool commit_queue_goes_on(struct commit_queue *q, bool more)
{
    (void)pthread_mutex_lock(&q->lock);
    bool on = !q->stopping || ((q->first || more) && mono_us() < q->stop_us);
    (void)pthread_mutex_unlock(&q->lock);
    return on;
}
