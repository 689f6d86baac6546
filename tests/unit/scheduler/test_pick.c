#include <criterion/criterion.h>
#include "scheduler/pick.h"

static int room(int64_t slots, int64_t depth, int64_t unclaimed)
{
    const struct pick_input in = { .slots = slots, .ready_depth = depth, .unclaimed = unclaimed };
    return pick_room(&in);
}

Test(pick, fills_up_to_depth_for_each_slot)
{
    cr_assert_eq(room(2, 4, 0), 8);
    cr_assert_eq(room(2, 4, 5), 3);
    cr_assert_eq(room(2, 4, 8), 0);
    cr_assert_eq(room(2, 4, 100), 0);
    cr_assert_eq(room(1, 1, 0), 1);
}

Test(pick, no_worker_alive_counts_as_two_slots)
{
    cr_assert_eq(room(0, 4, 0), PICK_SLOTS_WHEN_NONE * 4);
    cr_assert_eq(room(0, 1, PICK_SLOTS_WHEN_NONE), 0);
}

Test(pick, one_turn_has_a_maximum)
{
    cr_assert_eq(room(1024, 10000, 0), PICK_TURN_MAX);
    cr_assert_eq(room(PICK_TURN_MAX, 1, 0), PICK_TURN_MAX);
    cr_assert_eq(room(PICK_TURN_MAX + 1, 1, 0), PICK_TURN_MAX);
    cr_assert_eq(room(PICK_TURN_MAX + 1, 1, 2), PICK_TURN_MAX - 1);
}

Test(pick, intake_count_follows_the_weight)
{
    cr_assert_eq(pick_intake_count(0, 64 << 20, 512), 512);
    cr_assert_eq(pick_intake_count(100, 64 << 20, 512), 512);
    cr_assert_eq(pick_intake_count(1 << 20, 64 << 20, 512), 64);
    cr_assert_eq(pick_intake_count(24 << 20, 64 << 20, 512), 2);
    cr_assert_eq(pick_intake_count(INT64_MAX, 64 << 20, 512), 1);
}
