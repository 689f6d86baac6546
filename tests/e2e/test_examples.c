/* The examples: every job's verdict is the one its label names, and its bill is complete. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

#define EXAMPLE_JOBS_MIN 80
#define EXAMPLE_FAILING_MIN 20

/* word is one of "a|b|c". */
static bool among(const char *alternatives, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = alternatives; n > 0; p += strcspn(p, "|") + 1) {
        if (strcspn(p, "|") == n && strncmp(p, word, n) == 0) {
            return true;
        }
        if (!p[strcspn(p, "|")]) {
            return false;
        }
    }
    return false;
}

/* The ledger of everything that this home has run: nothing disagrees, every grouping has the same
 * total, every line is a FOCUS record and they bill as much. */
static void ledger_agrees(void)
{
    cleanup_e2e_run struct e2e_run check;
    E2E_BROOD(&check, E2E_SHORT_MS, "usage", "--check");
    cr_expect_eq(check.exit_code, 0, "%s%s", check.out.data, check.err.data);
    static const char *const groups[] = { "day",      "hour",  "month", "tenant",
                                          "template", "batch", "job",   "label" };
    json_int_t total = -1;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        cleanup_e2e_run struct e2e_run r;
        E2E_BROOD(&r, E2E_SHORT_MS, "usage", "--by", groups[i], "--label", "suite", "--json");
        cr_expect_eq(r.exit_code, 0, "%s", r.err.data);
        json_t *said = json_loads(r.out.data, 0, NULL);
        json_int_t cost = json_integer_value(e2e_at(said, "total.cost_nanousd"));
        cr_expect(cost > 0 && (total < 0 || cost == total), "by %s: %lld, not %lld", groups[i],
                  (long long)cost, (long long)total);
        total = cost;
        json_decref(said);
    }
    char command[1024];
    (void)snprintf(command, sizeof command,
                   "'%s' usage --format focus | python3 '%s/tests/support/focus_check.py'",
                   e2e_binary(), e2e_top());
    cleanup_e2e_run struct e2e_run focus;
    e2e_run(&focus, (const char *const[]){ "sh", "-c", command, NULL }, NULL, E2E_SHORT_MS);
    char billed[64];
    (void)snprintf(billed, sizeof billed, "%lld.%09lld", (long long)(total / 1000000000),
                   (long long)(total % 1000000000));
    size_t len = strlen(billed);
    while (billed[len - 1] == '0') {
        billed[--len] = 0;
    }
    cr_expect_eq(focus.exit_code, 0, "%s%s", focus.out.data, focus.err.data);
    cr_expect_not_null(strstr(focus.out.data, billed), "%s: not %s", focus.out.data, billed);
}

Test(examples, every_verdict_is_as_expected)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_BATCH_MS, "submit", E2E_SOURCE_DIR "/examples/batch.jsonl", "--json");
    cr_assert_eq(r.exit_code, 0, "submit: %s", r.err.data);
    json_t *said = json_loads(r.out.data, 0, NULL);
    const char *batch = json_string_value(json_object_get(said, "batch"));
    cr_assert_not_null(batch);
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS), *result;
    size_t i;
    int failing = 0;
    json_array_foreach(results, i, result)
    {
        const char *want = json_string_value(e2e_at(result, "labels.expected_verdict"));
        cr_assert_not_null(want, "job %zu has no label expected_verdict", i);
        cr_expect(among(want, e2e_verdict(result)), "%s: %s (%s), should be %s",
                  json_string_value(e2e_at(result, "name")), e2e_verdict(result),
                  json_string_value(e2e_at(result, "reason")), want);
        cr_expect_eq(json_integer_value(e2e_at(result, "seq")), (json_int_t)i,
                     "results are in submission order");
        failing += strcmp(want, "accepted") != 0;
    }
    cr_expect_geq(json_array_size(results), EXAMPLE_JOBS_MIN);
    cr_expect_geq(failing, EXAMPLE_FAILING_MIN);
    json_decref(results);

    cr_expect_eq(e2e_sql("SELECT count(*) FROM jobs j WHERE batch_id = '%s' AND (SELECT count(*) "
                         "FROM usage_records u "
                         "WHERE u.job_id = j.id) NOT IN (2, 4)",
                         batch),
                 0, "two usage records for each billed job, or four across midnight");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records u JOIN jobs j ON j.id = u.job_id "
                         "WHERE j.batch_id = '%s' AND "
                         "(charged_ms < measured_ms OR cost_nanousd <= 0)",
                         batch),
                 0);
    json_decref(said);
    ledger_agrees();
}

/* The job of a file of examples/branches ends as its labels say, and so does each of its branches.
 */
static void branches_are_as_expected(const char *file)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/examples/branches/%s", e2e_top(), file);
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_BATCH_MS, "submit", path, "--json");
    cr_assert_eq(r.exit_code, 0, "%s: %s", file, r.err.data);
    json_t *said = json_loads(r.out.data, 0, NULL), *b;
    const char *batch = json_string_value(json_object_get(said, "batch"));
    cr_assert_not_null(batch);
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS);
    cr_assert_eq(json_array_size(results), 1, "%s is one job", file);
    const json_t *result = json_array_get(results, 0);
    const char *want = json_string_value(e2e_at(result, "labels.expected_verdict"));
    const char *score = json_string_value(e2e_at(result, "labels.expected_score_micro"));
    const char *words = json_string_value(e2e_at(result, "labels.expected_branches"));
    cr_assert(want && score && words, "%s: labels", file);
    cr_expect_str_eq(e2e_verdict(result), want, "%s: %s (%s), should be %s", file,
                     e2e_verdict(result), json_string_value(e2e_at(result, "reason")), want);
    cr_expect_eq(json_integer_value(e2e_at(result, "tree.score_micro")), strtoll(score, NULL, 10));
    cleanup_free char *copy = strdup(words);
    char *rest = copy;
    size_t i;
    json_array_foreach(e2e_at(result, "branches"), i, b)
    {
        const char *word = strsep(&rest, " ");
        cr_assert_not_null(word, "%s has more branches than its label names", file);
        cr_expect_str_eq(e2e_verdict(b), word, "%s: %s: %s (%s), should be %s", file,
                         json_string_value(e2e_at(b, "name")), e2e_verdict(b),
                         json_string_value(e2e_at(b, "reason")), word);
    }
    cr_expect_null(rest, "%s has fewer branches than its label names", file);
    json_decref(results);
    json_decref(said);
}

Test(examples, tests_of_one_compiled_program)
{
    branches_are_as_expected("tests.jsonl");
}

Test(examples, rollouts_from_one_prepared_state)
{
    branches_are_as_expected("branches.jsonl");
}

Test(examples, a_tree_three_levels_deep)
{
    branches_are_as_expected("tree.jsonl");
}
