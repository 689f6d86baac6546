#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "common/model/retry.h"

static const struct retry_policy policy = {
    .base_ms = 1000, .max_ms = 30000, .attempts_max = 6, .waits_max = 8
};

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Every delay between three quarters and the whole of what its number says. */
static void check_growth(enum retry_cause cause, int growth, int n_max)
{
    struct retry_policy p = policy;
    p.attempts_max = p.waits_max = 1000;
    int64_t whole = p.base_ms;
    for (int n = 1; n <= n_max; n++, whole = min_of(whole * growth, p.max_ms)) {
        for (uint64_t seed = 0; seed < 1000; seed++) {
            int faults = cause == RETRY_NO_SANDBOX ? 0 : n - 1;
            struct retry_plan plan = retry_plan(&p, cause, n, faults, seed * 0x9e3779b97f4a7c15u);
            cr_assert_not(plan.dead);
            cr_assert_eq(plan.count, n);
            cr_assert(plan.delay_ms >= whole - whole / 4 && plan.delay_ms <= whole, "%d: %lld", n,
                      (long long)plan.delay_ms);
        }
    }
}

Test(retry, waits_double_and_faults_quadruple_up_to_the_maximum)
{
    check_growth(RETRY_NO_SANDBOX, 2, 100);
    check_growth(RETRY_BROKEN, 4, 100);
    check_growth(RETRY_WORKER_LOST, 4, 100);
}

Test(retry, any_configured_value)
{
    const struct retry_policy huge = {
        .base_ms = INT64_MAX / 2, .max_ms = INT64_MAX / 2, .attempts_max = 1000, .waits_max = 1000
    };
    cr_assert_leq(retry_plan(&huge, RETRY_BROKEN, 100, 99, 7).delay_ms, INT64_MAX / 2);
    const struct retry_policy none = {
        .base_ms = 0, .max_ms = 1000, .attempts_max = 9, .waits_max = 9
    };
    cr_assert_eq(retry_plan(&none, RETRY_NO_SANDBOX, 5, 0, 99).delay_ms, 0);
    const struct retry_policy above = {
        .base_ms = 500, .max_ms = 100, .attempts_max = 9, .waits_max = 9
    };
    cr_assert_leq(retry_plan(&above, RETRY_NO_SANDBOX, 1, 0, 12345).delay_ms, 100);
    const struct retry_policy one = {
        .base_ms = 1, .max_ms = 1, .attempts_max = 1, .waits_max = 1
    };
    cr_assert(retry_plan(&one, RETRY_NO_SANDBOX, 1, 0, 12345).dead);
    cr_assert(retry_plan(&one, RETRY_BROKEN, 1, 0, 12345).dead);
}

Test(retry, each_count_ends_by_its_own_maximum)
{
    cr_assert_not(retry_plan(&policy, RETRY_BROKEN, 5, 4, 1).dead);
    cr_assert(retry_plan(&policy, RETRY_BROKEN, 6, 5, 1).dead);
    cr_assert_not(retry_plan(&policy, RETRY_NO_SANDBOX, 7, 0, 1).dead);
    cr_assert(retry_plan(&policy, RETRY_NO_SANDBOX, 8, 0, 1).dead);
    /* seven waits behind it: the first fault is the first, and a wait after it the eighth */
    struct retry_plan fault = retry_plan(&policy, RETRY_WORKER_LOST, 8, 0, 1);
    cr_assert_not(fault.dead);
    cr_assert_eq(fault.count, 1);
    cr_assert_eq(fault.max, 6);
    struct retry_plan wait = retry_plan(&policy, RETRY_NO_SANDBOX, 9, 1, 1);
    cr_assert(wait.dead);
    cr_assert_eq(wait.count, 8);
}

Test(retry, jitter_spreads_and_is_repeatable)
{
    int64_t a = retry_plan(&policy, RETRY_NO_SANDBOX, 4, 0, retry_seed("job-a")).delay_ms;
    cr_assert_eq(a, retry_plan(&policy, RETRY_NO_SANDBOX, 4, 0, retry_seed("job-a")).delay_ms);
    int differ = 0;
    for (char c = 'b'; c <= 'z'; c++) {
        char name[] = { 'j', 'o', 'b', '-', c, 0 };
        differ += retry_plan(&policy, RETRY_NO_SANDBOX, 4, 0, retry_seed(name)).delay_ms != a;
    }
    cr_assert_gt(differ, 20);
}

/* A life of one job on a clock that the test turns: each try fails within took_ms while the trouble
 * lasts. Returns when it ended, and *ret_dead how. */
static int64_t live(const struct retry_policy *p, enum retry_cause cause, int64_t trouble_ms,
                    int64_t took_ms, uint64_t seed, bool *ret_dead)
{
    int64_t now_ms = 0;
    for (int attempt = 1;; attempt++) {
        if (now_ms >= trouble_ms) {
            *ret_dead = false;
            return now_ms;
        }
        now_ms += took_ms;
        int faults = cause == RETRY_NO_SANDBOX ? 0 : attempt - 1;
        struct retry_plan plan = retry_plan(p, cause, attempt, faults, seed);
        if (plan.dead) {
            *ret_dead = true;
            return now_ms;
        }
        now_ms += plan.delay_ms;
    }
}

/* What is configured when nothing is: a minute of trouble costs no job, whatever fails and however
 * soon, and trouble without end does not last. */
Test(retry, the_defaults_outlast_a_minute_and_end)
{
    static struct config c;
    struct err err;
    char home[] = "/tmp/brood-test-retry-XXXXXX";
    cr_assert(mkdtemp(home));
    cr_assert_eq(config_load(&c, home, NULL, &err), 0, "%s", err.text);
    (void)rmdir(home);
    struct retry_policy p = retry_policy_of(&c);
    static const enum retry_cause causes[] = { RETRY_NO_SANDBOX, RETRY_BROKEN, RETRY_WORKER_LOST };
    for (int i = 0; i < 3; i++) {
        for (int job = 0; job < 1000; job++) {
            char name[16];
            bool dead;
            (void)snprintf(name, sizeof name, "job-%d", job);
            uint64_t seed = retry_seed(name);
            int64_t end_ms = live(&p, causes[i], 60000, 0, seed, &dead);
            cr_assert_not(dead, "cause %d: given up after %lld ms", i, (long long)end_ms);
            cr_assert_leq(end_ms, 60000 + c.sched_retry_max_ms);
            end_ms = live(&p, causes[i], INT64_MAX, 0, seed, &dead);
            cr_assert(dead);
            cr_assert_leq(end_ms, 120000);
        }
    }
}
