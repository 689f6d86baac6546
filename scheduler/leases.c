/* What was handed out and will not come back by itself: claims whose worker went silent, entries
 * that Redis lost.
 *
 * Silence is measured here, on the monotonic clock: a claim whose delivery number stood still for
 * scheduler.lease_ms is taken over. No clock of another machine, and no wall clock, has a say. One
 * look counts for at most half a lease, so that a scheduler which itself stood still for a minute
 * (SIGSTOP, a suspended host) gives every worker the time to be heard again. A scheduler that has
 * just begun knows no silence: it adds at most one lease to the wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/model/retry.h"
#include "scheduler/scheduler.h"

#define PAGE 1024 /* claims read at a time */
#define READY_IDS_MAX 100000

static int fail_one(struct scheduler *s, const struct expired_claim *e, struct err *err)
{
    const struct config *c = s->config;
    if (id_valid(e->job_id) && e->attempt > 0) {
        struct retry_policy policy = retry_policy_of(c);
        char reason[160];
        (void)snprintf(reason, sizeof reason,
                       "worker %s was lost: its claim was not renewed for %lld ms", e->worker,
                       (long long)c->sched_lease_ms);
        bool dead = false;
        int rc = store_attempt_failed(&s->pg, e->job_id, e->attempt, e->worker, RETRY_WORKER_LOST,
                                      reason, &policy, &dead, err);
        if (rc < 0) {
            return rc;
        }
        char attempt[16];
        (void)snprintf(attempt, sizeof attempt, "%d", e->attempt);
        log_warn("claim expired", "job", e->job_id, "attempt", attempt, "worker", e->worker,
                 "outcome", dead ? "infra_error" : "retry");
        if (dead) {
            const struct finished_event f = { .job_id = e->job_id,
                                              .verdict = verdict_word(VERDICT_INFRA_ERROR) };
            if ((rc = queue_events_finished(&s->queue, &f, 1, err)) < 0) {
                return rc;
            }
        }
    }
    const char *ids[] = { e->stream_id };
    return queue_claim_ack(
        &s->queue, ids, 1,
        err); /* not reached: the claim expires again and the failing is a no-op */
}

/* Stream ids as Redis orders them. */
static int by_stream_id(const char *a, const char *b)
{
    char *end_a, *end_b;
    unsigned long long x = strtoull(a, &end_a, 10), y = strtoull(b, &end_b, 10);
    if (x == y) {
        x = *end_a == '-' ? strtoull(end_a + 1, NULL, 10) : 0;
        y = *end_b == '-' ? strtoull(end_b + 1, NULL, 10) : 0;
    }
    return x < y ? -1 : x > y;
}

/* All claims into w->now, with the silence of those that stand as they stood. */
static int look(struct lease_watch *w, struct queue *q, int64_t passed_ms, struct err *err)
{
    static struct pending_claim page[PAGE];
    int n = 0, old = 0, got;
    const char *after = "";
    do {
        got = queue_pending(q, after, page, PAGE, err);
        if (got < 0) {
            return got;
        }
        for (int i = 0; i < got && n < LEASE_CLAIMS_MAX; i++) {
            struct watched_claim *c = &w->now[n++];
            *c = (struct watched_claim){ .claim = page[i] };
            while (old < w->n &&
                   by_stream_id(w->last[old].claim.stream_id, c->claim.stream_id) < 0) {
                old++;
            }
            const struct watched_claim *o = old < w->n ? &w->last[old] : NULL;
            if (o && strcmp(o->claim.stream_id, c->claim.stream_id) == 0 &&
                strcmp(o->claim.worker, c->claim.worker) == 0 &&
                o->claim.delivery == c->claim.delivery) {
                c->silent_ms = o->silent_ms + passed_ms;
            }
        }
        after = got > 0 ? page[got - 1].stream_id : after;
    } while (got == PAGE && n < LEASE_CLAIMS_MAX);
    return n;
}

int scheduler_expire_claims(struct scheduler *s, struct err *err)
{
    struct lease_watch *w = &s->leases;
    int64_t lease_ms = s->config->sched_lease_ms, now = mono_ms();
    int64_t passed_ms = w->n > 0 ? now - w->looked_ms : 0;
    if (!w->now) {
        w->now = calloc(LEASE_CLAIMS_MAX, sizeof *w->now); /* untouched pages cost nothing */
        w->last = calloc(LEASE_CLAIMS_MAX, sizeof *w->last);
        if (!w->now || !w->last) {
            abort();
        }
    }
    int n = look(w, &s->queue, passed_ms > lease_ms / 2 ? lease_ms / 2 : passed_ms, err);
    if (n < 0) {
        return n;
    }
    struct watched_claim *t = w->last;
    w->last = w->now;
    w->now = t;
    w->n = n;
    w->looked_ms = now;
    for (int i = 0; i < n; i++) {
        struct expired_claim e;
        if (w->last[i].silent_ms < lease_ms) {
            continue;
        }
        int rc = queue_take_over(&s->queue, &w->last[i].claim, &e, err);
        rc = rc > 0 ? fail_one(s, &e, err) : rc;
        if (rc < 0) {
            return rc;
        }
        s->n_expired++;
        s->announced = true; /* learn when it is due */
        s->counts_at_ms = 0; /* and whose it is */
    }
    return 0;
}

void lease_watch_done(struct lease_watch *w)
{
    free(w->now);
    free(w->last);
    *w = (struct lease_watch){ .n = 0 };
}

int scheduler_requeue_lost(struct scheduler *s, struct err *err)
{
    cleanup_free char(*ids)[ID_TEXT_BYTES] =
        calloc(READY_IDS_MAX, ID_TEXT_BYTES); /* untouched pages cost nothing */
    cleanup_free const char **keep = calloc(READY_IDS_MAX, sizeof *keep);
    if (!ids || !keep) {
        abort();
    }
    int n = queue_ready_ids(&s->queue, ids, READY_IDS_MAX, err);
    if (n < 0) {
        return n;
    }
    for (int i = 0; i < n; i++) {
        keep[i] = ids[i];
    }
    int lost = store_requeue_lost(&s->pg, SCHED_LOST_AGE_MS, keep, n, err);
    if (lost < 0) {
        return lost;
    }
    if (lost > 0) {
        char count[16];
        (void)snprintf(count, sizeof count, "%d", lost);
        log_warn("jobs had no entry in Redis and wait again", "jobs", count);
        s->n_requeued += lost;
        s->announced = true;
        s->counts_at_ms = 0;
    }
    return 0;
}
