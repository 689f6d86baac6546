/* What was handed out and will not come back by itself: claims whose worker went silent, entries
 * that Redis lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/model/retry.h"
#include "scheduler/scheduler.h"

#define EXPIRED_TURN_MAX 64
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

int scheduler_expire_claims(struct scheduler *s, struct err *err)
{
    struct expired_claim rows[EXPIRED_TURN_MAX];
    int n = queue_expired(&s->queue, s->config->sched_lease_ms, rows, EXPIRED_TURN_MAX, err);
    for (int i = 0; i < n; i++) {
        int rc = fail_one(s, &rows[i], err);
        if (rc < 0) {
            return rc;
        }
        s->n_expired++;
        s->announced = true; /* learn when it is due */
    }
    return n < 0 ? n : 0;
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
    }
    return 0;
}
