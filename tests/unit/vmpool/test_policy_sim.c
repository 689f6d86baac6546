/* How often a lease finds a warm sandbox: the real policy in a simulated pool, on a clock of its
 * own, under arrivals of several kinds. Seeded. BROOD_CURVES=1 prints the table of
 * docs/performance.md. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "vmpool/policy.h"

#define STARTS_MAX 16
#define LIMIT_WARM_MAX 16

struct run {
    const char *name;
    double rate;    /* arrivals a second, mean */
    int burst;      /* that many at once; 1: one by one (Poisson) */
    double quiet_s; /* a cycle: so long at `rate`, ... */
    double pause_s; /* ... then so long nothing; 0: without pauses */
    int64_t clone_us;
    int starts_max;
};

struct outcome {
    double hit, warm_mean; /* share of leases served at once; sandboxes held warm, mean over time */
    int leases;
};

static uint64_t rng;

static double uniform(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (double)(rng >> 11) / 9007199254740992.0;
}

/* The next arrival behind `at`; busy and quiet phases alternate. */
static double next_arrival(const struct run *r, double at)
{
    double cycle = r->quiet_s + r->pause_s, gap = -log(1 - uniform()) * r->burst / r->rate;
    at += gap;
    if (r->pause_s > 0 && fmod(at, cycle) > r->quiet_s) {
        at += cycle - fmod(at, cycle);
    }
    return at;
}

static struct outcome simulate(const struct run *r, double seconds, uint64_t seed)
{
    const struct policy_limits limits = { .warm_min = 2, .warm_max = LIMIT_WARM_MAX };
    struct policy_rate rate = { 0 };
    double ends[STARTS_MAX], now = 0, area = 0, arrival, measure_from = seconds / 10;
    int warm = 0, starting = 0, waiting = 0, hits = 0, leases = 0;
    rng = seed * 0x9e3779b97f4a7c15u + 1;
    arrival = next_arrival(r, 0);
    while (now < seconds) {
        int64_t now_ms = (int64_t)(now * 1000);
        int target = (int)policy_target(&rate, &limits, now_ms);
        while (starting < r->starts_max && warm + starting < target + waiting) {
            ends[starting++] = now + (double)r->clone_us / 1e6 * (0.7 + 0.6 * uniform());
        }
        while (warm > target && waiting == 0) { /* as pool.c does with those that nobody needs */
            warm--;
        }
        int first = -1;
        for (int i = 0; i < starting; i++) {
            first = first < 0 || ends[i] < ends[first] ? i : first;
        }
        double next = first >= 0 && ends[first] < arrival ? ends[first] : arrival;
        next = next < now + 0.1 ? next : now + 0.1; /* the pool's own timer */
        area += now >= measure_from ? warm * (next - now) : 0;
        now = next;
        if (first >= 0 && now >= ends[first]) {
            policy_cloned(&rate, r->clone_us);
            ends[first] = ends[--starting];
            waiting > 0 ? waiting-- : warm++;
        } else if (now >= arrival) {
            for (int i = 0; i < r->burst; i++) {
                policy_arrived(&rate, (int64_t)(now * 1000));
                bool hit = warm > 0;
                hit ? warm-- : waiting++;
                if (now >= measure_from) {
                    leases++;
                    hits += hit;
                }
            }
            arrival = next_arrival(r, now);
        }
    }
    return (struct outcome){ .hit = (double)hits / leases,
                             .warm_mean = area / (seconds - measure_from),
                             .leases = leases };
}

static struct outcome check(const struct run *r, double at_least)
{
    struct outcome sum = { 0 };
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct outcome o = simulate(r, 600, seed);
        cr_assert_gt(o.leases, 100, "%s", r->name);
        cr_assert_geq(o.hit, at_least, "%s, seed %d: %.4f", r->name, (int)seed, o.hit);
        sum.hit += o.hit / 3;
        sum.warm_mean += o.warm_mean / 3;
    }
    if (getenv("BROOD_CURVES")) {
        (void)fprintf(stderr, "| %s | %.1f | %d | %lld | %.2f | %.1f |\n", r->name, r->rate,
                      r->burst, (long long)r->clone_us / 1000, 100 * sum.hit, sum.warm_mean);
    }
    return sum;
}

Test(policy_sim, poisson_arrivals_find_a_warm_sandbox)
{
    static const double rates[] = { 1, 5, 10, 20, 40 };
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct run seed = { "Poisson", rates[i], 1, 0, 0, 30000, 2 };
        (void)check(&seed, 0.985);
        if (rates[i] <= 10) {
            struct run load = { "Poisson", rates[i], 1, 0, 0, 150000, 4 };
            (void)check(&load, 0.98);
        }
    }
}

Test(policy_sim, bursts_are_met_by_what_earlier_bursts_took)
{
    struct run few = { "bursts", 1.6, 8, 0, 0, 150000, 4 };
    (void)check(&few, 0.85);
    struct run many = { "bursts", 4, 4, 0, 0, 30000, 2 };
    (void)check(&many, 0.95);
    struct run more = { "bursts", 2, 16, 0, 0, 30000, 2 };
    (void)check(&more, 0.88);
}

Test(policy_sim, on_and_off_costs_the_first_of_each_phase_only)
{
    struct run r = { "10 s on, 20 s off", 20, 1, 10, 20, 30000, 2 };
    (void)check(&r, 0.98);
    struct run slow = { "10 s on, 20 s off", 8, 1, 10, 20, 150000, 4 };
    (void)check(&slow, 0.97);
}

/* Nothing is held for what went away: the price of a burst ends. */
Test(policy_sim, what_nobody_asks_for_is_let_go)
{
    const struct policy_limits limits = { .warm_min = 2, .warm_max = LIMIT_WARM_MAX };
    struct policy_rate r = { 0 };
    for (int i = 0; i < 12; i++) {
        policy_arrived(&r, 1000);
    }
    cr_assert_eq(policy_target(&r, &limits, 1001), 12);
    cr_assert_lt(policy_target(&r, &limits, 61000), 8);
    cr_assert_eq(policy_target(&r, &limits, 1000 + 180000), 2);
}
