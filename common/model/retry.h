/* When a job whose attempt failed through our fault may run again: the one rule of scheduler and
 * worker. Pure. */
#pragma once
#include <stdint.h>

struct retry_policy {
    int64_t base_ms, max_ms; /* of config scheduler.retry_*; 0 or more */
};
/* Delay after failed attempt `attempt` (1 or more), milliseconds: base, doubled for each further
 * attempt up to max; of that at least half, the rest by seed, so that jobs which failed together do
 * not come back together. */
int64_t retry_backoff_ms(const struct retry_policy *p, int attempt, uint64_t seed);
/* A seed from a job's id (FNV-1a): different jobs, different delays; the same job, the same. */
uint64_t retry_seed(const char *job_id);
