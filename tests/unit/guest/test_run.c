#include <criterion/criterion.h>

#include "guest/run.h"

Test(run, stack_is_half_of_memory_within_bounds)
{
    const uint64_t mib = 1 << 20;
    cr_assert_eq(run_stack_bytes(0), 8 * mib);
    cr_assert_eq(run_stack_bytes(16 * mib), 8 * mib);
    cr_assert_eq(run_stack_bytes(18 * mib), 9 * mib);
    cr_assert_eq(run_stack_bytes(64 * mib), 32 * mib);
    cr_assert_eq(run_stack_bytes(128 * mib), 64 * mib);
    cr_assert_eq(run_stack_bytes(130 * mib), 64 * mib);
    cr_assert_eq(run_stack_bytes(UINT64_MAX), 64 * mib);
}
