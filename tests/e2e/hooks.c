/* Linked into every end-to-end program but test_cases (which has its own): brood runs before the
 * first test, and is stopped after the last when this program started it. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include "tests/e2e/cli.h"

ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    (void)set;
    e2e_start();
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    (void)stats;
    e2e_stop_if_started();
}
