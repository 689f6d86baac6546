/* `brood ci` on the example project and on small ones made here: counts, status, set-up, reports.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

#define EXAMPLE_TESTS 24
#define EXAMPLE_SKIPPED 1

static const char runner[] = "cd \"$1\" && shift && exec \"$0\" ci \"$@\"";

/* `brood ci ARGS...` in dir. */
#define CI(r, dir, ...)                                                                            \
    e2e_run((r),                                                                                   \
            (const char *const[]){ "sh", "-c", runner, e2e_binary(), (dir), __VA_ARGS__, NULL },   \
            NULL, E2E_BATCH_MS)

static char *new_dir(void)
{
    char *dir = strdup("/tmp/brood-e2e-ci-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    return dir;
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static void drop_dir(char *dir)
{
    cleanup_e2e_run struct e2e_run r;
    e2e_run(&r, (const char *const[]){ "rm", "-rf", dir, NULL }, NULL, E2E_SHORT_MS);
    free(dir);
}

static char *example_copy(void)
{
    char *dir = new_dir();
    cleanup_e2e_run struct e2e_run r;
    e2e_run(&r, (const char *const[]){ "cp", "-r", E2E_SOURCE_DIR "/examples/ci/.", dir, NULL },
            NULL, E2E_SHORT_MS);
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    return dir;
}

static json_t *said(const struct e2e_run *r)
{
    json_t *o = json_loadb(r->out.data ? r->out.data : "", r->out.len, 0, NULL);
    cr_assert_not_null(o, "no JSON; stderr: %s", r->err.data);
    return o;
}

static json_int_t number(const json_t *o, const char *path)
{
    return json_integer_value(e2e_at(o, path));
}

Test(ci, four_shards_count_as_one)
{
    char *dir = example_copy();
    static const char *const shards[] = { "1", "4" };
    for (size_t i = 0; i < 2; i++) {
        cleanup_e2e_run struct e2e_run r;
        CI(&r, dir, "--json", "--shards", shards[i], "--junit", "out.xml", "--ctrf", "out.json");
        cr_assert_eq(r.exit_code, 0, "%s shards: %s\n%s", shards[i], r.out.data, r.err.data);
        json_t *o = said(&r), *one;
        cr_expect_eq(number(o, "tests"), EXAMPLE_TESTS);
        cr_expect_eq(number(o, "passed"), EXAMPLE_TESTS - EXAMPLE_SKIPPED);
        cr_expect_eq(number(o, "skipped"), EXAMPLE_SKIPPED);
        const json_t *list = e2e_at(o, "shards");
        cr_expect_eq((long)json_array_size(list), strtol(shards[i], NULL, 10));
        size_t k;
        json_array_foreach(list, k, one)
        {
            cr_expect_gt(number(one, "tests"), 0, "every shard has tests");
            cr_expect_str_eq(e2e_verdict(one), "accepted");
        }
        /* Both files say the same. */
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/out.json", dir);
        json_t *ctrf = json_load_file(path, 0, NULL);
        cr_expect_eq(number(ctrf, "results.summary.tests"), EXAMPLE_TESTS);
        cr_expect_eq(number(ctrf, "results.summary.passed"), EXAMPLE_TESTS - EXAMPLE_SKIPPED);
        json_decref(ctrf);
        cleanup_e2e_run struct e2e_run grep;
        (void)snprintf(path, sizeof path, "%s/out.xml", dir);
        e2e_run(&grep, (const char *const[]){ "grep", "-c", "<testcase", path, NULL }, NULL,
                E2E_SHORT_MS);
        cr_expect_eq(strtol(grep.out.data, NULL, 10), EXAMPLE_TESTS);
        json_decref(o);
    }
    /* The second run's report balances a third. */
    cleanup_e2e_run struct e2e_run r;
    CI(&r, dir, "--json", "--shards", "2", "--timings", "out.xml");
    cr_assert_eq(r.exit_code, 0, "%s\n%s", r.out.data, r.err.data);
    cr_expect(strstr(r.err.data, "8 test files for 2 shards, 8 with a time"), "%s", r.err.data);
    drop_dir(dir);
}

Test(ci, a_failing_test_is_status_1_and_named)
{
    char *dir = example_copy();
    cleanup_e2e_run struct e2e_run r;
    CI(&r, dir, "--env", "LEDGER_BREAK=1");
    cr_expect_eq(r.exit_code, 1, "%s\n%s", r.out.data, r.err.data);
    cr_expect(strstr(r.out.data, "tests 24  passed 22  failed 1  skipped 1"), "%s", r.out.data);
    cr_expect(strstr(r.out.data, "failed: tests.test_statement.Statement test_empty"), "%s",
              r.out.data);
    cr_expect(strstr(r.out.data, "\n      AssertionError: Lists differ"), "%s", r.out.data);
    cr_expect(strstr(r.out.data, "[1/4] "), "output with the shard before it: %s", r.out.data);
    drop_dir(dir);
}

Test(ci, a_second_run_starts_from_the_state_of_the_first)
{
    char *dir = new_dir();
    put(dir, "lock", "1\n");
    put(dir, "old", "old\n");
    put(dir, "brood.json",
        "{\"setup\": [\"test ! -e old; test ! -e new; cat lock > made; date +%N >> made\"],"
        " \"key_files\": [\"lock\"], \"shards\": 2, \"test\": \"cat made; ls\"}");
    cleanup_e2e_run struct e2e_run first, second, third, none;
    CI(&first, dir, "--template", "python");
    cr_assert_eq(first.exit_code, 0, "%s", first.err.data);
    cr_expect(strstr(first.err.data, "set-up with 1 key file"), "%s", first.err.data);
    /* another commit, the same key: the state is there, the file that went is not */
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/old", dir);
    cr_assert_eq(unlink(path), 0);
    put(dir, "new", "new\n");
    CI(&second, dir, "--template", "python");
    cr_assert_eq(second.exit_code, 0, "%s", second.err.data);
    cr_expect(strstr(second.err.data, "set-up is skipped"), "%s", second.err.data);
    cr_expect(strstr(second.out.data, "[1/2] new\n") && !strstr(second.out.data, "[1/2] old\n"),
              "%s", second.out.data);
    char *made[2] = { strstr(first.out.data, "[1/2] 1\n"), strstr(second.out.data, "[1/2] 1\n") };
    cr_assert(made[0] && made[1]);
    cr_expect_eq(strncmp(made[0], made[1], 20), 0, "set-up ran again: %s", second.out.data);
    /* another key */
    put(dir, "lock", "2\n");
    CI(&third, dir, "--template", "python");
    cr_assert_eq(third.exit_code, 0, "%s", third.err.data);
    cr_expect(strstr(third.err.data, "set-up with 1 key file"), "%s", third.err.data);
    cr_expect(strstr(third.out.data, "[1/2] 2\n"), "%s", third.out.data);
    put(dir, "brood.json",
        "{\"setup\": [\"true\"], \"key_files\": [\"no-*.such\"], \"test\": \"true\"}");
    CI(&none, dir, "--template", "python");
    cr_expect_eq(none.exit_code, 2);
    cr_expect(strstr(none.err.data, "key_files"), "%s", none.err.data);
    drop_dir(dir);
}

Test(ci, a_failing_setup_says_so_and_no_test_runs)
{
    char *dir = example_copy();
    static const char *const shards[] = { "1", "4" };
    for (size_t i = 0; i < 2; i++) {
        cleanup_e2e_run struct e2e_run r;
        CI(&r, dir, "--shards", shards[i], "--setup", "echo the reason >&2; exit 3");
        cr_expect_eq(r.exit_code, 123, "%s\n%s", r.out.data, r.err.data);
        cr_expect(strstr(r.out.data, "setup failed; no test ran"), "%s", r.out.data);
        cr_expect(strstr(r.err.data, "the reason"), "%s", r.err.data);
        cr_expect_null(strstr(r.out.data, "passed 1"), "%s", r.out.data);
    }
    drop_dir(dir);
}

Test(ci, one_shard_without_setup_or_reports)
{
    char *dir = new_dir();
    put(dir, "hello.txt", "from the checkout\n");
    cleanup_e2e_run struct e2e_run good, again, bad, limit, none;
    CI(&good, dir, "--", "cat", "hello.txt");
    cr_expect_eq(good.exit_code, 0, "%s\n%s", good.out.data, good.err.data);
    cr_expect(strstr(good.out.data, "from the checkout\n"), "%s", good.out.data);
    CI(&again, dir, "--", "cat", "hello.txt");
    cr_expect(strstr(again.err.data, "stored already"), "the same content once: %s",
              again.err.data);
    CI(&bad, dir, "--shards", "2", "--", "sh", "-c", "exit $((1 - $BROOD_SHARD_INDEX))");
    cr_expect_eq(bad.exit_code, 1, "%s\n%s", bad.out.data, bad.err.data);
    cr_expect(strstr(bad.out.data, "[1/2] failed: brood ci shard 1/2"), "%s", bad.out.data);
    CI(&limit, dir, "--limit", "cpu_ms=200", "--", "sh", "-c", "while :; do :; done");
    cr_expect_eq(limit.exit_code, 124, "%s\n%s", limit.out.data, limit.err.data);
    CI(&none, dir, "--report", "r.xml", "--", "true");
    cr_expect_eq(none.exit_code, 1, "%s\n%s", none.out.data, none.err.data);
    cr_expect(strstr(none.out.data, "no test was read"), "%s", none.out.data);
    drop_dir(dir);
}

Test(ci, a_report_that_was_there_before_is_not_a_shards)
{
    char *dir = new_dir();
    put(dir, "r.xml", "<testsuite name='old'><testcase name='passed long ago'/></testsuite>");
    cleanup_e2e_run struct e2e_run r;
    CI(&r, dir, "--report", "r.xml", "--", "true");
    cr_expect_eq(r.exit_code, 1, "%s\n%s", r.out.data, r.err.data);
    cr_expect(strstr(r.out.data, "as it was in the checkout"), "%s", r.out.data);
    drop_dir(dir);
}

Test(ci, wrong_use_is_status_2)
{
    char *dir = new_dir();
    cleanup_e2e_run struct e2e_run nothing, bad, unknown, timings;
    CI(&nothing, dir, "--shards", "2");
    cr_expect_eq(nothing.exit_code, 2);
    cr_expect(strstr(nothing.err.data, "which command"), "%s", nothing.err.data);
    CI(&bad, dir, "--shards", "0", "--", "true");
    cr_expect_eq(bad.exit_code, 2);
    CI(&unknown, dir, "--template", "no-such-template", "--", "true");
    cr_expect_eq(unknown.exit_code, 2, "%s", unknown.err.data);
    CI(&timings, dir, "--timings", "x.xml", "--", "true");
    cr_expect_eq(timings.exit_code, 2);
    cleanup_e2e_run struct e2e_run out;
    CI(&out, dir, "--junit", "no/such/folder.xml", "--", "true");
    cr_expect_eq(out.exit_code, 2, "%s", out.err.data);
    put(dir, "brood.json", "{\"shard\": 4}");
    cleanup_e2e_run struct e2e_run file;
    CI(&file, dir, "--", "true");
    cr_expect_eq(file.exit_code, 2);
    cr_expect(strstr(file.err.data, "brood.json: shard: unknown field"), "%s", file.err.data);
    drop_dir(dir);
}
