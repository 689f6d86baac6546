#include <criterion/criterion.h>
#include "common/model/admit.h"

static struct admit ask(int64_t queued_max, int64_t rate, int64_t waiting, int64_t ahead_us,
                        int64_t n)
{
    struct admit_terms t = { .queued_max = queued_max, .per_minute_max = rate };
    struct admit_state s = { .waiting = waiting, .ahead_us = ahead_us };
    return admit(&t, &s, n);
}

Test(admit, without_caps_everything_comes_in)
{
    struct admit a = ask(0, 0, 1000000, 0, 10000);
    cr_assert_eq(a.cap, ADMIT_ALL);
    cr_assert_eq(a.n, 10000);
    cr_assert_eq(a.wait_ms, 0);
}

Test(admit, the_queue_takes_its_maximum_and_not_one_more)
{
    cr_assert_eq(ask(100, 0, 90, 0, 10).cap, ADMIT_ALL);
    struct admit a = ask(100, 0, 90, 0, 11);
    cr_assert_eq(a.cap, ADMIT_QUEUED);
    cr_assert_eq(a.n, 10);
    cr_assert_eq(a.wait_ms, ADMIT_WAIT_MS_UNKNOWN);
    cr_assert_eq(ask(100, 0, 250, 0, 1).n, 0);
}

Test(admit, come_back_when_the_queue_has_room_at_its_pace)
{
    struct admit_terms t = { .queued_max = 100 };
    struct admit_state s = { .waiting = 100, .done_per_minute = 60 };
    cr_assert_eq(admit(&t, &s, 10).wait_ms, 10000);
    s.done_per_minute = 1;
    cr_assert_eq(admit(&t, &s, 50).wait_ms, ADMIT_WAIT_MS_MAX);
    s.done_per_minute = 1000000;
    cr_assert_eq(admit(&t, &s, 1).wait_ms, ADMIT_WAIT_MS_MIN);
}

Test(admit, a_rate_lets_a_minutes_worth_in_at_once_and_then_its_pace)
{
    struct admit_terms t = { .per_minute_max = 60 };
    struct admit_state s = { 0 };
    cr_assert_eq(admit(&t, &s, 60).cap, ADMIT_ALL);
    s.ahead_us = admit_ahead_us(&t, &s, 60);
    cr_assert_eq(s.ahead_us, 60000000);
    struct admit a = admit(&t, &s, 1);
    cr_assert_eq(a.cap, ADMIT_RATE);
    cr_assert_eq(a.n, 0);
    cr_assert_eq(a.wait_ms, 1000, "one job a second");
    s.ahead_us -= 10000000; /* ten seconds later */
    a = admit(&t, &s, 15);
    cr_assert_eq(a.n, 10);
    cr_assert_eq(a.wait_ms, 5000);
}

Test(admit, more_than_a_minutes_worth_comes_in_when_nothing_is_owed_and_pays_afterwards)
{
    struct admit_terms t = { .per_minute_max = 60 };
    struct admit_state s = { 0 };
    cr_assert_eq(admit(&t, &s, 600).cap, ADMIT_ALL);
    s.ahead_us = admit_ahead_us(&t, &s, 600);
    cr_assert_eq(s.ahead_us, 600000000);
    cr_assert_eq(admit(&t, &s, 1).n, 0);
    cr_assert_eq(admit(&t, &s, 1).wait_ms, ADMIT_WAIT_MS_MAX);
    s.ahead_us = 1000;
    struct admit a = admit(&t, &s, 600);
    cr_assert_eq(a.cap, ADMIT_RATE, "something is owed");
    cr_assert_eq(a.wait_ms, ADMIT_WAIT_MS_MIN);
}
