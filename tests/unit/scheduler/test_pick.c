#include <criterion/criterion.h>
#include "scheduler/pick.h"

static int room(int64_t slots, int64_t claimed, int64_t unclaimed, int64_t mean_us)
{
    const struct pick_input in = { .slots = slots,
                                   .ready_depth = 4,
                                   .unclaimed = unclaimed,
                                   .claimed = claimed,
                                   .mean_us = mean_us };
    return pick_room(&in);
}

Test(pick, one_for_each_idle_slot_and_one_to_follow)
{
    cr_assert_eq(room(2, 0, 0, 1000000), 3);
    cr_assert_eq(room(2, 1, 0, 1000000), 2);
    cr_assert_eq(room(2, 2, 0, 1000000), 1);
    cr_assert_eq(room(2, 2, 1, 1000000), 0);
    cr_assert_eq(room(2, 5, 100, 1000000), 0);
}

Test(pick, short_jobs_are_kept_ready_in_advance_up_to_the_depth)
{
    cr_assert_eq(room(10, 10, 0, PICK_AHEAD_MS * 1000), 10);
    cr_assert_eq(room(10, 10, 0, PICK_AHEAD_MS * 1000 / 2), 20);
    cr_assert_eq(room(10, 10, 0, 1), 40);
    cr_assert_eq(room(10, 10, 39, 1), 1);
}

Test(pick, no_worker_alive_counts_as_two_slots)
{
    cr_assert_eq(room(0, 0, 0, 1000000), PICK_SLOTS_WHEN_NONE + 1);
    cr_assert_eq(room(0, 0, 3, 1000000), 0);
}

Test(pick, one_turn_has_a_maximum)
{
    cr_assert_eq(room(1024, 0, 0, 1), PICK_TURN_MAX);
    cr_assert_eq(room(PICK_TURN_MAX, 0, 0, 1000000), PICK_TURN_MAX);
}
