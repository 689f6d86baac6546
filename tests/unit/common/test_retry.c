#include <criterion/criterion.h>
#include "common/model/retry.h"

static const struct retry_policy policy = { .base_ms = 200, .max_ms = 30000 };

Test(retry, doubles_between_half_and_whole)
{
    int64_t whole = 200;
    for (int attempt = 1; attempt <= 7; attempt++, whole *= 2) {
        for (uint64_t seed = 0; seed < 1000; seed++) {
            int64_t d = retry_backoff_ms(&policy, attempt, seed * 0x9e3779b97f4a7c15u);
            cr_assert(d >= whole / 2 && d <= whole, "attempt %d: %lld", attempt, (long long)d);
        }
    }
}

Test(retry, never_above_max)
{
    for (int attempt = 8; attempt <= 100; attempt++) {
        int64_t d = retry_backoff_ms(&policy, attempt, UINT64_MAX);
        cr_assert(d >= 15000 && d <= 30000);
    }
    const struct retry_policy huge = { .base_ms = INT64_MAX / 2, .max_ms = INT64_MAX / 2 };
    cr_assert_leq(retry_backoff_ms(&huge, 100, 7), INT64_MAX / 2);
}

Test(retry, zero_base_and_base_above_max)
{
    const struct retry_policy none = { .base_ms = 0, .max_ms = 1000 };
    cr_assert_eq(retry_backoff_ms(&none, 5, 99), 0);
    const struct retry_policy above = { .base_ms = 500, .max_ms = 100 };
    cr_assert_leq(retry_backoff_ms(&above, 1, 12345), 100);
    const struct retry_policy one = { .base_ms = 1, .max_ms = 1 };
    cr_assert_leq(retry_backoff_ms(&one, 1, 12345), 1);
}

Test(retry, jitter_spreads_and_is_repeatable)
{
    int64_t a = retry_backoff_ms(&policy, 3, retry_seed("job-a"));
    cr_assert_eq(a, retry_backoff_ms(&policy, 3, retry_seed("job-a")));
    int differ = 0;
    for (char c = 'b'; c <= 'z'; c++) {
        char name[] = { 'j', 'o', 'b', '-', c, 0 };
        differ += retry_backoff_ms(&policy, 3, retry_seed(name)) != a;
    }
    cr_assert_gt(differ, 20);
}
