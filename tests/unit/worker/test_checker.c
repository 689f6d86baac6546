/* What a checker's exit code says, by protocol (docs/verdicts.md, "Checkers"). */
#include <criterion/criterion.h>

#include "worker/checker.h"

Test(checker, exit_codes)
{
    for (int code = 0; code <= 255; code++) {
        enum verdict kattis = code == 42   ? VERDICT_ACCEPTED
                              : code == 43 ? VERDICT_WRONG_ANSWER
                                           : VERDICT_JUDGE_ERROR;
        enum verdict testlib = code == 0 ? VERDICT_ACCEPTED
                               : code == 1 || code == 2 || code == 4 || code == 8
                                   ? VERDICT_WRONG_ANSWER
                                   : VERDICT_JUDGE_ERROR;
        cr_assert_eq(checker_verdict(CHECKER_KATTIS, code), kattis, "kattis %d", code);
        cr_assert_eq(checker_verdict(CHECKER_TESTLIB, code), testlib, "testlib %d", code);
    }
}

Test(checker, is_asked_only_about_what_is_well_so_far)
{
    struct job_checker c = { .protocol = CHECKER_KATTIS };
    struct job_expect with = { .checker = &c }, without = { 0 };
    struct tree_node node = { .leaf = true, .expect = &with };
    struct job_result r = { .verdict = VERDICT_ACCEPTED, .run.present = true };
    cr_assert(checker_wanted(&node, &r));
    node.expect = &without;
    cr_assert(!checker_wanted(&node, &r));
    node.expect = &with;
    for (int v = 0; v < VERDICT_COUNT; v++) {
        r.verdict = (enum verdict)v;
        cr_assert_eq(checker_wanted(&node, &r), v == VERDICT_ACCEPTED);
    }
}
