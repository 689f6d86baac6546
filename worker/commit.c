#include "worker/commit.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/jobs.h"
#include "common/store/pg.h"

#define QUEUE_TIMEOUT_NOTE "the claim will expire and be looked at again"
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define REFUSED_MAX 3       /* tries of one entry alone before it is given back as failed */
#define MARK_RUNNING_MS 500 /* jobs that run for longer are shown as running */
#define MARK_RUNNING_MAX 64
#define BATCH_MAX 256

struct committer {
    const struct config *config;
    const char *name;
    struct inflight *inflight;
    struct pg pg;       /* of the thread */
    struct queue queue; /* of the thread */
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t work, room;
    struct commit_entry *first, *last;
    int queued, reserved;
    size_t queued_bytes;
    bool stopping;
    int64_t stop_us; /* mono: when to leave although entries are left */
};

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

static struct timespec deadline_at(int64_t mono_at_us)
{
    return (struct timespec){ .tv_sec = mono_at_us / 1000000,
                              .tv_nsec = mono_at_us % 1000000 * 1000 };
}

/* ---- called by slots ---- */

bool commit_reserve(struct committer *c, int64_t wait_ms)
{
    struct timespec until = deadline_at(mono_us() + wait_ms * 1000);
    (void)pthread_mutex_lock(&c->lock);
    bool full = true;
    int rc = 0;
    while (rc == 0) {
        full =
            c->queued + c->reserved >= COMMIT_QUEUE_MAX || c->queued_bytes > COMMIT_QUEUE_BYTES_MAX;
        if (!full || c->stopping) {
            break;
        }
        rc = pthread_cond_timedwait(&c->room, &c->lock, &until);
    }
    bool had = !full && !c->stopping;
    c->reserved += had;
    (void)pthread_mutex_unlock(&c->lock);
    return had;
}

void commit_unreserve(struct committer *c)
{
    (void)pthread_mutex_lock(&c->lock);
    assert(c->reserved > 0);
    c->reserved--;
    (void)pthread_cond_signal(&c->room);
    (void)pthread_mutex_unlock(&c->lock);
}

/* With the lock held. front: entries that were taken and could not be committed go back to where
 * they were. */
static void enqueue(struct committer *c, struct commit_entry *e, bool front)
{
    e->next = front ? c->first : NULL;
    if (front) {
        c->first = e;
        c->last = c->last ? c->last : e;
    } else {
        if (c->last) {
            c->last->next = e;
        } else {
            c->first = e;
        }
        c->last = e;
    }
    c->queued++;
    c->queued_bytes += entry_bytes(e);
}

void commit_push(struct committer *c, struct commit_entry *e)
{
    (void)pthread_mutex_lock(&c->lock);
    assert(c->reserved > 0);
    c->reserved--;
    enqueue(c, e, false);
    (void)pthread_cond_signal(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
}

/* ---- the thread ---- */

/* Wait for work until until_us; take up to max entries into out. */
static int take(struct committer *c, int64_t until_us, struct commit_entry **out, int max)
{
    struct timespec until = deadline_at(until_us);
    (void)pthread_mutex_lock(&c->lock);
    int rc = 0;
    while (!c->first && !c->stopping && rc == 0) {
        rc = pthread_cond_timedwait(&c->work, &c->lock, &until);
    }
    int n = 0;
    while (c->first && n < max) {
        struct commit_entry *e = c->first;
        c->first = e->next;
        c->last = c->first ? c->last : NULL;
        c->queued--;
        c->queued_bytes -= entry_bytes(e);
        out[n++] = e;
    }
    c->reserved += n; /* their places are free again when they are done */
    (void)pthread_mutex_unlock(&c->lock);
    return n;
}

static void done(struct committer *c, struct commit_entry *e)
{
    (void)pthread_mutex_lock(&c->lock);
    c->reserved--;
    (void)pthread_cond_broadcast(&c->room);
    (void)pthread_mutex_unlock(&c->lock);
    commit_entry_free(e);
}

static void put_back(struct committer *c, struct commit_entry **entries, int n)
{
    (void)pthread_mutex_lock(&c->lock);
    for (int i = n - 1; i >= 0; i--) {
        c->reserved--;
        enqueue(c, entries[i], true);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

/* The entries are in Postgres (or of no use): let go of the claims, tell of the ends, free.
 * verdicts[i] NULL: no event. */
static void finish(struct committer *c, struct commit_entry **entries, const char **verdicts, int n)
{
    assert(n >= 1 && n <= BATCH_MAX);
    const char *ids[BATCH_MAX] = { 0 };
    struct finished_event events[BATCH_MAX];
    int n_events = 0;
    for (int i = 0; i < n; i++) {
        inflight_remove(c->inflight, entries[i]->ref);
        ids[i] = entries[i]->claim.stream_id;
        if (verdicts[i]) {
            events[n_events++] = (struct finished_event){ entries[i]->claim.job_id, verdicts[i] };
        }
    }
    struct err err = { 0 };
    int rc = queue_claim_ack(&c->queue, ids, n, &err);
    if (rc >= 0 && n_events > 0) {
        rc = queue_events_finished(&c->queue, events, n_events, &err);
    }
    if (rc < 0) {
        log_warn("committed, but Redis did not take the acknowledgement; " QUEUE_TIMEOUT_NOTE,
                 "error", err.text);
    }
    for (int i = 0; i < n; i++) {
        done(c, entries[i]);
    }
}

/* Entries whose claim was lost commit nothing: the other attempt is in force. Returns how many are
 * left. */
static int drop_lost(struct committer *c, struct commit_entry **entries, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct commit_entry *e = entries[i];
        if (!inflight_lost(c->inflight, e->ref)) {
            entries[kept++] = e;
            continue;
        }
        log_warn("claim lost: nothing is committed", "job", e->claim.job_id);
        inflight_remove(c->inflight, e->ref);
        done(c, e);
    }
    return kept;
}

/* A fault of ours, brought to Postgres alone. */
static int commit_failed(struct committer *c, struct commit_entry *e, struct err *err)
{
    bool dead = false;
    struct retry_policy policy = retry_policy_of(c->config);
    int rc = store_attempt_failed(&c->pg, e->claim.job_id, e->claim.attempt, c->name, e->cause,
                                  e->reason, &policy, &dead, err);
    if (rc < 0) {
        return rc;
    }
    const char *verdict = dead ? verdict_word(VERDICT_INFRA_ERROR) : NULL;
    finish(c, &e, &verdict, 1);
    return 0;
}

static int commit_results(struct committer *c, struct commit_entry **entries, int n,
                          struct err *err)
{
    struct commit_item items[BATCH_MAX];
    for (int i = 0; i < n; i++) {
        struct commit_entry *e = entries[i];
        items[i] = (struct commit_item){ .job_id = e->claim.job_id,
                                         .tenant = e->claim.tenant,
                                         .template_name = e->template_name,
                                         .worker = c->name,
                                         .attempt = e->claim.attempt,
                                         .result = &e->result,
                                         .billed = e->billed,
                                         .branches = e->branches,
                                         .n_branches = e->n_branches,
                                         .snapshots = e->snapshots,
                                         .n_snapshots = e->n_snapshots,
                                         .artifacts = e->artifacts.n > 0 ? &e->artifacts : NULL };
    }
    int64_t start_us = mono_us();
    int rc = store_commit(&c->pg, items, n, err);
    if (rc < 0) {
        return rc;
    }
    char count[16], took[24];
    (void)snprintf(count, sizeof count, "%d", n);
    (void)snprintf(took, sizeof took, "%" PRId64, mono_us() - start_us);
    log_debug("committed", "jobs", count, "us", took);
    const char *verdicts[BATCH_MAX];
    for (int i = 0; i < n; i++) {
        verdicts[i] = items[i].ret_won ? verdict_word(entries[i]->result.verdict) : NULL;
        if (!items[i].ret_won) {
            log_info("another attempt is in force: nothing was written", "job", items[i].job_id);
        }
    }
    finish(c, entries, verdicts, n);
    return 0;
}

/* Postgres is there and refuses this one entry: after some tries the attempt counts as failed; a
 * failure that cannot be written either is left to the expiry of its claim. */
static void refuse(struct committer *c, struct commit_entry *e, const struct err *why)
{
    log_error("Postgres refuses a result", "job", e->claim.job_id, "error", why->text);
    if (++e->refused < REFUSED_MAX) {
        put_back(c, &e, 1);
        return;
    }
    if (!e->failed) {
        e->failed = true;
        e->refused = 0;
        e->cause = RETRY_BROKEN;
        (void)snprintf(e->reason, sizeof e->reason, "the result could not be stored: %.400s",
                       why->text);
        put_back(c, &e, 1);
        return;
    }
    inflight_remove(c->inflight, e->ref);
    done(c, e);
}

/* One batch; what could not be committed is back in the queue. true when all went well. */
static bool commit_batch(struct committer *c, struct commit_entry **entries, int n)
{
    n = drop_lost(c, entries, n);
    struct commit_entry *results[BATCH_MAX];
    int n_results = 0;
    bool ok = true;
    struct err err = { 0 };
    for (int i = 0; i < n; i++) {
        struct commit_entry *e = entries[i];
        if (!e->failed) {
            results[n_results++] = e;
            continue;
        }
        int rc = commit_failed(c, e, &err);
        if (rc == -ERR_UNAVAILABLE) {
            put_back(c, &e, 1);
            ok = false;
        } else if (rc < 0) {
            refuse(c, e, &err);
            ok = false;
        }
    }
    if (n_results > 0) {
        int rc = commit_results(c, results, n_results, &err);
        if (rc < 0 && rc != -ERR_UNAVAILABLE) {
            for (int i = 0; i < n_results; i++) { /* which one is it? */
                rc = commit_results(c, &results[i], 1, &err);
                if (rc < 0 && rc != -ERR_UNAVAILABLE) {
                    refuse(c, results[i], &err);
                } else if (rc < 0) {
                    put_back(c, &results[i], 1);
                }
                ok = ok && rc == 0;
            }
        } else if (rc < 0) {
            put_back(c, results, n_results);
            ok = false;
        }
    }
    if (!ok) {
        log_warn("results wait: Postgres did not take them", "error", err.text);
    }
    return ok;
}

static void mark_running(struct committer *c)
{
    struct inflight_claim claims[MARK_RUNNING_MAX];
    int n = inflight_take_unmarked(c->inflight, mono_us() - MARK_RUNNING_MS * 1000, claims,
                                   MARK_RUNNING_MAX);
    struct err err = { 0 };
    for (int i = 0; i < n; i++) {
        if (store_mark_running(&c->pg, claims[i].job_id, claims[i].attempt, &err) < 0) {
            return; /* only for show */
        }
    }
}

/* true: entries are there, or it is not time to end. */
static bool go_on(struct committer *c)
{
    (void)pthread_mutex_lock(&c->lock);
    bool on = !c->stopping || (c->first && mono_us() < c->stop_us);
    (void)pthread_mutex_unlock(&c->lock);
    return on;
}

static void *committer_main(void *arg)
{
    struct committer *c = arg;
    struct commit_entry *entries[BATCH_MAX];
    int max = c->config->worker_commit_batch_max < BATCH_MAX
                  ? (int)c->config->worker_commit_batch_max
                  : BATCH_MAX;
    int64_t backoff_ms = BACKOFF_MIN_MS;
    while (go_on(c)) {
        int n = take(c, mono_us() + MARK_RUNNING_MS * 1000, entries, max);
        if (n == 0) {
            mark_running(c);
        } else if (commit_batch(c, entries, n)) {
            backoff_ms = BACKOFF_MIN_MS;
        } else {
            sleep_ms(backoff_ms);
            backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
        }
    }
    return NULL;
}

int committer_start(const struct config *config, const char *name, struct inflight *inflight,
                    struct committer **ret_committer, struct err *err)
{
    struct committer *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    *c = (struct committer){ .config = config, .name = name, .inflight = inflight };
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    assert(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* the clock of mono_us */
    assert(rc == 0);
    rc = pthread_mutex_init(&c->lock, NULL);
    assert(rc == 0);
    rc = pthread_cond_init(&c->work, &attr);
    assert(rc == 0);
    rc = pthread_cond_init(&c->room, &attr);
    assert(rc == 0);
    (void)pthread_condattr_destroy(&attr);
    rc = pg_open(&c->pg, config->postgres_url, err);
    if (rc == 0) {
        rc = queue_open(&c->queue, config->redis_url, err);
    }
    if (rc == 0 && (errno = pthread_create(&c->thread, NULL, committer_main, c)) != 0) {
        rc = err_sys(err, "committer: thread");
    }
    if (rc < 0) {
        queue_close(&c->queue);
        pg_close(&c->pg);
        free(c);
        return rc;
    }
    *ret_committer = c;
    return 0;
}

int committer_stop(struct committer *c, int64_t wait_ms)
{
    if (!c) {
        return 0;
    }
    (void)pthread_mutex_lock(&c->lock);
    c->stopping = true;
    c->stop_us = mono_us() + wait_ms * 1000;
    (void)pthread_cond_broadcast(&c->work);
    (void)pthread_cond_broadcast(&c->room);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    int left = c->queued;
    while (c->first) {
        struct commit_entry *e = c->first;
        c->first = e->next;
        commit_entry_free(e);
    }
    queue_close(&c->queue);
    pg_close(&c->pg);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_cond_destroy(&c->work);
    (void)pthread_cond_destroy(&c->room);
    free(c);
    return left;
}
