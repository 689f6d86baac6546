/* How many sandboxes to hold warm, what may be started next, and what fits in memory. Pure: time is
 * an argument. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Arrival rate and cost of a clone, smoothed. Embed one in every snapshot; zero-initialised is
 * "nothing seen". */
struct policy_rate {
    int64_t last_ms;     /* last arrival or decay */
    uint64_t rate_micro; /* arrivals a second, times 10^6 */
    uint64_t clone_us;   /* smoothed time from start to ready of a clone, 0 = not measured */
    bool used;           /* asked for at least once */
    int64_t burst_ms;    /* when the count below began */
    uint32_t burst;      /* arrivals since then, within one lead time */
    uint64_t peak_milli; /* largest such count lately, decaying, times 1000 */
    int64_t peak_ms;     /* last decay of it */
};

struct policy_limits {
    uint32_t warm_min, warm_max; /* sandboxes */
};

/* One lease request came in at now_ms. */
void policy_arrived(struct policy_rate *r, int64_t now_ms);
/* A clone took elapsed_us from its start until it was ready. */
void policy_cloned(struct policy_rate *r, int64_t elapsed_us);
/* Warm sandboxes to hold at now_ms, between the limits. What is taken during one lead time (that of
 * a clone, and until the pool has noticed) has to be there already: its mean m, and a reserve of
 * POLICY_RESERVE times the root of m, since arrivals that know nothing of each other spread like
 * that (Poisson; the rule is the square-root staffing of call centres). And as many as came within
 * one lead time lately, for those that come in bursts: a peak is forgotten over a minute or two. */
#define POLICY_RESERVE 3
#define POLICY_LEAD_MS_MIN 20
uint32_t policy_target(const struct policy_rate *r, const struct policy_limits *limits,
                       int64_t now_ms);

/* Memory of one sandbox in MiB: a leased one may touch all of its RAM, a warm or starting one only
 * what was measured. */
#define POLICY_OVERHEAD_MIB 32u /* QEMU itself: heap, translation buffer, device state */
#define POLICY_WARM_MIB 48u
#define POLICY_SEED_MIB 96u /* a seed has touched more: translated code, the guest's page cache */
uint32_t policy_cost_mib(uint32_t memory_mib, bool leased);
/* One that is stopped for good takes what it holds (held_mib), and nothing more. */
uint32_t policy_frozen_mib(uint32_t memory_mib, uint64_t held_mib);
/* May something of cost_mib more be taken when used_mib of budget_mib are in use? */
bool policy_fits(uint64_t used_mib, uint32_t cost_mib, uint64_t budget_mib);

/* What one snapshot wants; the chooser gives the next start to the neediest. */
struct policy_want {
    uint32_t waiting; /* leases that wait for it */
    uint32_t warm, starting, target;
    bool able; /* its snapshot is ready and not refused */
};
/* Index of the snapshot that gets the next start, or -1. Waiting leases come first, then the
 * largest gap. */
int policy_pick(const struct policy_want *wants, int n, uint32_t starting_all, uint32_t starts_max);

/* Milliseconds to leave a snapshot alone after its n-th refusal in a row (n >= 1): 1 s doubling to
 * 60 s. */
int64_t policy_backoff_ms(uint32_t n);
