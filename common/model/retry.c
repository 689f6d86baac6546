#include "common/model/retry.h"

#include <assert.h>

int64_t retry_backoff_ms(const struct retry_policy *p, int attempt, uint64_t seed)
{
    assert(attempt > 0 && p->base_ms >= 0 && p->max_ms >= 0);
    int64_t delay = p->base_ms;
    for (int i = 1; i < attempt && delay < p->max_ms; i++) {
        delay *= 2; /* below max before, so below 2 x max: no overflow for any configured value */
    }
    delay = delay > p->max_ms ? p->max_ms : delay;
    int64_t half = delay / 2;
    return delay - half + (int64_t)(seed % (uint64_t)(half + 1));
}

uint64_t retry_seed(const char *job_id)
{
    uint64_t h = 14695981039346656037u;
    for (const char *c = job_id; *c; c++) {
        h = (h ^ (uint8_t)*c) * 1099511628211u;
    }
    return h ^ (h >> 32);
}
