#include "common/model/retry.h"

#include <assert.h>

#define GROWTH_WAIT 2
#define GROWTH_FAULT 4

struct retry_policy retry_policy_of(const struct config *c)
{
    return (struct retry_policy){ .base_ms = c->sched_retry_base_ms,
                                  .max_ms = c->sched_retry_max_ms,
                                  .attempts_max = (int)c->sched_infra_attempts_max,
                                  .waits_max = (int)c->sched_infra_waits_max };
}

/* Delay after the n-th of its kind, from 1. */
static int64_t backoff_ms(const struct retry_policy *p, int n, int growth, uint64_t seed)
{
    int64_t delay = p->base_ms;
    for (int i = 1; i < n && delay < p->max_ms; i++) {
        /* no overflow for any configured value */
        delay = delay > p->max_ms / growth ? p->max_ms : delay * growth;
    }
    delay = delay > p->max_ms ? p->max_ms : delay;
    int64_t spread = delay / 4;
    return delay - spread + (int64_t)(seed % (uint64_t)(spread + 1));
}

struct retry_plan retry_plan(const struct retry_policy *p, enum retry_cause cause, int attempt,
                             int faults, uint64_t seed)
{
    assert(attempt > 0 && faults >= 0 && faults < attempt);
    assert(p->base_ms >= 0 && p->max_ms >= 0 && p->attempts_max > 0 && p->waits_max > 0);
    if (cause == RETRY_GIVEN_BACK) {
        return (struct retry_plan){ .dead = false };
    }
    bool wait = cause == RETRY_NO_SANDBOX;
    struct retry_plan plan = { .count = wait ? attempt - faults : faults + 1,
                               .max = wait ? p->waits_max : p->attempts_max };
    plan.dead = plan.count >= plan.max;
    if (!plan.dead) {
        plan.delay_ms = backoff_ms(p, plan.count, wait ? GROWTH_WAIT : GROWTH_FAULT, seed);
    }
    return plan;
}

uint64_t retry_seed(const char *job_id)
{
    uint64_t h = 14695981039346656037u;
    for (const char *c = job_id; *c; c++) {
        h = (h ^ (uint8_t)*c) * 1099511628211u;
    }
    return h ^ (h >> 32);
}
