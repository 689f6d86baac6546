#include <criterion/criterion.h>
#include <string.h>

#include "common/model/job.h"
#include "common/model/usage.h"

Test(words, verdicts_round_trip)
{
    for (int v = 0; v < VERDICT_COUNT; v++) {
        cr_assert_eq(verdict_parse(verdict_word((enum verdict)v)), v);
        for (int w = 0; w < v; w++) {
            cr_assert_str_neq(verdict_word((enum verdict)v), verdict_word((enum verdict)w));
        }
    }
    cr_assert_eq(verdict_parse("Accepted"), -1);
    cr_assert_eq(verdict_parse(""), -1);
    cr_assert_str_eq(verdict_word(VERDICT_WALL_TIME_LIMIT), "wall_time_limit");
}

Test(words, faults_of_ours_are_never_billed)
{
    cr_assert(!verdict_billed(VERDICT_INFRA_ERROR));
    cr_assert(!verdict_billed(VERDICT_JUDGE_ERROR));
    cr_assert(!verdict_billed(VERDICT_SKIPPED));
    cr_assert(!verdict_billed(VERDICT_NONE));
    cr_assert(verdict_billed(VERDICT_ACCEPTED));
    cr_assert(verdict_billed(VERDICT_COMPILE_ERROR));
    cr_assert(!verdict_billed(VERDICT_CANCELLED));
}

Test(words, states_round_trip)
{
    int terminal = 0;
    for (int s = 0; s < STATE_COUNT; s++) {
        cr_assert_eq(job_state_parse(job_state_word((enum job_state)s)), s);
        terminal += job_state_terminal((enum job_state)s);
    }
    cr_assert_eq(terminal, 4);
    cr_assert(!job_state_terminal(STATE_RETRYING));
    cr_assert(job_state_terminal(STATE_DEAD));
    cr_assert_eq(job_state_parse("done"), -1);
}

Test(words, meters)
{
    cr_assert_str_eq(meter_word(METER_VCPU_SECONDS), "vcpu_seconds");
    cr_assert_str_eq(meter_word(METER_GIB_SECONDS), "gib_seconds");
}
