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
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/outage.h"
#include "common/store/jobs.h"
#include "common/store/pg.h"
#include "worker/spool.h"
#include "worker/spool_entry.h"

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

    struct outage outage;
    /* Of the thread: the spool, and the claims of its records, oldest first. */
    struct spool *spool;
    struct inflight_ref spooled[SPOOL_RECORDS_MAX];
    int64_t retry_us; /* mono: Postgres is away and not asked before */
    int64_t mark_us;  /* mono: when it is looked for jobs that run */
    bool spool_told;  /* that it takes nothing */
    struct spool_view *view;

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

/* Whoever waits for a place wants one: no more are woken than there are. */
static void done_all(struct committer *c, struct commit_entry **entries, int n)
{
    (void)pthread_mutex_lock(&c->lock);
    assert(c->reserved >= n);
    c->reserved -= n;
    (void)pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < n; i++) {
        (void)pthread_cond_signal(&c->room);
        commit_entry_free(entries[i]);
    }
}

static void done(struct committer *c, struct commit_entry *e)
{
    done_all(c, &e, 1);
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

/* Tell the scheduler what these have cost, so that shares are true and room is filled. Lost notices
 * are made good by its own counting; those of a life before are not known any more. */
static void tell_cost(struct committer *c, struct commit_entry **entries, int n)
{
    struct intake_note notes[BATCH_MAX] = { 0 };
    struct err err = { 0 };
    int n_notes = 0;
    for (int i = 0; i < n; i++) {
        if (entries[i]->ref.index < 0) {
            continue;
        }
        struct intake_note *note = &notes[n_notes++];
        note->priority = entries[i]->priority;
        note->jobs = 1;
        note->slot_us = entries[i]->slot_us;
        memcpy(note->tenant, entries[i]->claim.tenant, sizeof note->tenant);
    }
    if (n_notes > 0 && queue_done_add(&c->queue, notes, n_notes, &err) < 0) {
        log_debug("the scheduler was not told what was done", "error", err.text);
    }
}

/* Does another attempt have the job? A record of before has no claim here: Postgres will tell. */
static bool is_lost(struct committer *c, const struct commit_entry *e)
{
    return e->ref.index >= 0 && inflight_lost(c->inflight, e->ref);
}

static void let_go(struct committer *c, const struct commit_entry *e)
{
    if (e->ref.index >= 0) {
        inflight_remove(c->inflight, e->ref);
    }
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
        let_go(c, entries[i]);
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
    tell_cost(c, entries, n);
    if (rc < 0) {
        log_warn("committed, but Redis did not take the acknowledgement; " QUEUE_TIMEOUT_NOTE,
                 "error", err.text);
    }
    done_all(c, entries, n);
}

/* Entries whose claim was lost commit nothing: the other attempt is in force. Returns how many are
 * left. */
static int drop_lost(struct committer *c, struct commit_entry **entries, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct commit_entry *e = entries[i];
        if (!is_lost(c, e)) {
            entries[kept++] = e;
            continue;
        }
        log_warn("claim lost: nothing is committed", "job", e->claim.job_id);
        let_go(c, e);
        done(c, e);
    }
    return kept;
}

/* Who ran it: this worker, or one whose record was found in the spool. */
static const char *worker_of(const struct committer *c, const struct commit_entry *e)
{
    return e->worker[0] ? e->worker : c->name;
}

/* A fault of ours, brought to Postgres alone. */
static int commit_failed(struct committer *c, struct commit_entry *e, struct err *err)
{
    bool dead = false;
    struct retry_policy policy = retry_policy_of(c->config);
    int rc = store_attempt_failed(&c->pg, e->claim.job_id, e->claim.attempt, worker_of(c, e),
                                  e->cause, e->reason, &policy, &dead, err);
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
                                         .worker = worker_of(c, e),
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
    int n_again = 0;
    for (int i = 0; i < n; i++) {
        verdicts[i] = items[i].ret_won && !items[i].ret_again
                          ? verdict_word(entries[i]->result.verdict)
                          : NULL;
        n_again += items[i].ret_again;
        if (!items[i].ret_won) {
            log_info("another attempt is in force: nothing was written", "job", items[i].job_id);
        }
    }
    finish(c, entries, verdicts, n);
    struct err err_wake = { 0 };
    if (n_again > 0 && queue_wake(&c->queue, &err_wake) < 0) {
        log_debug("the scheduler will see by itself that jobs are tried again", "error",
                  err_wake.text);
    }
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
    let_go(c, e);
    done(c, e);
}

/* One batch. Postgres away: entries that it did not take are in left (at most n), for the caller.
 * Refused ones are back in the queue. true when all went well. */
static bool commit_batch(struct committer *c, struct commit_entry **entries, int n,
                         struct commit_entry **left, int *n_left)
{
    struct commit_entry *results[BATCH_MAX];
    int n_results = 0, rc;
    bool ok = true;
    struct err err = { 0 };
    *n_left = 0;
    n = drop_lost(c, entries, n);
    for (int i = 0; i < n; i++) {
        struct commit_entry *e = entries[i];
        if (!e->failed) {
            results[n_results++] = e;
        } else if (*n_left > 0 || (rc = commit_failed(c, e, &err)) == -ERR_UNAVAILABLE) {
            left[(*n_left)++] = e;
        } else if (rc < 0) {
            refuse(c, e, &err);
            ok = false;
        }
    }
    rc = n_results > 0 && *n_left == 0 ? commit_results(c, results, n_results, &err) : 0;
    bool away = *n_left > 0 || rc == -ERR_UNAVAILABLE;
    for (int i = 0; i < n_results && (away || rc < 0); i++) { /* which one is it? */
        int one = away ? -ERR_UNAVAILABLE : commit_results(c, &results[i], 1, &err);
        away = one == -ERR_UNAVAILABLE;
        if (away) {
            left[(*n_left)++] = results[i];
        } else if (one < 0) {
            refuse(c, results[i], &err);
            ok = false;
        }
    }
    if (*n_left > 0) {
        (void)outage_failed(&c->outage, mono_ms(), &err);
        return false;
    }
    outage_over(&c->outage, mono_ms());
    return ok;
}

/* ---- the spool ---- */

/* Entries into the spool, durable and freed; their claims are held on. false: it does not take
 * them, and they are still the caller's. */
static bool to_spool(struct committer *c, struct commit_entry **entries, int n)
{
    struct buf records[BATCH_MAX];
    struct err err = { 0 };
    int rc = 0, k = 0, before = spool_count(c->spool);
    for (; k < n && rc == 0; k++) {
        buf_init(&records[k], SPOOL_RECORD_MAX);
        rc = spool_entry_write(entries[k], worker_of(c, entries[k]), &records[k], &err);
    }
    rc = rc < 0 ? rc : spool_append(c->spool, records, n, &err);
    while (k > 0) {
        buf_done(&records[--k]);
    }
    if (rc < 0) {
        if (!c->spool_told) {
            log_warn("the spool takes nothing: results wait in memory", "error", err.text);
        }
        c->spool_told = true;
        return false;
    }
    c->spool_told = false;
    for (int i = 0; i < n; i++) {
        c->spooled[before + i] = entries[i]->ref;
    }
    done_all(c, entries, n);
    return true;
}

/* The n oldest records are done with. */
static void consume(struct committer *c, int n)
{
    spool_consume(c->spool, n);
    memmove(c->spooled, c->spooled + n, (size_t)spool_count(c->spool) * sizeof c->spooled[0]);
}

/* The index-th record as an entry, or NULL when the disk has lost it. */
static struct commit_entry *from_spool(struct committer *c, int index)
{
    cleanup_buf struct buf record;
    struct commit_entry *e = NULL;
    struct err err;
    buf_init(&record, SPOOL_RECORD_MAX + 1);
    char worker[sizeof e->worker];
    int rc = spool_read(c->spool, index, &record, &err);
    rc = rc < 0 ? rc : spool_entry_read(record.data, record.len, &e, worker, sizeof worker, &err);
    if (rc < 0) {
        log_error("a spooled result is lost: its job will be run again", "error", err.text);
        struct inflight_ref ref = c->spooled[index];
        if (ref.index >= 0) {
            inflight_remove(c->inflight, ref); /* not renewed any more: the claim expires */
        }
        return NULL;
    }
    e->ref = c->spooled[index];
    (void)snprintf(e->worker, sizeof e->worker, "%s", worker);
    return e;
}

/* Up to max of the oldest records into Postgres. false: it does not take them. */
static bool drain(struct committer *c, int max)
{
    struct commit_entry *entries[BATCH_MAX], *left[BATCH_MAX];
    int n = 0, n_left = 0, records = spool_count(c->spool) < max ? spool_count(c->spool) : max;
    for (int i = 0; i < records; i++) {
        struct commit_entry *e = from_spool(c, i);
        if (e) {
            entries[n++] = e;
        }
    }
    (void)pthread_mutex_lock(&c->lock);
    c->reserved += n; /* as if they had been taken from the queue */
    (void)pthread_mutex_unlock(&c->lock);
    bool ok = n == 0 || commit_batch(c, entries, n, left, &n_left);
    for (int i = 0; i < n_left; i++) {
        done(c, left[i]); /* the record is still there */
    }
    if (n_left == 0) {
        consume(c, records);
    }
    return ok;
}

/* By the clock, not when there is nothing else to do: beside a stream of short jobs there always
 * is. */
static void mark_running(struct committer *c)
{
    struct inflight_claim claims[MARK_RUNNING_MAX];
    if (mono_us() < c->mark_us) {
        return;
    }
    c->mark_us = mono_us() + MARK_RUNNING_MS * 1000;
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
    bool work = c->first || spool_count(c->spool) > 0;
    bool on = !c->stopping || (work && mono_us() < c->stop_us);
    (void)pthread_mutex_unlock(&c->lock);
    return on;
}

/* What was taken from the queue: to Postgres, or, while that is away, to the spool. false: neither
 * takes them. */
static bool bring(struct committer *c, struct commit_entry **entries, int n)
{
    struct commit_entry *left[BATCH_MAX];
    int n_left = n;
    bool ok = true;
    if (spool_count(c->spool) == 0 && mono_us() >= c->retry_us) {
        ok = commit_batch(c, entries, n, left, &n_left);
    } else {
        memcpy(left, entries, (size_t)n * sizeof left[0]);
    }
    if (n_left > 0 && !to_spool(c, left, n_left)) {
        put_back(c, left, n_left);
        return false;
    }
    return ok;
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
        int64_t until_us = mono_us() + MARK_RUNNING_MS * 1000;
        bool waiting = spool_count(c->spool) > 0;
        int n = take(c, waiting && c->retry_us < until_us ? c->retry_us : until_us, entries, max);
        bool ok = n == 0 || bring(c, entries, n), held = n > 0 && !ok;
        if (spool_count(c->spool) > 0 && mono_us() >= c->retry_us) {
            ok = drain(c, max) && ok;
        }
        atomic_store(&c->view->records, spool_count(c->spool));
        atomic_store(&c->view->bytes, (long long)spool_bytes(c->spool));
        if (ok && spool_count(c->spool) == 0) {
            mark_running(c);
        }
        if (ok && mono_us() >= c->retry_us) {
            backoff_ms = BACKOFF_MIN_MS;
        } else if (!ok) {
            c->retry_us = mono_us() + backoff_ms * 1000;
            if (held) { /* nobody takes what there is: no hurry to take it up again */
                sleep_ms(backoff_ms);
            }
            backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
        }
    }
    return NULL;
}

static int open_spool(struct committer *c, struct err *err)
{
    char dir[CONFIG_STR_MAX + 16];
    (void)snprintf(dir, sizeof dir, "%s/spool", c->config->home);
    int rc = config_make_home(c->config, err);
    rc = rc < 0 ? rc : spool_open(&c->spool, dir, c->config->worker_spool_mib << 20, err);
    for (int i = 0; rc == 0 && i < spool_count(c->spool); i++) {
        c->spooled[i] = (struct inflight_ref){ .index = -1 };
    }
    if (rc == 0) {
        atomic_store(&c->view->records, spool_count(c->spool));
        atomic_store(&c->view->bytes, (long long)spool_bytes(c->spool));
    }
    return rc;
}

int committer_start(const struct config *config, const char *name, struct inflight *inflight,
                    struct spool_view *view, struct committer **ret_committer, struct err *err)
{
    struct committer *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    *c = (struct committer){ .config = config, .name = name, .inflight = inflight, .view = view };
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
    rc = open_spool(c, err);
    if (rc == 0 && (rc = pg_open(&c->pg, config->postgres_url, err)) == -ERR_UNAVAILABLE) {
        (void)outage_failed(&c->outage, mono_ms(), err);
        rc = 0; /* found when it is there, as Redis */
    }
    if (rc == 0 && (rc = queue_open(&c->queue, config->redis_url, err)) == -ERR_UNAVAILABLE) {
        rc = 0;
    }
    if (rc == 0 && (errno = pthread_create(&c->thread, NULL, committer_main, c)) != 0) {
        rc = err_sys(err, "committer: thread");
    }
    if (rc < 0) {
        queue_close(&c->queue);
        pg_close(&c->pg);
        spool_close(c->spool);
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
    while (c->first) { /* the thread has ended: this one may */
        struct commit_entry *entries[BATCH_MAX];
        int n = take(c, 0, entries, BATCH_MAX);
        if (!to_spool(c, entries, n)) {
            put_back(c, entries, n);
            break;
        }
        log_fmt(LOG_INFO, "%d results are in the spool, to be committed after the next start", n);
        left -= n;
    }
    while (c->first) {
        struct commit_entry *e = c->first;
        c->first = e->next;
        commit_entry_free(e);
    }
    queue_close(&c->queue);
    pg_close(&c->pg);
    spool_close(c->spool);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_cond_destroy(&c->work);
    (void)pthread_cond_destroy(&c->room);
    free(c);
    return left;
}
