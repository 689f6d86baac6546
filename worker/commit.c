#include "worker/commit.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/outage.h"
#include "common/store/jobs.h"
#include "common/store/pg.h"
#include "worker/commit_queue.h"
#include "worker/commit_tell.h"
#include "worker/spool.h"
#include "worker/spool_entry.h"

#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define REFUSED_MAX 3       /* tries of one entry alone before it is given back as failed */
#define MARK_RUNNING_MS 500 /* jobs that run for longer are shown as running */
#define MARK_RUNNING_MAX 64
#define SECOND_REST_MS 100 /* of the second thread when Postgres takes nothing */
#define BATCH_MAX COMMIT_BATCH_MAX

struct committer {
    const struct config *config;
    const char *name;
    struct inflight *inflight;
    struct pg pg; /* of the thread */
    struct commit_teller *teller;
    pthread_t thread;
    /* Of the second thread; away: Postgres takes nothing, or the spool's records first. */
    struct pg second_pg;
    pthread_t second;
    bool has_second;
    atomic_bool away;

    struct outage outage;
    /* Of the thread: the spool, and the claims of its records, oldest first. */
    struct spool *spool;
    struct inflight_ref spooled[SPOOL_RECORDS_MAX];
    int64_t retry_us; /* mono: Postgres is away and not asked before */
    int64_t mark_us;  /* mono: when it is looked for jobs that run */
    bool spool_told;  /* that it takes nothing */
    struct spool_view *view;

    struct commit_queue ends;
};

static int batch_max(const struct config *config)
{
    int max = (int)config->worker_commit_batch_max;
    return max < BATCH_MAX ? max : BATCH_MAX;
}

/* ---- called by slots ---- */

bool commit_reserve(struct committer *c, int64_t wait_ms)
{
    return commit_queue_reserve(&c->ends, wait_ms);
}

void commit_unreserve(struct committer *c)
{
    commit_queue_unreserve(&c->ends);
}

void commit_push(struct committer *c, struct commit_entry *e)
{
    commit_queue_push(&c->ends, e);
}

/* ---- the thread ---- */

/* Does another attempt have the job? A record of before has no claim here: Postgres will tell. */
static bool is_lost(struct committer *c, const struct commit_entry *e)
{
    return e->ref.index >= 0 && inflight_lost(c->inflight, e->ref);
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
        commit_entry_let_go(e, c->inflight);
        commit_queue_finish(&c->ends, &e, 1);
    }
    return kept;
}

/* Who ran it: this worker, or one whose record was found in the spool. */
static const char *worker_of(const struct committer *c, const struct commit_entry *e)
{
    return e->worker[0] ? e->worker : c->name;
}

/* A fault of ours, brought to Postgres alone. */
static int commit_failed(struct committer *c, struct pg *pg, struct commit_entry *e,
                         struct err *err)
{
    bool dead = false;
    struct retry_policy policy = retry_policy_of(c->config);
    int rc = store_attempt_failed(pg, e->claim.job_id, e->claim.attempt, worker_of(c, e), e->cause,
                                  e->reason, &policy, &dead, err);
    if (rc < 0) {
        return rc;
    }
    struct tell_batch done = { .n = 1 };
    done.entries[0] = e;
    done.verdicts[0] = dead ? verdict_word(VERDICT_INFRA_ERROR) : NULL;
    commit_tell(c->teller, &done);
    return 0;
}

static int commit_results(struct committer *c, struct pg *pg, struct commit_entry **entries, int n,
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
    int rc = store_commit(pg, items, n, err);
    if (rc < 0) {
        return rc;
    }
    char count[16], took[24];
    (void)snprintf(count, sizeof count, "%d", n);
    (void)snprintf(took, sizeof took, "%" PRId64, mono_us() - start_us);
    log_debug("committed", "jobs", count, "us", took);
    struct tell_batch done = { .n = n };
    for (int i = 0; i < n; i++) {
        done.entries[i] = entries[i];
        done.verdicts[i] = items[i].ret_won && !items[i].ret_again
                               ? verdict_word(entries[i]->result.verdict)
                               : NULL;
        done.again = done.again || items[i].ret_again;
        if (!items[i].ret_won) {
            log_info("another attempt is in force: nothing was written", "job", items[i].job_id);
        }
    }
    commit_tell(c->teller, &done);
    return 0;
}

/* It alone. Postgres away: -ERR_UNAVAILABLE, and it is still the caller's. Refused for itself,
 * again and again: the attempt counts as failed; a failure that cannot be written either is left to
 * the expiry of its claim. */
static int commit_alone(struct committer *c, struct pg *pg, struct commit_entry *e, struct err *err)
{
    for (int refused = 0;;) {
        int rc = e->failed ? commit_failed(c, pg, e, err) : commit_results(c, pg, &e, 1, err);
        if (rc >= 0 || rc == -ERR_UNAVAILABLE) {
            return rc;
        }
        log_error("Postgres refuses a result", "job", e->claim.job_id, "error", err->text);
        if (++refused < REFUSED_MAX) {
            continue;
        }
        if (e->failed) {
            commit_entry_let_go(e, c->inflight);
            commit_queue_finish(&c->ends, &e, 1);
            return 0;
        }
        refused = 0;
        e->failed = true;
        e->cause = RETRY_BROKEN;
        (void)snprintf(e->reason, sizeof e->reason, "the result could not be stored: %.400s",
                       err->text);
    }
}

/* One batch. Postgres away: entries that it did not take are in left (at most n), for the caller,
 * and why in err; all others are done with. true when all went well. */
static bool commit_batch(struct committer *c, struct pg *pg, struct commit_entry **entries, int n,
                         struct commit_entry **left, int *n_left, struct err *err)
{
    struct commit_entry *alone[BATCH_MAX], *results[BATCH_MAX];
    int n_alone = 0, n_results = 0, rc = 0;
    *n_left = 0;
    n = drop_lost(c, entries, n);
    for (int i = 0; i < n; i++) {
        if (entries[i]->failed) {
            alone[n_alone++] = entries[i];
        } else {
            results[n_results++] = entries[i];
        }
    }
    rc = n_results > 0 ? commit_results(c, pg, results, n_results, err) : 0;
    for (int i = 0; i < n_results && rc < 0; i++) { /* which one is it? */
        alone[n_alone++] = results[i];
    }
    for (int i = 0; i < n_alone; i++) {
        if (rc != -ERR_UNAVAILABLE) {
            rc = commit_alone(c, pg, alone[i], err);
        }
        if (rc == -ERR_UNAVAILABLE) {
            left[(*n_left)++] = alone[i];
        }
    }
    return *n_left == 0;
}

/* The same by the committer's own thread, which is the one that tells of an outage. */
static bool commit_own_batch(struct committer *c, struct commit_entry **entries, int n,
                             struct commit_entry **left, int *n_left)
{
    struct err err = { 0 };
    bool ok = commit_batch(c, &c->pg, entries, n, left, n_left, &err);
    if (ok) {
        outage_over(&c->outage, mono_ms());
    } else {
        (void)outage_failed(&c->outage, mono_ms(), &err);
    }
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
    commit_queue_finish(&c->ends, entries, n);
    return true;
}

/* The records from the first-th on are of before: nothing here holds their claims. */
static void no_claims(struct committer *c, int first)
{
    for (int i = first; i < spool_count(c->spool); i++) {
        c->spooled[i] = (struct inflight_ref){ .index = -1 };
    }
}

/* The n oldest records are done with. */
static void consume(struct committer *c, int n)
{
    int left = spool_count(c->spool) - n;
    spool_consume(c->spool, n);
    memmove(c->spooled, c->spooled + n, (size_t)left * sizeof c->spooled[0]);
    no_claims(c, left);
}

/* The index-th record as an entry, or NULL when the disk has lost it. */
static struct commit_entry *from_spool(struct committer *c, int index)
{
    cleanup_buf struct buf record = { 0 };
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
    commit_queue_add_taken(&c->ends, n);
    bool ok = n == 0 || commit_own_batch(c, entries, n, left, &n_left);
    for (int i = 0; i < n_left; i++) {
        commit_queue_finish(&c->ends, &left[i], 1); /* the record is still there */
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

/* What was taken from the queue: to Postgres, or, while that is away, to the spool. false: neither
 * takes them. */
static bool bring(struct committer *c, struct commit_entry **entries, int n)
{
    struct commit_entry *left[BATCH_MAX];
    int n_left = n;
    bool ok = true;
    if (spool_count(c->spool) == 0 && mono_us() >= c->retry_us) {
        ok = commit_own_batch(c, entries, n, left, &n_left);
    } else {
        memcpy(left, entries, (size_t)n * sizeof left[0]);
    }
    if (n_left > 0 && !to_spool(c, left, n_left)) {
        commit_queue_put_back(&c->ends, left, n_left);
        return false;
    }
    return ok;
}

/* The second thread: whole batches that have gathered while the first has one on its way. It knows
 * fair weather only: what Postgres does not take goes back to where it was, for the first. */
static void *second_main(void *arg)
{
    struct committer *c = arg;
    struct commit_entry *entries[BATCH_MAX], *left[BATCH_MAX];
    for (int n; (n = commit_queue_take_full(&c->ends, entries)) > 0;) {
        struct err err = { 0 };
        int n_left = n;
        if (atomic_load(&c->away)) {
            memcpy(left, entries, (size_t)n * sizeof left[0]);
        } else if (commit_batch(c, &c->second_pg, entries, n, left, &n_left, &err)) {
            continue;
        }
        commit_queue_put_back(&c->ends, left, n_left);
        sleep_ms(SECOND_REST_MS);
    }
    return NULL;
}

static void *committer_main(void *arg)
{
    struct committer *c = arg;
    struct commit_entry *entries[BATCH_MAX];
    int max = batch_max(c->config);
    int64_t backoff_ms = BACKOFF_MIN_MS;
    while (commit_queue_goes_on(&c->ends, spool_count(c->spool) > 0)) {
        int64_t until_us = mono_us() + MARK_RUNNING_MS * 1000;
        bool waiting = spool_count(c->spool) > 0;
        int n = commit_queue_take(
            &c->ends, waiting && c->retry_us < until_us ? c->retry_us : until_us, entries, max);
        bool ok = n == 0 || bring(c, entries, n), held = n > 0 && !ok;
        if (spool_count(c->spool) > 0 && mono_us() >= c->retry_us) {
            ok = drain(c, max); /* Postgres takes them: there will be room for what was held */
        }
        atomic_store(&c->view->records, spool_count(c->spool));
        atomic_store(&c->view->bytes, (long long)spool_bytes(c->spool));
        atomic_store(&c->away, !ok || spool_count(c->spool) > 0);
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
    if (rc == 0) {
        no_claims(c, 0);
        atomic_store(&c->view->records, spool_count(c->spool));
        atomic_store(&c->view->bytes, (long long)spool_bytes(c->spool));
    }
    return rc;
}

/* Of a committer whose first thread has ended, or never begun. */
static void end_second(struct committer *c)
{
    if (c->has_second) {
        commit_queue_stop(&c->ends, 0);
        (void)pthread_join(c->second, NULL);
        c->has_second = false;
    }
    commit_teller_stop(c->teller);
    c->teller = NULL;
}

static void committer_free(struct committer *c)
{
    end_second(c);
    pg_close(&c->pg);
    pg_close(&c->second_pg);
    spool_close(c->spool);
    commit_queue_done(&c->ends);
    free(c);
}

int committer_start(const struct config *config, const char *name, struct inflight *inflight,
                    struct spool_view *view, struct committer **ret_committer, struct err *err)
{
    struct committer *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    *c = (struct committer){ .config = config, .name = name, .inflight = inflight, .view = view };
    commit_queue_init(&c->ends, batch_max(config));
    int rc = open_spool(c, err);
    if (rc == 0 && (rc = pg_open(&c->pg, config->postgres_url, err)) == -ERR_UNAVAILABLE) {
        (void)outage_failed(&c->outage, mono_ms(), err);
        rc = 0; /* found when it is there, as Redis */
    }
    rc = rc < 0 ? rc : commit_teller_start(config, inflight, &c->ends, &c->teller, err);
    if (rc == 0 && pg_open(&c->second_pg, config->postgres_url, err) < 0) {
        pg_close(&c->second_pg); /* made when it is needed */
    }
    if (rc == 0 && (errno = pthread_create(&c->second, NULL, second_main, c)) != 0) {
        rc = err_sys(err, "committer: thread");
    }
    c->has_second = rc == 0;
    if (rc == 0 && (errno = pthread_create(&c->thread, NULL, committer_main, c)) != 0) {
        rc = err_sys(err, "committer: thread");
    }
    if (rc < 0) {
        committer_free(c);
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
    commit_queue_stop(&c->ends, wait_ms);
    (void)pthread_join(c->thread, NULL);
    end_second(c);
    int left = c->ends.queued;
    while (c->ends.first) { /* the thread has ended: this one may */
        struct commit_entry *entries[BATCH_MAX];
        int n = commit_queue_take(&c->ends, 0, entries, BATCH_MAX);
        if (!to_spool(c, entries, n)) {
            commit_queue_put_back(&c->ends, entries, n);
            break;
        }
        log_fmt(LOG_INFO, "%d results are in the spool, to be committed after the next start", n);
        left -= n;
    }
    committer_free(c);
    return left;
}
