#include <criterion/criterion.h>

#include "vmpool/policy.h"

static const struct policy_limits limits = { .warm_min = 2, .warm_max = 16 };

Test(policy, quiet_holds_the_minimum)
{
    struct policy_rate r = { 0 };
    cr_assert_eq(policy_target(&r, &limits, 1000), 2);
    policy_arrived(&r, 1000);
    cr_assert_eq(policy_target(&r, &limits, 1000), 2);
}

Test(policy, target_follows_the_rate_between_the_limits)
{
    struct policy_rate r = { 0 };
    int64_t now = 50000;
    policy_cloned(&r, 200000);
    for (int i = 0; i < 400; i++, now += 50) { /* 20 a second: 4 arrive during a clone, and a
                                                  reserve of three times the root of that */
        policy_arrived(&r, now);
    }
    uint32_t target = policy_target(&r, &limits, now);
    cr_assert(target >= 9 && target <= 11, "target %u", target);
    for (int i = 0; i < 4000; i++, now += 5) {
        policy_arrived(&r, now);
    }
    cr_assert_eq(policy_target(&r, &limits, now), 16);
    cr_assert_eq(policy_target(&r, &limits, now + 240000), 2, "a burst is forgotten");
    cr_assert_eq(policy_target(&r, &limits, now - 1000000), 16,
                 "a clock that steps back is no trouble");
}

Test(policy, limits_that_contradict)
{
    struct policy_rate r = { 0 };
    struct policy_limits odd = { .warm_min = 5, .warm_max = 3 };
    cr_assert_eq(policy_target(&r, &odd, 0), 3);
    odd = (struct policy_limits){ 0 };
    cr_assert_eq(policy_target(&r, &odd, 0), 0);
}

Test(policy, clone_time_is_smoothed_and_bounded)
{
    struct policy_rate r = { 0 };
    policy_cloned(&r, -5);
    cr_assert_eq(r.clone_us, 1);
    r.clone_us = 0;
    policy_cloned(&r, INT64_MAX);
    cr_assert_eq(r.clone_us, 60000000);
    policy_cloned(&r, 0);
    cr_assert_lt(r.clone_us, 60000000);
}

Test(policy, budget)
{
    cr_assert_eq(policy_cost_mib(512, true), 512 + POLICY_OVERHEAD_MIB);
    cr_assert_eq(policy_cost_mib(512, false), POLICY_WARM_MIB);
    cr_assert_eq(policy_cost_mib(8, false), 8 + POLICY_OVERHEAD_MIB,
                 "never more than it could touch");
    cr_assert_eq(policy_frozen_mib(512, 40), 40, "what it holds");
    cr_assert_eq(policy_frozen_mib(512, UINT32_MAX), 512 + POLICY_OVERHEAD_MIB,
                 "at most all of it");
    cr_assert(policy_fits(0, 100, 100));
    cr_assert(!policy_fits(1, 100, 100), "one above");
    cr_assert(policy_fits(100, 0, 100));
    cr_assert(!policy_fits(101, 0, 100));
    cr_assert(!policy_fits(UINT64_MAX, UINT32_MAX, 100), "no overflow");
}

Test(policy, pick_serves_waiters_before_pools)
{
    struct policy_want w[] = {
        { .warm = 0, .starting = 0, .target = 16, .able = true },
        { .waiting = 1, .able = true },
        { .waiting = 9, .able = false },
    };
    cr_assert_eq(policy_pick(w, 3, 0, 2), 1);
    w[1].starting = 1; /* under way: the pool's turn */
    cr_assert_eq(policy_pick(w, 3, 1, 2), 0);
    cr_assert_eq(policy_pick(w, 3, 2, 2), -1, "at the maximum of starts");
    w[0].warm = 16;
    cr_assert_eq(policy_pick(w, 3, 1, 2), -1, "nothing is wanted");
    cr_assert_eq(policy_pick(w, 0, 0, 2), -1);
}

Test(policy, backoff_doubles_to_a_minute)
{
    cr_assert_eq(policy_backoff_ms(1), 1000);
    cr_assert_eq(policy_backoff_ms(2), 2000);
    cr_assert_eq(policy_backoff_ms(6), 32000);
    cr_assert_eq(policy_backoff_ms(7), 60000);
    cr_assert_eq(policy_backoff_ms(UINT32_MAX), 60000);
}
