#include <criterion/criterion.h>
#include "scheduler/clock_settle.h"

#define HOUR_MS ((int64_t)3600000)

static struct clock_settle c;
static int64_t mono = 1000;

/* Looks each second for so long, with a clock so far ahead. The last look's answer. */
static bool looks(int64_t ahead_ms, int64_t for_ms)
{
    bool settled = false;
    for (int64_t end = mono + for_ms; mono < end;) {
        mono += 1000;
        settled = clock_settled(&c, mono - 2, mono + ahead_ms, mono);
    }
    return settled;
}

Test(clock_settle, a_clock_is_believed_when_it_has_stood)
{
    cr_assert_not(looks(50 * HOUR_MS, 1000), "the first look");
    cr_assert_not(looks(50 * HOUR_MS, CLOCK_SETTLE_MS - 1000));
    cr_assert(looks(50 * HOUR_MS, 1000));
    cr_assert_not(looks(51 * HOUR_MS, 1000), "an hour forward");
    cr_assert_not(looks(51 * HOUR_MS, CLOCK_SETTLE_MS - 1000));
    cr_assert(looks(51 * HOUR_MS, 1000), "so that is the time");
}

Test(clock_settle, a_moment_forward_and_back_is_not_believed)
{
    (void)looks(0, 2 * CLOCK_SETTLE_MS);
    for (int i = 0; i < 3; i++) {
        cr_assert_not(looks(HOUR_MS, 5000), "%d", i);
        cr_assert_not(looks(0, 5000), "%d", i);
    }
    cr_assert(looks(0, CLOCK_SETTLE_MS));
}

Test(clock_settle, set_back_it_is_believed_at_once)
{
    (void)looks(HOUR_MS, 2 * CLOCK_SETTLE_MS);
    cr_assert(looks(0, 1000));
}

/* Which look comes late, and when in it the clock was read, is no step. */
Test(clock_settle, slewing_and_slow_looks_are_no_steps)
{
    (void)looks(0, 2 * CLOCK_SETTLE_MS);
    for (int i = 0; i < 100; i++) {
        mono += 1000;
        cr_assert(clock_settled(&c, mono - CLOCK_STEP_MS, mono, mono), "%d", i);
        mono += 1000;
        cr_assert(clock_settled(&c, mono - CLOCK_STEP_MS, mono - CLOCK_STEP_MS, mono), "%d", i);
        mono += 30000;
        cr_assert_not(clock_settled(&c, mono - 20000, mono, mono),
                      "it may have been read any time");
        cr_assert_not(clock_settled(&c, mono - 20000, mono - 20000, mono));
    }
    for (int64_t ahead = 0; ahead < 100000; ahead += CLOCK_STEP_MS) {
        cr_assert(looks(ahead, 1000), "%d ms", (int)ahead);
    }
    cr_assert_not(looks(100000 + 2 * CLOCK_STEP_MS + 2, 1000));
}
