/* Files that real tools wrote (tests/data/reports/README says which and how): counts, names, places
 * and messages. The lines were printed by the reader once and then compared with the files by eye;
 * a change in them has to be explained. */
#include "common/base/cleanup.h"
#include "tests/unit/report/report_case.h"

struct expected {
    const char *file;
    enum report_format format;
    bool incomplete;
    size_t count[REPORT_STATUS_END]; /* passed failed error skipped pending other */
    /* a line a case: status|suite|class|name|file:line|first line of the message */
    const char *cases;
};

static const struct expected files[] = {
    { "bats.tap",
      REPORT_FORMAT_TAP,
      0,
      { 1, 1, 0, 1, 0, 0 },
      "passed|||passes|:0|\n"
      "failed|||fails & <says> so|:0|(in test file sample.bats, line 6)\n"
      "skipped|||skipped|:0|not today\n" },
    { "bats.tap13",
      REPORT_FORMAT_TAP,
      0,
      { 1, 1, 0, 1, 0, 0 },
      "passed|||passes|:0|\n"
      "failed|||fails & <says> so|:0|(in test file sample.bats, line 6)\n"
      "skipped|||skipped|:0|not today\n" },
    { "bats.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 1, 1, 0, 1, 0, 0 },
      "passed|sample.bats|sample.bats|passes|:0|\n"
      "failed|sample.bats|sample.bats|fails & <says> so|:0|(in test file sample.bats, line 6)\n"
      "skipped|sample.bats|sample.bats|skipped|:0|not today\n" },
    { "check.tap",
      REPORT_FORMAT_TAP,
      0,
      { 1, 2, 0, 0, 0, 0 },
      "passed|||check_sample.c:core:passes: Passed|:0|\n"
      "failed|||check_sample.c:core:fails: Assertion '1 + 1 == 3' failed: 1 + 1 == 2, 3 == 3|:0|\n"
      "failed|||check_sample.c:core:crashes: Received signal 6 (Aborted)|:0|\n" },
    { "check.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 1, 1, 1, 0, 0, 0 },
      "passed|sample|core|passes|check_sample.c:3|\n"
      "failed|sample|core|fails|check_sample.c:9|Assertion '1 + 1 == 3' failed: 1 + 1 == 2, 3 == "
      "3\n"
      "error|sample|core|crashes|check_sample.c:12|Received signal 6 (Aborted)\n" },
    { "cmocka.tap",
      REPORT_FORMAT_TAP,
      0,
      { 1, 1, 0, 1, 0, 0 },
      "passed|||passes|:0|\n"
      "failed|||fails|:0|0x1 != 0x2\n"
      "skipped|||test 3|:0|skipped\n" },
    { "cmocka.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 1, 1, 0, 1, 0, 0 },
      "passed|sample||passes|:0|\n"
      "failed|sample||fails|cmocka_sample.c:13|0x1 != 0x2\n"
      "skipped|sample||skipped|:0|\n" },
    { "cpython.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 12, 0, 0, 0, 0, 0 },
      "passed|||test.test_int_literal.TestHexOctBin.test_bin_baseline|:0|\n"
      "passed|||test.test_int_literal.TestHexOctBin.test_bin_unsigned|:0|\n"
      "passed|||test.test_int_literal.TestHexOctBin.test_hex_baseline|:0|\n"
      "passed|||test.test_int_literal.TestHexOctBin.test_hex_unsigned|:0|\n"
      "passed|||test.test_int_literal.TestHexOctBin.test_oct_baseline|:0|\n"
      "passed|||test.test_int_literal.TestHexOctBin.test_oct_unsigned|:0|\n"
      "passed|||test.test_colorsys.ColorsysTest.test_hls_roundtrip|:0|\n"
      "passed|||test.test_colorsys.ColorsysTest.test_hls_values|:0|\n"
      "passed|||test.test_colorsys.ColorsysTest.test_hsv_roundtrip|:0|\n"
      "passed|||test.test_colorsys.ColorsysTest.test_hsv_values|:0|\n"
      "passed|||test.test_colorsys.ColorsysTest.test_yiq_roundtrip|:0|\n"
      "passed|||test.test_colorsys.ColorsysTest.test_yiq_values|:0|\n" },
    { "cpython_failed.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 1, 1, 0, 1, 0, 0 },
      "failed|||test.test_zz_sample.Sample.test_fails|:0|AssertionError: 1 != 2\n"
      "passed|||test.test_zz_sample.Sample.test_passes|:0|\n"
      "skipped|||test.test_zz_sample.Sample.test_skipped|:0|not today\n" },
    { "criterion.tap",
      REPORT_FORMAT_TAP,
      0,
      { 1, 2, 0, 1, 0, 0 },
      "skipped|||sample::skipped|:0|not today\n"
      "passed|||sample::passes|:0|\n"
      "failed|||sample::fails|:0|assertions: 1\n"
      "failed|||sample::crashes unexpected signal after criterion_sample.c:10|:0|\n" },
    { "criterion.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 1, 1, 1, 1, 0, 0 },
      "skipped|sample||skipped|:0|\n"
      "passed|sample||passes|:0|\n"
      "failed|sample||fails|criterion_sample.c:8|1 assertion(s) failed.\n"
      "error|sample||crashes|:0|The test crashed.\n" },
    { "ctest.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 1, 2, 1, 2, 0, 0 },
      "passed|(empty)|passes|passes|:0|\n"
      "failed|(empty)|fails|fails|:0|\n"
      "skipped|(empty)|skipped|skipped|:0|SKIP_RETURN_CODE=77\n"
      "skipped|(empty)|disabled|disabled|:0|\n"
      "error|(empty)|missing|missing|:0|Unable to find executable\n"
      "failed|(empty)|slow|slow|:0|\n" },
    { "go.jsonl",
      REPORT_FORMAT_GO,
      0,
      { 5, 4, 1, 1, 0, 0 },
      "passed|example.org/sample|example.org/sample|TestPasses|:0|\n"
      "failed|example.org/sample|example.org/sample|TestFails|sample_test.go:9|got 2, want 3\n"
      "skipped|example.org/sample|example.org/sample|TestSkipped|sample_test.go:11|not today\n"
      "passed|example.org/sample|example.org/sample|TestGroup/sub_one|:0|\n"
      "failed|example.org/sample|example.org/sample|TestGroup/sub/two|sample_test.go:15|two broke\n"
      "failed|example.org/sample|example.org/sample|TestGroup|:0|\n"
      "passed|example.org/sample|example.org/sample|TestParallelA|:0|\n"
      "passed|example.org/sample|example.org/sample|TestParallelB|:0|\n"
      "error|example.org/sample/broken|example.org/sample/broken|(package)|:0|[build failed]\n"
      "passed|example.org/sample/panics|example.org/sample/panics|TestBefore|:0|\n"
      "failed|example.org/sample/panics|example.org/sample/panics|TestPanics|example.org/sample/"
      "panics/panics_test.go:6|panic: assignment to entry in nil map [recovered]\n" },
    { "gtest.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 2, 2, 0, 2, 0, 0 },
      "passed|Sample|Sample|Passes|gtest_sample.cc:2|\n"
      "failed|Sample|Sample|Fails|gtest_sample.cc:3|gtest_sample.cc:3\n"
      "skipped|Sample|Sample|Skipped|gtest_sample.cc:4|gtest_sample.cc:4\n"
      "skipped|Sample|Sample|DISABLED_Off|gtest_sample.cc:5|\n"
      "passed|All/Numbers|All/Numbers|Small/0|gtest_sample.cc:7|\n"
      "failed|All/Numbers|All/Numbers|Small/1|gtest_sample.cc:7|gtest_sample.cc:7\n" },
    { "junit-to-ctrf.json",
      REPORT_FORMAT_CTRF,
      0,
      { 2, 4, 0, 2, 0, 0 },
      "passed|pytest||pytest: test_passes|:0|\n"
      "failed|pytest||pytest: test_fails|:0|AssertionError: sum < 3 & so \"on\"\n"
      "passed|pytest||pytest: test_param[1]|:0|\n"
      "failed|pytest||pytest: test_param[2]|:0|assert 2 == 1\n"
      "skipped|pytest||pytest: test_skipped|:0|\n"
      "skipped|pytest||pytest: test_xfail|:0|\n"
      "failed|pytest||pytest: test_setup_error|:0|failed on setup with \"RuntimeError: no "
      "database\"\n"
      "failed|pytest||pytest: test_control|:0|ValueError: bell #x07 here\n" },
    { "node.tap",
      REPORT_FORMAT_TAP,
      0,
      { 2, 2, 0, 1, 1, 0 },
      "passed|||passes|:0|\n"
      "failed|||fails|/tmp/sample/sample.test.mjs:5|Expected values to be strictly equal:\n"
      "skipped|||skipped|:0|not today\n"
      "pending|||later|/tmp/sample/sample.test.mjs:7|write it\n"
      "passed|group||inner passes|:0|\n"
      "failed|group||inner fails|/tmp/sample/sample.test.mjs:10|inner <broke>\n" },
    { "node.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 2, 2, 0, 1, 1, 0 },
      "passed||test|passes|:0|\n"
      "failed||test|fails|:0|Expected values to be strictly equal:1 !== 2\n"
      "skipped||test|skipped|:0|not today\n"
      "pending||test|later|:0|write it\n"
      "passed|group|test|inner passes|:0|\n"
      "failed|group|test|inner fails|:0|inner <broke>\n" },
    { "perl_all_skipped.tap",
      REPORT_FORMAT_TAP,
      0,
      { 0, 0, 0, 1, 0, 0 },
      "skipped|||(all)|:0|no database\n" },
    { "perl_bails.tap",
      REPORT_FORMAT_TAP,
      1,
      { 1, 0, 1, 0, 0, 0 },
      "passed|||first|:0|\n"
      "error|||(bail out)|:0|the disk is gone\n" },
    { "perl_sample.tap",
      REPORT_FORMAT_TAP,
      0,
      { 2, 3, 0, 1, 1, 0 },
      "passed|||passes|:0|\n"
      "failed|||fails|:0|\n"
      "skipped|||test 3|:0|not today\n"
      "pending|||later|:0|write it\n"
      "passed|group||inner passes|:0|\n"
      "failed|group||inner # fails|:0|\n"
      "failed|||group|:0|\n" },
    { "prove.tap",
      REPORT_FORMAT_TAP,
      0,
      { 2, 3, 0, 2, 1, 0 },
      "passed|perl/sample.t||passes|:0|\n"
      "failed|perl/sample.t||fails|:0|\n"
      "skipped|perl/sample.t||test 3|:0|not today\n"
      "pending|perl/sample.t||later|:0|write it\n"
      "passed|perl/sample.t > group||inner passes|:0|\n"
      "failed|perl/sample.t > group||inner # fails|:0|\n"
      "failed|perl/sample.t||group|:0|\n"
      "skipped|perl/all_skipped.t||(all)|:0|no database\n" },
    { "pytest.xml",
      REPORT_FORMAT_JUNIT,
      0,
      { 2, 3, 1, 2, 0, 0 },
      "passed|pytest|test_sample|test_passes|:0|\n"
      "failed|pytest|test_sample|test_fails|test_sample.py:10|AssertionError: sum < 3 & so \"on\"\n"
      "passed|pytest|test_sample|test_param[1]|:0|\n"
      "failed|pytest|test_sample|test_param[2]|test_sample.py:15|assert 2 == 1\n"
      "skipped|pytest|test_sample|test_skipped|:0|not today\n"
      "skipped|pytest|test_sample|test_xfail|:0|known bug\n"
      "error|pytest|test_sample|test_setup_error|test_sample.py:30|failed on setup with "
      "\"RuntimeError: no database\"\n"
      "failed|pytest|test_sample.TestGroup|test_control|test_sample.py:40|ValueError: bell #x07 "
      "here\n" },
};

static struct report *read_file(const char *name)
{
    char path[512];
    struct err err = { 0 };
    struct report *r = NULL;
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, REPORT_INPUT_BYTES_MAX);
    (void)snprintf(path, sizeof path, "%s/tests/data/reports/%s", BROOD_SOURCE_DIR, name);
    cr_assert_eq(buf_read_file(&b, path, &err), 0, "%s", err.text);
    cr_assert_eq(report_read(REPORT_FORMAT_UNKNOWN, b.data, b.len, &r, &err), 0, "%s: %s", name,
                 err.text);
    return r;
}

static void lines_of(const struct report *r, struct buf *out)
{
    for (size_t i = 0; i < r->n_cases; i++) {
        const struct report_case *c = &r->cases[i];
        int rc = buf_addf(out, NULL, "%s|%s|%s|%s|%s:%d|%.*s\n", report_status_word(c->status),
                          c->suite, c->classname, c->name, c->file, c->line,
                          (int)strcspn(c->message, "\n"), c->message);
        cr_assert_eq(rc, 0);
    }
}

Test(files, as_the_tools_wrote_them)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const struct expected *e = &files[i];
        cleanup_report struct report *r = read_file(e->file);
        cr_expect_eq(r->format, e->format, "%s", e->file);
        cr_expect_eq(r->incomplete, e->incomplete, "%s", e->file);
        for (int s = 0; s < REPORT_STATUS_END; s++) {
            cr_expect_eq(r->count[s], e->count[s], "%s: %zu are %s", e->file, r->count[s],
                         report_status_word((enum report_status)s));
        }
        cleanup_buf struct buf lines = { 0 };
        buf_init(&lines, 1 << 20);
        lines_of(r, &lines);
        cr_expect_str_eq(lines.data, e->cases, "%s", e->file);
    }
}

/* What only some producers give. */
Test(files, details)
{
    cleanup_report struct report *pytest = read_file("pytest.xml");
    cr_assert_str_eq(pytest->tool, "pytest");
    cr_assert_eq(pytest->cases[0].time_us, 1000);
    cr_assert(pytest->start_ms > 1700000000000);
    cr_assert_str_eq(pytest->cases[5].type, "pytest.xfail");
    cr_assert(strstr(pytest->cases[1].text, "E       assert (1 + 1) == 3"));
    cr_assert(strstr(pytest->cases[1].message, "sum < 3 & so \"on\""));

    cleanup_report struct report *gtest = read_file("gtest.xml");
    cr_assert(strstr(gtest->cases[1].text, "one & two"), "both failures are in the text");
    cr_assert(strstr(gtest->cases[1].text, "Value of: false"));

    cleanup_report struct report *ctest = read_file("ctest.xml");
    cr_assert(strstr(ctest->cases[0].stdout_text, "seen on stdout"));
    cr_assert_str_eq(ctest->cases[5].raw_status, "fail");
    cr_assert(ctest->cases[5].time_us >= 1000000, "the one that timed out");

    cleanup_report struct report *go = read_file("go.jsonl");
    cr_assert_str_eq(go->cases[0].stdout_text, "seen on stdout\n");
    cr_assert(go->stop_ms > go->start_ms && go->start_ms > 1700000000000);
    cr_assert(strstr(go->cases[10].text, "assignment to entry in nil map"));

    cleanup_report struct report *prove = read_file("prove.tap");
    cr_assert_str_eq(prove->tool, "prove");
    cr_assert_str_eq(prove->cases[4].suite, "perl/sample.t > group");

    cleanup_report struct report *node = read_file("node.tap");
    cr_assert(node->cases[1].time_us > 0);
    cr_assert(strstr(node->cases[1].text, "operator: 'strictEqual'"));
}

/* Whatever was read can be written in both formats and read again with the same cases. */
Test(files, written_and_read_again)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cleanup_report struct report *r = read_file(files[i].file);
        struct err err;
        cleanup_buf struct buf xml = { 0 }, json = { 0 }, before = { 0 }, after = { 0 };
        buf_init(&xml, 1 << 20);
        buf_init(&json, 1 << 20);
        buf_init(&before, 1 << 20);
        buf_init(&after, 1 << 20);
        cr_assert_eq(report_write_junit(r, "all", &xml, &err), 0);
        cr_assert_eq(report_write_ctrf(r, &(struct report_ctrf_info){ 0 }, &json, &err), 0);
        cleanup_report struct report *from_json = read_ok(json.data);
        cr_assert_eq(from_json->format, REPORT_FORMAT_CTRF);
        lines_of(r, &before);
        lines_of(from_json, &after);
        cr_expect_str_eq(after.data, before.data, "%s", files[i].file);
        cleanup_report struct report *from_xml = read_ok(xml.data);
        cr_assert_eq(from_xml->format, REPORT_FORMAT_JUNIT);
        for (int s = 0; s < REPORT_STATUS_END; s++) {
            cr_expect_eq(from_xml->count[s], r->count[s], "%s", files[i].file);
        }
        cr_expect_eq(from_xml->n_notes, 0, "%s: %s", files[i].file,
                     from_xml->n_notes ? from_xml->notes[0] : "");
    }
}
