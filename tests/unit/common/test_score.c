/* From verdicts to one verdict and a score: whole numbers, worked out by hand. */
#include "common/model/score.h"
#include "tests/unit/common/job_case.h"

#define AC VERDICT_ACCEPTED
#define WA VERDICT_WRONG_ANSWER
#define RE VERDICT_RUNTIME_ERROR
#define CE VERDICT_COMPILE_ERROR
#define SK VERDICT_SKIPPED
#define CA VERDICT_CANCELLED
#define NO VERDICT_NONE

struct found {
    struct score score;
    enum verdict verdicts[16];
    int32_t scores[16];
};

static struct found score(const char *branches, enum job_stop stop, const enum verdict *verdicts,
                          int n)
{
    char json[1024];
    (void)snprintf(json, sizeof json, HEAD ",%s}", branches);
    cleanup_job_spec struct job_spec *s = parse(json);
    struct found f;
    cr_assert_eq(s->tree->n, n, "%d nodes", s->tree->n);
    memcpy(f.verdicts, verdicts, sizeof *verdicts * (size_t)n);
    score_tree(s->tree, stop, f.verdicts, f.scores, &f.score);
    cr_assert_eq(f.score.verdict, f.verdicts[0]);
    cr_assert_eq(f.score.micro, f.scores[0]);
    return f;
}
#define SCORE(branches, stop, ...)                                                                 \
    score(branches, stop, (const enum verdict[]){ __VA_ARGS__ },                                   \
          (int)(sizeof((const enum verdict[]){ __VA_ARGS__ }) / sizeof(enum verdict)))

#define THREE "\"tests\":[{},{},{}]"

Test(score, plain_job)
{
    struct found f = SCORE("\"name\":\"x\"", JOB_STOP_ALL, AC);
    cr_assert(f.score.verdict == AC && f.score.micro == SCORE_ONE && f.score.first_failed == -1);
    f = SCORE("\"name\":\"x\"", JOB_STOP_ALL, WA);
    cr_assert(f.score.verdict == WA && f.score.micro == 0 && f.score.first_failed == 0);
}

Test(score, all_some_none)
{
    struct found f = SCORE(THREE, JOB_STOP_ALL, NO, AC, AC, AC);
    cr_assert(f.score.verdict == AC && f.score.micro == 1000000);
    f = SCORE(THREE, JOB_STOP_ALL, NO, AC, WA, AC);
    cr_assert(f.score.verdict == VERDICT_PARTIAL && f.score.micro == 666667);
    cr_assert(f.score.accepted == 2 && f.score.failed == 1 && f.score.leaves == 3);
    cr_assert_eq(f.score.first_failed, 2);
    f = SCORE(THREE, JOB_STOP_ALL, NO, RE, WA, WA);
    cr_assert(f.score.verdict == RE && f.score.micro == 0 && f.score.first_failed == 1);
}

Test(score, weights)
{
    struct found f = SCORE("\"tests\":[{\"weight\":10},{\"weight\":30},{\"weight\":60}]",
                           JOB_STOP_ALL, NO, AC, AC, WA);
    cr_assert_eq(f.score.micro, 400000);
    /* of no weight: its failure costs no points but the job is not accepted */
    f = SCORE("\"tests\":[{\"weight\":0},{}]", JOB_STOP_ALL, NO, WA, AC);
    cr_assert(f.score.verdict == VERDICT_PARTIAL && f.score.micro == 999999);
    f = SCORE("\"tests\":[{\"weight\":0},{}]", JOB_STOP_ALL, NO, AC, WA);
    cr_assert(f.score.verdict == WA && f.score.micro == 0);
    f = SCORE("\"tests\":[{\"weight\":0},{\"weight\":0}]", JOB_STOP_ALL, NO, AC, AC);
    cr_assert(f.score.verdict == AC && f.score.micro == 1000000);
    f = SCORE("\"tests\":[{\"weight\":1000000},{\"weight\":1}]", JOB_STOP_ALL, NO, WA, AC);
    cr_assert_eq(f.score.micro, 1); /* something is not nothing */
}

/* 0: 1 (2 3 4), 5 (6 7 8) */
#define TWICE_THREE "\"branches\":[{\"tests\":[{},{},{}]},{\"tests\":[{},{},{}]}]"

Test(score, a_branch_without_a_weight_is_transparent)
{
    /* thirds of thirds are exact in the end */
    struct found f = SCORE(TWICE_THREE, JOB_STOP_ALL, NO, NO, AC, WA, WA, NO, AC, AC, WA);
    cr_assert_eq(f.score.micro, 500000);
    cr_assert_eq(f.scores[1], 333333);
    cr_assert_eq(f.scores[5], 666667);
    cr_assert(f.verdicts[1] == VERDICT_PARTIAL && f.verdicts[5] == VERDICT_PARTIAL);
    /* one leaf beside three: a quarter each */
    f = SCORE("\"branches\":[{\"tests\":[{},{},{}]},{}]", JOB_STOP_ALL, NO, NO, AC, AC, AC, WA);
    cr_assert_eq(f.score.micro, 750000);
    cr_assert_eq(f.verdicts[1], AC);
}

Test(score, a_branch_with_a_weight_shares_it)
{
    struct found f = SCORE("\"branches\":[{\"weight\":1,\"tests\":[{},{},{}]},{\"weight\":1}]",
                           JOB_STOP_ALL, NO, NO, AC, AC, AC, WA);
    cr_assert_eq(f.score.micro, 500000);
    f = SCORE("\"branches\":[{\"weight\":3,\"tests\":[{\"weight\":1},{\"weight\":3}]},{}]",
              JOB_STOP_ALL, NO, NO, AC, WA, WA);
    cr_assert_eq(f.score.micro, 187500); /* 3/4 of 1/4 */
}

Test(score, setup_failed)
{
    struct found f = SCORE(THREE, JOB_STOP_ALL, CE, SK, SK, SK);
    cr_assert(f.score.verdict == CE && f.score.micro == 0 && f.score.skipped == 3);
    cr_assert(f.score.failed == 0 && f.score.first_failed == 0);
    f = SCORE(TWICE_THREE, JOB_STOP_ALL, NO, CE, SK, SK, SK, NO, AC, AC, AC);
    cr_assert(f.score.verdict == VERDICT_PARTIAL && f.score.micro == 500000);
    cr_assert(f.verdicts[1] == CE && f.verdicts[5] == AC && f.score.first_failed == 1);
    f = SCORE(TWICE_THREE, JOB_STOP_ALL, NO, NO, WA, WA, WA, CE, SK, SK, SK);
    cr_assert(f.score.verdict == WA);
    f = SCORE(TWICE_THREE, JOB_STOP_ALL, NO, CE, SK, SK, SK, NO, WA, WA, WA);
    cr_assert(f.score.verdict == CE);
}

Test(score, first_failure_names_the_failure)
{
    struct found f = SCORE(THREE, JOB_STOP_FIRST_FAILURE, NO, AC, RE, CA);
    cr_assert(f.score.verdict == RE && f.score.micro == 333333 && f.score.cancelled == 1);
    /* a later one failed first: those before it were cancelled and are no explanation */
    f = SCORE(THREE, JOB_STOP_FIRST_FAILURE, NO, CA, CA, WA);
    cr_assert(f.score.verdict == WA && f.score.first_failed == 3);
    f = SCORE(TWICE_THREE, JOB_STOP_FIRST_FAILURE, NO, CA, CA, CA, CA, CE, SK, SK, SK);
    cr_assert(f.score.verdict == CE && f.verdicts[1] == CA);
}

Test(score, cancelled)
{
    struct found f = SCORE(THREE, JOB_STOP_ALL, CA, CA, CA, CA);
    cr_assert(f.score.verdict == CA && f.score.micro == 0 && f.score.first_failed == -1);
}

Test(score, our_faults_and_the_judges_outrank)
{
    struct found f = SCORE(THREE, JOB_STOP_ALL, NO, WA, VERDICT_INFRA_ERROR, AC);
    cr_assert(f.score.verdict == VERDICT_INFRA_ERROR && f.score.first_failed == 2);
    f = SCORE(THREE, JOB_STOP_ALL, NO, VERDICT_JUDGE_ERROR, VERDICT_INFRA_ERROR, AC);
    cr_assert(f.score.verdict == VERDICT_INFRA_ERROR);
    f = SCORE(THREE, JOB_STOP_ALL, NO, WA, AC, VERDICT_JUDGE_ERROR);
    cr_assert(f.score.verdict == VERDICT_JUDGE_ERROR && f.score.first_failed == 3);
}
