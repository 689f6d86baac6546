/* Sizing policy, apart from the mechanism (pool.c). The arrival rate is an exponentially decaying
 * count with a time constant of RATE_WINDOW_MS: cheap, no history, and a burst is forgotten after a
 * few windows. */
#include "vmpool/policy.h"

#include <assert.h>

#define RATE_WINDOW_MS 4000
#define RATE_STEPS_MAX 64
#define PEAK_STEP_MS 8000 /* a peak loses an eighth in this time */
#define CLONE_US_DEFAULT 150000u
#define CLONE_US_MAX 60000000
#define BACKOFF_FIRST_MS 1000
#define BACKOFF_MAX_MS 60000

/* rate * (1 - 1/8)^(8 * dt / window), in integer steps of an eighth of a window. */
static uint64_t decayed(const struct policy_rate *r, int64_t now_ms)
{
    int64_t steps = now_ms > r->last_ms ? (now_ms - r->last_ms) / (RATE_WINDOW_MS / 8) : 0;
    if (steps >= RATE_STEPS_MAX) {
        return 0;
    }
    uint64_t rate = r->rate_micro;
    for (int64_t i = 0; i < steps; i++) {
        rate -= rate / 8;
    }
    return rate;
}

static int64_t lead_ms(const struct policy_rate *r)
{
    int64_t ms = (int64_t)(r->clone_us ? r->clone_us : CLONE_US_DEFAULT) / 1000;
    return ms > POLICY_LEAD_MS_MIN ? ms : POLICY_LEAD_MS_MIN;
}

static uint64_t peak_milli(const struct policy_rate *r, int64_t now_ms)
{
    int64_t steps = now_ms > r->peak_ms ? (now_ms - r->peak_ms) / PEAK_STEP_MS : 0;
    uint64_t peak = steps < RATE_STEPS_MAX ? r->peak_milli : 0;
    for (int64_t i = 0; i < steps && peak > 0; i++) {
        peak -= peak / 8;
    }
    return peak;
}

static void count_burst(struct policy_rate *r, int64_t now_ms)
{
    if (!r->used || now_ms < r->burst_ms || now_ms - r->burst_ms > lead_ms(r)) {
        r->burst_ms = now_ms;
        r->burst = 0;
    }
    r->burst++;
    uint64_t peak = peak_milli(r, now_ms);
    if ((uint64_t)r->burst * 1000 >= peak || now_ms - r->peak_ms >= PEAK_STEP_MS) {
        r->peak_milli = peak > (uint64_t)r->burst * 1000 ? peak : (uint64_t)r->burst * 1000;
        r->peak_ms = now_ms;
    }
}

/* Largest n with n * n <= v. */
static uint64_t root(uint64_t v)
{
    uint64_t n = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit > 0; bit >>= 1) {
        if ((n + bit) * (n + bit) <= v) {
            n += bit;
        }
    }
    return n;
}

void policy_arrived(struct policy_rate *r, int64_t now_ms)
{
    count_burst(r, now_ms);
    uint64_t rate = decayed(r, now_ms);
    int64_t steps = now_ms > r->last_ms ? (now_ms - r->last_ms) / (RATE_WINDOW_MS / 8) : 0;
    /* keep the remainder of the step, so that many quick arrivals still decay */
    r->last_ms =
        r->used && steps < RATE_STEPS_MAX ? r->last_ms + steps * (RATE_WINDOW_MS / 8) : now_ms;
    r->rate_micro = rate + 1000000ull * 1000 / RATE_WINDOW_MS;
    r->used = true;
}

void policy_cloned(struct policy_rate *r, int64_t elapsed_us)
{
    if (elapsed_us < 1) {
        elapsed_us = 1;
    }
    if (elapsed_us > CLONE_US_MAX) {
        elapsed_us = CLONE_US_MAX;
    }
    uint64_t us = (uint64_t)elapsed_us;
    r->clone_us = r->clone_us ? (r->clone_us * 7 + us) / 8 : us;
}

uint32_t policy_target(const struct policy_rate *r, const struct policy_limits *limits,
                       int64_t now_ms)
{
    uint32_t max = limits->warm_max;
    uint32_t min = limits->warm_min < max ? limits->warm_min : max;
    /* arrivals in one lead time, times 10^6: rate in micro a second, lead in ms */
    uint64_t mean_micro = decayed(r, now_ms) / 1000 * (uint64_t)lead_ms(r);
    uint64_t want = 0;
    if (mean_micro >= 1000000 / 20) { /* less is met by the minimum */
        want = (mean_micro + POLICY_RESERVE * root(mean_micro) * 1000 + 999999) / 1000000;
    }
    uint64_t peak = (peak_milli(r, now_ms) + 999) / 1000;
    want = want > peak ? want : peak;
    if (want < min) {
        return min;
    }
    return want > max ? max : (uint32_t)want;
}

uint32_t policy_cost_mib(uint32_t memory_mib, bool leased)
{
    if (leased) {
        return memory_mib + POLICY_OVERHEAD_MIB;
    }
    return memory_mib + POLICY_OVERHEAD_MIB < POLICY_WARM_MIB ? memory_mib + POLICY_OVERHEAD_MIB
                                                              : POLICY_WARM_MIB;
}

uint32_t policy_frozen_mib(uint32_t memory_mib, uint64_t held_mib)
{
    uint32_t most = policy_cost_mib(memory_mib, true);
    return held_mib < most ? (uint32_t)held_mib : most;
}

bool policy_fits(uint64_t used_mib, uint32_t cost_mib, uint64_t budget_mib)
{
    return used_mib <= budget_mib && cost_mib <= budget_mib - used_mib;
}

int policy_pick(const struct policy_want *wants, int n, uint32_t starting_all, uint32_t starts_max)
{
    int best = -1;
    int64_t best_key = 0;
    if (starting_all >= starts_max) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        const struct policy_want *w = &wants[i];
        int64_t have = (int64_t)w->warm + w->starting;
        int64_t unserved = (int64_t)w->waiting - have;
        int64_t gap = (int64_t)w->target + w->waiting - have;
        if (!w->able || gap <= 0) {
            continue;
        }
        int64_t key = gap + (unserved > 0 ? unserved << 32 : 0);
        if (key > best_key) {
            best_key = key;
            best = i;
        }
    }
    return best;
}

int64_t policy_backoff_ms(uint32_t n)
{
    assert(n >= 1);
    int64_t ms = BACKOFF_FIRST_MS;
    for (uint32_t i = 1; i < n && ms < BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}
