#include "tests/unit/report/report_case.h"

#define S(s) ((struct report_slice){ (s), strlen(s) })

static struct report *sample(void)
{
    struct report *r = report_new();
    struct err err;
    struct report_new c = { .suite = S("s <1>"),
                            .classname = S("c"),
                            .name = S("a \"b\" & 'c'\n\td"),
                            .file = S("t/a.c"),
                            .line = 12,
                            .time_us = 1500,
                            .status = REPORT_FAILED,
                            .message = S("is <2>\nnot 3"),
                            .type = S("T"),
                            .raw_status = S("TLE"),
                            .text = S("text ]]> \x1b[31m & \x0b\r\n"),
                            .stdout_text = S("out"),
                            .stderr_text = S("err\xef\xbf\xbf"),
                            .attempts = 3 };
    cr_assert_eq(report_add(r, &c, &err), 0);
    struct report_new p = {
        .suite = S("t"), .name = S("p"), .status = REPORT_PENDING, .time_us = -1
    };
    cr_assert_eq(report_add(r, &p, &err), 0);
    struct report_new o = {
        .suite = S("s <1>"), .name = S("o"), .status = REPORT_OTHER, .time_us = 2000
    };
    cr_assert_eq(report_add(r, &o, &err), 0);
    struct report_new e = {
        .suite = S("t > u"), .name = S("e"), .status = REPORT_ERROR, .time_us = 0
    };
    cr_assert_eq(report_add(r, &e, &err), 0);
    r->start_ms = 1795997905000;
    return r;
}

Test(write, junit_byte_for_byte)
{
    cleanup_report struct report *r = sample();
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 1 << 20);
    cr_assert_eq(report_write_junit(r, "run", &b, &err), 0);
    cr_assert_str_eq(b.data,
                     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                     "<testsuites name=\"run\" tests=\"4\" failures=\"1\" errors=\"1\" "
                     "skipped=\"2\" time=\"0.003500\""
                     " timestamp=\"2026-11-30T00:18:25\">\n"
                     "  <testsuite name=\"s &lt;1&gt;\" tests=\"2\" failures=\"1\" errors=\"0\" "
                     "skipped=\"1\" time=\"0.003500\""
                     " timestamp=\"2026-11-30T00:18:25\">\n"
                     "    <testcase name=\"a &quot;b&quot; &amp; 'c'&#10;&#9;d\" classname=\"c\" "
                     "time=\"0.001500\" file=\"t/a.c\""
                     " line=\"12\">\n"
                     "      <properties>\n"
                     "        <property name=\"brood.raw_status\" value=\"TLE\"/>\n"
                     "        <property name=\"brood.attempts\" value=\"3\"/>\n"
                     "      </properties>\n"
                     "      <failure message=\"is &lt;2&gt;&#10;not 3\" type=\"T\">text ]]&gt; "
                     "#x1B[31m &amp; #x0B&#13;\n"
                     "</failure>\n"
                     "      <system-out>out</system-out>\n"
                     "      <system-err>err#xFFFF</system-err>\n"
                     "    </testcase>\n"
                     "    <testcase name=\"o\" classname=\"s &lt;1&gt;\" time=\"0.002000\">\n"
                     "      <properties>\n"
                     "        <property name=\"brood.status\" value=\"other\"/>\n"
                     "      </properties>\n"
                     "      <skipped/>\n"
                     "    </testcase>\n"
                     "  </testsuite>\n"
                     "  <testsuite name=\"t\" tests=\"1\" failures=\"0\" errors=\"0\" "
                     "skipped=\"1\" time=\"0.000000\""
                     " timestamp=\"2026-11-30T00:18:25\">\n"
                     "    <testcase name=\"p\" classname=\"t\" time=\"0.000000\">\n"
                     "      <properties>\n"
                     "        <property name=\"brood.status\" value=\"pending\"/>\n"
                     "      </properties>\n"
                     "      <skipped/>\n"
                     "    </testcase>\n"
                     "  </testsuite>\n"
                     "  <testsuite name=\"t &gt; u\" tests=\"1\" failures=\"0\" errors=\"1\" "
                     "skipped=\"0\" time=\"0.000000\""
                     " timestamp=\"2026-11-30T00:18:25\">\n"
                     "    <testcase name=\"e\" classname=\"t &gt; u\" time=\"0.000000\">\n"
                     "      <error/>\n"
                     "    </testcase>\n"
                     "  </testsuite>\n"
                     "</testsuites>\n");
    cleanup_report struct report *again = read_ok(b.data);
    cr_assert_str_eq(again->cases[0].name, r->cases[0].name);
    cr_assert_str_eq(again->cases[0].message, r->cases[0].message);
    cr_assert_eq(again->cases[0].attempts, 3);
    cr_assert_str_eq(again->cases[0].raw_status, "TLE");
    cr_assert_eq(again->cases[1].status, REPORT_OTHER);
    cr_assert_eq(again->cases[2].status, REPORT_PENDING);
    cr_assert_eq(again->start_ms, r->start_ms);
}

Test(write, ctrf_byte_for_byte)
{
    cleanup_report struct report *r = sample();
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 1 << 20);
    struct report_ctrf_info info = { .commit = "abc", .branch = "main" };
    cr_assert_eq(report_write_ctrf(r, &info, &b, &err), 0);
    cr_assert_str_eq(
        b.data,
        "{\"reportFormat\":\"CTRF\",\"specVersion\":\"0.0.0\",\"generatedBy\":\"brood\","
        "\"results\":{"
        "\"tool\":{\"name\":\"brood\"},"
        "\"summary\":{\"tests\":4,\"passed\":0,\"failed\":2,\"skipped\":0,\"pending\":1,\"other\":"
        "1,"
        "\"start\":1795997905000,\"stop\":1795997905003},\"tests\":[\n"
        "{\"name\":\"a \\\"b\\\" & "
        "'c'\\n\\u0009d\",\"status\":\"failed\",\"duration\":2,\"suite\":[\"s <1>\"],"
        "\"message\":\"is <2>\\nnot 3\",\"trace\":\"text ]]> \\u001b[31m & "
        "\\u000b\\u000d\\n\",\"rawStatus\":\"TLE\","
        "\"filePath\":\"t/"
        "a.c\",\"line\":12,\"retries\":2,\"stdout\":[\"out\"],\"stderr\":[\"err\xef\xbf\xbf\"],"
        "\"extra\":{\"classname\":\"c\",\"type\":\"T\"}},\n"
        "{\"name\":\"p\",\"status\":\"pending\",\"duration\":0,\"suite\":[\"t\"]},\n"
        "{\"name\":\"o\",\"status\":\"other\",\"duration\":2,\"suite\":[\"s <1>\"]},\n"
        "{\"name\":\"e\",\"status\":\"failed\",\"duration\":0,\"suite\":[\"t\",\"u\"],"
        "\"rawStatus\":\"error\","
        "\"extra\":{\"status\":\"error\"}}],\"environment\":{\"commit\":\"abc\",\"branchName\":"
        "\"main\"}}}\n");
    cleanup_report struct report *again = read_ok(b.data);
    cr_assert_str_eq(again->cases[0].text, r->cases[0].text, "control characters survive");
    cr_assert_str_eq(again->cases[3].suite, "t > u");
    cr_assert_eq(again->cases[3].status, REPORT_ERROR);
}

Test(write, a_full_buffer)
{
    cleanup_report struct report *r = sample();
    cleanup_buf struct buf b = { 0 };
    struct err err;
    for (size_t max = 1; max < 300; max += 7) {
        buf_init(&b, max);
        cr_expect_eq(report_write_junit(r, "run", &b, &err), -ERR_TOO_LARGE);
        cr_expect_eq(report_write_ctrf(r, &(struct report_ctrf_info){ 0 }, &b, &err),
                     -ERR_TOO_LARGE);
        buf_done(&b);
    }
    buf_init(&b, 1);
}

/* Cases of one suite that came interleaved, as after a merge, are one element a suite and shard. */
Test(write, suites_are_put_together_and_shards_kept_apart)
{
    cleanup_report struct report *all = report_new();
    struct err err;
    for (int shard = 1; shard <= 2; shard++) {
        cleanup_report struct report *r =
            read_ok("<testsuites><testsuite name='b'><testcase name='1'/></testsuite>"
                    "<testsuite name='a'><testcase name='2'/></testsuite>"
                    "<testsuite name='b'><testcase name='3'/></testsuite></testsuites>");
        cr_assert_eq(report_merge(all, r, shard == 1 ? "1/2" : "2/2", &err), 0);
    }
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, 1 << 20);
    cr_assert_eq(report_write_junit(all, "x", &b, &err), 0);
    cleanup_report struct report *again = read_ok(b.data);
    static const char *const names[] = { "1", "3", "2", "1", "3", "2" };
    cr_assert_eq(again->n_cases, 6);
    for (size_t i = 0; i < 6; i++) {
        cr_expect_str_eq(again->cases[i].name, names[i]);
        cr_expect_str_eq(again->cases[i].shard, i < 3 ? "1/2" : "2/2");
    }
}
