#include <criterion/criterion.h>
#include <string.h>

#include "common/report/report.h"
#include "common/report/shard.h"

static const char *value_of(const struct shard_var *vars, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(vars[i].name, name) == 0) {
            return vars[i].value;
        }
    }
    return "(not set)";
}

Test(shard, variables)
{
    struct shard_var v[SHARD_VARS_MAX];
    struct err err;
    struct shard_where w = { .index = 2, .total = 5, .xml_file = "/tmp/x.xml" };
    int n = shard_env(&w, v, &err);
    cr_assert_eq(n, 13);
    cr_expect_str_eq(value_of(v, n, "BROOD_SHARD_INDEX"), "2");
    cr_expect_str_eq(value_of(v, n, "TEST_SHARD_INDEX"), "2");
    cr_expect_str_eq(value_of(v, n, "TEST_TOTAL_SHARDS"), "5");
    cr_expect_str_eq(value_of(v, n, "GTEST_SHARD_INDEX"), "2");
    cr_expect_str_eq(value_of(v, n, "GTEST_TOTAL_SHARDS"), "5");
    cr_expect_str_eq(value_of(v, n, "CI_NODE_INDEX"), "3", "GitLab counts from 1");
    cr_expect_str_eq(value_of(v, n, "CI_NODE_TOTAL"), "5");
    cr_expect_str_eq(value_of(v, n, "BUILDKITE_PARALLEL_JOB"), "2");
    cr_expect_str_eq(value_of(v, n, "BUILDKITE_PARALLEL_JOB_COUNT"), "5");
    cr_expect_str_eq(value_of(v, n, "CIRCLE_NODE_INDEX"), "2");
    cr_expect_str_eq(value_of(v, n, "CIRCLE_NODE_TOTAL"), "5");
    cr_expect_str_eq(value_of(v, n, "XML_OUTPUT_FILE"), "/tmp/x.xml");
    cr_expect_str_eq(value_of(v, n, "TEST_SHARD_STATUS_FILE"), "(not set)");
    w.status_file = "/tmp/s";
    w.tmp_dir = "/tmp";
    cr_assert_eq(shard_env(&w, v, &err), 15);
}

Test(shard, bad_places)
{
    struct shard_var v[SHARD_VARS_MAX];
    struct err err;
    static char path[SHARD_VALUE_BYTES_MAX + 2];
    memset(path, 'p', sizeof path - 1);
    cr_expect_eq(shard_env(&(struct shard_where){ 0, 0, NULL, NULL, NULL }, v, &err), -ERR_INVALID);
    cr_expect_eq(shard_env(&(struct shard_where){ 0, SHARDS_MAX + 1, NULL, NULL, NULL }, v, &err),
                 -ERR_INVALID);
    cr_expect_eq(shard_env(&(struct shard_where){ 3, 3, NULL, NULL, NULL }, v, &err), -ERR_INVALID);
    cr_expect_str_eq(err.text, "shard 4 of 3: there is none");
    cr_expect_eq(shard_env(&(struct shard_where){ 0, 1, path, NULL, NULL }, v, &err), -ERR_INVALID);
    path[SHARD_VALUE_BYTES_MAX] = 0;
    cr_expect_eq(
        shard_env(&(struct shard_where){ SHARDS_MAX - 1, SHARDS_MAX, path, NULL, NULL }, v, &err),
        13);
}

Test(shard, placeholders)
{
    struct err err;
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, 1000);
    struct shard_where w = { .index = 0, .total = 4 };
    cr_assert_eq(shard_expand(&w, "--shard={shard}/{shards} {{shard0}} {other} {", &b, &err), 0);
    cr_assert_str_eq(b.data, "--shard=1/4 {0} {other} {");
}

static void check(const struct shard_file *files, size_t n, unsigned shards,
                  const unsigned *expected, const int64_t *loads)
{
    unsigned got[64];
    int64_t load[64];
    struct err err;
    cr_assert_eq(shard_balance(files, n, shards, got, load, &err), 0);
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(got[i], expected[i], "%s is in %u", files[i].name, got[i]);
    }
    for (unsigned s = 0; s < shards; s++) {
        cr_expect_eq(load[s], loads[s], "shard %u has %lld", s, (long long)load[s]);
    }
}

Test(shard, longest_first)
{
    static const struct shard_file files[] = {
        { "a", 2 }, { "b", 7 }, { "c", 3 }, { "d", 6 }, { "e", 4 }
    };
    /* b 7 | d 6, d e 10, b c 10, and a to the lower one of two equal ones */
    check(files, 5, 2, (unsigned[]){ 0, 0, 0, 1, 1 }, (int64_t[]){ 12, 10 });
    check(files, 5, 1, (unsigned[]){ 0, 0, 0, 0, 0 }, (int64_t[]){ 22 });
    check(files, 5, 7, (unsigned[]){ 4, 0, 3, 1, 2 }, (int64_t[]){ 7, 6, 4, 3, 2, 0, 0 });
    check(NULL, 0, 3, NULL, (int64_t[]){ 0, 0, 0 });
}

Test(shard, unknown_files_count_as_the_median)
{
    static const struct shard_file files[] = { { "a", 10 }, { "new", -1 }, { "b", 2 }, { "c", 4 } };
    /* new counts 4: a 10 | c 4, c new 8, c new b 10 */
    check(files, 4, 2, (unsigned[]){ 0, 1, 1, 1 }, (int64_t[]){ 10, 10 });
    static const struct shard_file none[] = { { "a", -1 }, { "b", -1 }, { "c", -1 }, { "d", -1 } };
    check(none, 4, 2, (unsigned[]){ 0, 1, 0, 1 }, (int64_t[]){ 2000000, 2000000 });
    static const struct shard_file zero[] = { { "a", 0 }, { "b", 0 }, { "c", 0 } };
    check(zero, 3, 3, (unsigned[]){ 0, 1, 2 }, (int64_t[]){ 0, 0, 0 });
}

Test(shard, the_order_of_the_files_does_not_matter)
{
    enum { N = 40 };
    static char names[N][8];
    struct shard_file a[N], b[N];
    unsigned in_a[N], in_b[N];
    struct err err;
    for (int i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "f%d", i);
        a[i] = (struct shard_file){ names[i], i * 7 % 5 };
        b[N - 1 - i] = a[i];
    }
    cr_assert_eq(shard_balance(a, N, 6, in_a, NULL, &err), 0);
    cr_assert_eq(shard_balance(b, N, 6, in_b, NULL, &err), 0);
    for (int i = 0; i < N; i++) {
        cr_expect_eq(in_a[i], in_b[N - 1 - i]);
    }
}

/* Graham's bound: at most 4/3 - 1/(3m) of the best split, which is at least the mean and the
 * longest file. */
Test(shard, never_far_from_the_best)
{
    enum { N = 200 };
    static struct shard_file files[N];
    static unsigned got[N];
    int64_t load[SHARDS_MAX], sum = 0, longest = 0;
    struct err err;
    uint32_t seed = 1;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        files[i] = (struct shard_file){ "same", (seed >> 12) % 1000 };
        sum += files[i].time_us;
        longest = files[i].time_us > longest ? files[i].time_us : longest;
    }
    for (unsigned m = 1; m <= 64; m++) {
        cr_assert_eq(shard_balance(files, N, m, got, load, &err), 0);
        int64_t total = 0, worst = 0;
        for (unsigned s = 0; s < m; s++) {
            total += load[s];
            worst = load[s] > worst ? load[s] : worst;
        }
        int64_t best = sum / m + 1 > longest ? sum / m + 1 : longest;
        cr_expect_eq(total, sum);
        cr_expect_leq(3 * worst, 4 * best, "%u shards", m);
    }
}

Test(shard, maxima)
{
    static struct shard_file files[SHARD_FILES_MAX + 1];
    static unsigned got[SHARD_FILES_MAX];
    struct err err;
    for (size_t i = 0; i <= SHARD_FILES_MAX; i++) {
        files[i] = (struct shard_file){ "f", INT64_MAX };
    }
    cr_assert_eq(shard_balance(files, SHARD_FILES_MAX, SHARDS_MAX, got, NULL, &err), 0);
    cr_assert_eq(shard_balance(files, SHARD_FILES_MAX + 1, 2, got, NULL, &err), -ERR_TOO_LARGE);
    cr_assert_eq(shard_balance(files, 1, SHARDS_MAX + 1, got, NULL, &err), -ERR_INVALID);
    cr_assert_eq(shard_balance(files, 1, 0, got, NULL, &err), -ERR_INVALID);
}

Test(shard, times_of_a_past_report)
{
    static const char xml[] =
        "<testsuites><testcase name='1' classname='tests.test_a' time='1'/>"
        "<testcase name='2' classname='tests.test_a.TestX' time='2'/>"
        "<testcase name='3' file='tests/b.js' time='4'/>"
        "<testsuite name='c.bats'><testcase name='4' classname='c.bats' time='8'/></testsuite>"
        "<testcase name='5' classname='tests' time='16'/>"
        "<testcase name='6' classname='tests.test_a'/></testsuites>";
    struct report *past = NULL;
    struct err err;
    cr_assert_eq(report_read(REPORT_FORMAT_JUNIT, xml, sizeof xml - 1, &past, &err), 0);
    struct shard_file files[] = {
        { "tests/test_a.py", -1 }, { "tests/b.js", -1 }, { "c.bats", -1 },
        { "tests/new.py", -1 },    { "known.py", 7 },    { ".hidden", -1 }
    };
    cr_assert_eq(shard_times(files, 6, past, &err), 3);
    cr_expect_eq(files[0].time_us, 3000000);
    cr_expect_eq(files[1].time_us, 4000000);
    cr_expect_eq(files[2].time_us, 8000000);
    cr_expect_eq(files[3].time_us, -1);
    cr_expect_eq(files[4].time_us, 7);
    report_free(past);
}
