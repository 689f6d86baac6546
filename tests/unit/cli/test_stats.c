#include <criterion/criterion.h>
#include <stdio.h>

#include "cli/stats.h"

Test(stats, none_is_zero)
{
    struct samples s = { 0 };
    cr_assert_eq(samples_percentile(&s, 50), 0);
    samples_done(&s);
}

Test(stats, nearest_rank)
{
    struct samples s = { 0 };
    for (int i = 100; i >= 1; i--) {
        samples_add(&s, i);
    }
    cr_assert_eq(samples_percentile(&s, 50), 50);
    cr_assert_eq(samples_percentile(&s, 95), 95);
    cr_assert_eq(samples_percentile(&s, 100), 100);
    cr_assert_eq(samples_percentile(&s, 1), 1);
    samples_done(&s);
}

Test(stats, one_value_is_every_percentile)
{
    struct samples s = { 0 };
    samples_add(&s, 7);
    cr_assert_eq(samples_percentile(&s, 1), 7);
    cr_assert_eq(samples_percentile(&s, 95), 7);
    samples_done(&s);
}

Test(stats, grows)
{
    struct samples s = { 0 };
    for (int i = 0; i < 1000; i++) {
        samples_add(&s, 999 - i);
    }
    cr_assert_eq(s.n, 1000);
    cr_assert_eq(samples_percentile(&s, 50), 499);
    samples_done(&s);
}
