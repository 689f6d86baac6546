/* What the shards hand in, put together, and the status that follows. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/ci_summary.h"
#include "cli/ci_wait.h"

static const char good[] = "<testsuite name='s'><testcase classname='c' name='a' time='0.5'/>"
                           "<testcase classname='c' name='b'><skipped/></testcase></testsuite>";
static const char bad[] = "<testsuite name='s'><testcase classname='c' name='z' time='1'>"
                          "<failure message='one&#10;two'>text</failure></testcase></testsuite>";

static struct brood_json with_reports, without;
static struct ci_deal deal = { .shards = 2 };
static struct ci_stale nothing_stale;
static char *report_globs[] = { (char *)(uintptr_t) "r.xml", NULL };

static void start(struct ci_collect *c, bool reports)
{
    with_reports.reports = (struct string_list){ .items = report_globs, .n = 1 };
    ci_collect_init(c, reports ? &with_reports : &without, &deal, &nothing_stale);
}

static void verdict(struct ci_collect *c, unsigned shard, enum verdict v, int exit_code)
{
    struct job_result r = { .verdict = v,
                            .run = { .present = true, .exit_code = exit_code, .wall_us = 1000 } };
    ci_collect_verdict(c, shard, &r);
}

static int end(struct ci_collect *c, enum verdict job)
{
    struct job_result r = { .verdict = job };
    ci_collect_finish(c);
    return ci_collect_exit(c, &r);
}

#define ADD(c, shard, text) ci_collect_report((c), (shard), "r.xml", (text), strlen(text))

Test(ci_collect, all_passed)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_ACCEPTED, 0);
    ADD(&c, 0, good);
    ADD(&c, 1, good);
    cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_PASSED);
    cr_assert_eq(c.report->n_cases, 4);
    cr_expect_eq(c.report->count[REPORT_SKIPPED], 2);
    cr_expect_str_eq(c.report->cases[0].shard, "1/2");
    cr_expect_str_eq(c.report->cases[3].shard, "2/2");
    cr_expect_eq(c.shards[1].count[REPORT_PASSED], 1);
    ci_collect_done(&c);
}

Test(ci_collect, a_failing_test_is_one_failure)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_RUNTIME_ERROR, 1);
    ADD(&c, 0, good);
    ADD(&c, 1, bad);
    cr_expect_eq(end(&c, VERDICT_PARTIAL), CI_TESTS_FAILED);
    cr_expect_eq(c.report->n_cases, 3, "no row for the shard: its report explains its status");
    cr_expect_eq(c.report->count[REPORT_FAILED], 1);
    ci_collect_done(&c);
}

Test(ci_collect, a_failure_in_a_report_counts_though_the_runner_says_0)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_ACCEPTED, 0);
    ADD(&c, 0, good);
    ADD(&c, 1, bad);
    cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_TESTS_FAILED);
    ci_collect_done(&c);
}

Test(ci_collect, a_status_without_a_failing_test_is_a_row)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_RUNTIME_ERROR, 3);
    ADD(&c, 0, good);
    ADD(&c, 1, good);
    cr_expect_eq(end(&c, VERDICT_PARTIAL), CI_TESTS_FAILED);
    cr_assert_eq(c.report->n_cases, 5);
    cr_expect_str_eq(c.report->cases[4].name, "shard 2/2");
    cr_expect_eq(c.report->cases[4].status, REPORT_FAILED);
    ci_collect_done(&c);
}

Test(ci_collect, no_test_read_is_no_pass)
{
    struct ci_collect c;
    static const char empty[] = "<testsuite name='s' tests='0'/>";
    for (int reports = 0; reports < 2; reports++) {
        start(&c, true);
        verdict(&c, 0, VERDICT_ACCEPTED, 0);
        verdict(&c, 1, VERDICT_ACCEPTED, 0);
        for (unsigned i = 0; i < 2 && reports; i++) {
            ADD(&c, i, empty);
        }
        cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_TESTS_FAILED);
        struct result_row row = { .has_result = true, .result.verdict = VERDICT_ACCEPTED };
        json_t *o = ci_summary_json(&c, &row, CI_TESTS_FAILED);
        const char *outcome = json_string_value(json_object_get(o, "outcome"));
        cr_expect(strstr(outcome, reports ? "0 tests were read" : "no test was read"), "%s",
                  outcome);
        json_decref(o);
        ci_collect_done(&c);
    }
}

Test(ci_collect, a_shard_without_its_report_is_no_pass)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_ACCEPTED, 0);
    ADD(&c, 0, good);
    cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_TESTS_FAILED);
    cr_assert_eq(c.report->n_notes, 1);
    cr_expect(strstr(c.report->notes[0], "shard 2/2: passed, but left no report"));
    ci_collect_done(&c);
}

/* The report that has the failing test may be among what is not listed. */
Test(ci_collect, a_list_of_files_that_is_cut_is_no_pass)
{
    for (int reports = 0; reports < 2; reports++) {
        struct ci_collect c;
        struct job_result r = { .verdict = VERDICT_ACCEPTED, .artifacts = { .truncated = true } };
        start(&c, reports);
        verdict(&c, 0, VERDICT_ACCEPTED, 0);
        ci_collect_verdict(&c, 1, &r);
        ADD(&c, 0, good);
        ADD(&c, 1, good);
        cr_expect_eq(end(&c, VERDICT_ACCEPTED), reports ? CI_TESTS_FAILED : CI_PASSED);
        cr_assert_eq(c.report->n_notes, (size_t)reports);
        cr_expect(!reports || strstr(c.report->notes[0], "shard 2/2: "), "%s", c.report->notes[0]);
        ci_collect_done(&c);
    }
}

Test(ci_collect, what_cannot_be_read_is_no_pass)
{
    static const char *const texts[] = { "", "no report", "<testsuite><testcase name='a'>",
                                         "1..3\nok 1 - a\n" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ci_collect c;
        start(&c, true);
        verdict(&c, 0, VERDICT_ACCEPTED, 0);
        verdict(&c, 1, VERDICT_ACCEPTED, 0);
        ADD(&c, 0, good);
        ADD(&c, 1, good);
        ADD(&c, 1, texts[i]);
        cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_TESTS_FAILED, "%s", texts[i]);
        cr_expect_geq(c.report->n_notes, 1, "%s", texts[i]);
        ci_collect_done(&c);
    }
}

Test(ci_collect, without_reports_the_shards_are_the_tests)
{
    struct ci_collect c;
    start(&c, false);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_ACCEPTED, 0);
    cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_PASSED);
    cr_expect_eq(c.report->n_cases, 2);
    ci_collect_done(&c);
    start(&c, false);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_RUNTIME_ERROR, 1);
    cr_expect_eq(end(&c, VERDICT_PARTIAL), CI_TESTS_FAILED);
    cr_expect_eq(c.report->count[REPORT_FAILED], 1);
    ci_collect_done(&c);
}

Test(ci_collect, limits_and_our_faults_have_their_own_status)
{
    static const struct {
        enum verdict shard, job;
        int want;
    } cases[] = { { VERDICT_TIME_LIMIT, VERDICT_PARTIAL, CI_TIME_LIMIT },
                  { VERDICT_WALL_TIME_LIMIT, VERDICT_PARTIAL, CI_TIME_LIMIT },
                  { VERDICT_MEMORY_LIMIT, VERDICT_PARTIAL, CI_LIMIT },
                  { VERDICT_OUTPUT_LIMIT, VERDICT_PARTIAL, CI_LIMIT },
                  { VERDICT_INFRA_ERROR, VERDICT_INFRA_ERROR, CI_FAILED },
                  { VERDICT_SKIPPED, VERDICT_COMPILE_ERROR, CI_LIMIT },
                  { VERDICT_CANCELLED, VERDICT_CANCELLED, CI_FAILED } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ci_collect c;
        start(&c, true);
        verdict(&c, 0, VERDICT_ACCEPTED, 0);
        verdict(&c, 1, cases[i].shard, 1);
        ADD(&c, 0, good);
        ADD(&c, 1, bad);
        cr_expect_eq(end(&c, cases[i].job), cases[i].want, "%s", verdict_word(cases[i].shard));
        ci_collect_done(&c);
    }
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    ADD(&c, 0, good);
    cr_expect_eq(end(&c, VERDICT_ACCEPTED), CI_FAILED, "a shard that never came is ours");
    cr_expect_eq(ci_collect_exit(&c, NULL), CI_FAILED);
    ci_collect_done(&c);
}

/* A checkout that does not fit, a set-up that takes too long: no shard ran. */
Test(ci_collect, a_limit_before_the_shards_is_the_runs)
{
    static const struct {
        enum verdict job;
        int want;
    } cases[] = { { VERDICT_DISK_LIMIT, CI_LIMIT }, { VERDICT_WALL_TIME_LIMIT, CI_TIME_LIMIT } };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct ci_collect c;
        start(&c, true);
        for (unsigned s = 0; s < 2 && i % 2; s++) { /* else it was the set-up that is kept */
            verdict(&c, s, VERDICT_SKIPPED, -1);
        }
        struct result_row row = { .has_result = true, .result.verdict = cases[i / 2].job };
        (void)snprintf(row.result.reason, RESULT_REASON_MAX, "the job's files cannot be taken");
        ci_collect_finish(&c);
        int code = ci_collect_exit(&c, &row.result);
        cr_expect_eq(code, cases[i / 2].want, "%s: %d", verdict_word(row.result.verdict), code);
        cleanup_free char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        ci_summary_print(f, &c, &row, code);
        (void)fclose(f);
        cr_expect(strstr(text, "no test ran: the job's files cannot be taken"), "%s", text);
        ci_collect_done(&c);
    }
}

Test(ci_collect, a_report_cannot_say_that_it_is_of_another_shard)
{
    struct ci_collect c;
    start(&c, true);
    ADD(&c, 0,
        "<testsuite name='s'><testcase classname='c' name='a'><properties>"
        "<property name='brood.shard' value='2/2'/></properties></testcase></testsuite>");
    cr_assert_eq(c.report->n_cases, 1);
    cr_expect_str_eq(c.report->cases[0].shard, "1/2");
    ci_collect_done(&c);
}

Test(ci_collect, written_and_read_again)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_RUNTIME_ERROR, 1);
    ADD(&c, 0, good);
    ADD(&c, 1, bad);
    (void)end(&c, VERDICT_PARTIAL);
    char dir[] = "/tmp/brood-ci-XXXXXX", junit[64], ctrf[64];
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(junit, sizeof junit, "%s/o.xml", dir);
    (void)snprintf(ctrf, sizeof ctrf, "%s/o.json", dir);
    struct err err = { 0 };
    cr_assert_eq(ci_summary_write(&c, junit, ctrf, &err), 0, "%s", err.text);
    const char *const paths[] = { junit, ctrf };
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf b = { 0 };
        cleanup_report struct report *r = NULL;
        buf_init(&b, 1 << 20);
        cr_assert_geq(buf_read_file(&b, paths[i], &err), 0, "%s", err.text);
        cr_assert_eq(report_read(REPORT_FORMAT_UNKNOWN, b.data, b.len, &r, &err), 0, "%s",
                     err.text);
        for (int s = 0; s < REPORT_STATUS_END; s++) {
            cr_expect_eq(r->count[s], c.report->count[s], "%s", paths[i]);
        }
        (void)unlink(paths[i]);
    }
    (void)rmdir(dir);
    cr_expect_lt(ci_summary_write(&c, "/nonexistent/x.xml", NULL, &err), 0);
    ci_collect_done(&c);
}

Test(ci_collect, the_table_names_the_failure)
{
    struct ci_collect c;
    start(&c, true);
    verdict(&c, 0, VERDICT_ACCEPTED, 0);
    verdict(&c, 1, VERDICT_RUNTIME_ERROR, 1);
    ADD(&c, 0, good);
    ADD(&c, 1, bad);
    int code = end(&c, VERDICT_PARTIAL);
    struct result_row row = { .has_result = true, .result.verdict = VERDICT_PARTIAL };
    cleanup_free char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    ci_summary_print(f, &c, &row, code);
    (void)fclose(f);
    cr_expect(strstr(text, "[2/2] failed: c z\n      one\n"), "%s", text);
    cr_expect(strstr(text, "tests 3  passed 1  failed 1  skipped 1"), "%s", text);
    ci_collect_done(&c);
}

Test(ci_out, every_line_has_the_label_and_comes_once)
{
    cleanup_free char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct ci_out o;
    char head[] = "a\n\nbc\nhead", tail[] = "tail\nend";
    struct run_result run = { .present = true };
    run.out =
        (struct stream_result){ .head = { head, 10 }, .tail = { tail, 8 }, .total_bytes = 30 };
    ci_out_init(&o, "1/2", false);
    o.streams[1].to = f;
    ci_out_add(&o, 1, "a\n\nb", 4); /* live, and then no more */
    ci_out_rest(&o, &run);
    ci_out_done(&o);
    (void)fclose(f);
    cr_expect_str_eq(text, "[1/2] a\n[1/2] \n[1/2] bc\n[1/2] head\n[1/2] ... 12 bytes are left "
                           "out here ...\n[1/2] tail\n[1/2] end\n");
}
