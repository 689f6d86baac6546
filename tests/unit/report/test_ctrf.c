#include "tests/unit/report/report_case.h"

#define HEAD                                                                                       \
    "{\"reportFormat\":\"CTRF\",\"specVersion\":\"0.0.0\",\"results\":{\"tool\":{\"name\":"        \
    "\"jest\"},"
#define SUMMARY                                                                                    \
    "\"summary\":{\"tests\":1,\"passed\":0,\"failed\":1,\"skipped\":0,\"pending\":0,\"other\":0,"  \
    "\"start\":5,\"stop\":9},"

Test(ctrf, everything_that_is_read)
{
    cleanup_report struct report *r =
        read_ok(HEAD SUMMARY "\"tests\":[{\"name\":\"n\",\"status\":\"failed\",\"duration\":12.5,"
                             "\"suite\":[\"a\",\"b\"],"
                             "\"message\":\"m\",\"trace\":\"t\",\"rawStatus\":\"timedOut\","
                             "\"filePath\":\"f.js\",\"line\":3,"
                             "\"retries\":2,\"stdout\":[\"x\",\"y\"],\"stderr\":[\"z\"],\"extra\":{"
                             "\"shard\":\"1/2\"}}]}}");
    const struct report_case *c = &r->cases[0];
    cr_assert_str_eq(r->tool, "jest");
    cr_assert_eq(r->start_ms, 5);
    cr_assert_eq(r->stop_ms, 9);
    cr_assert_str_eq(c->suite, "a > b");
    cr_assert_eq(c->time_us, 12500);
    cr_assert_eq(c->attempts, 3);
    cr_assert_eq(c->line, 3);
    cr_assert_str_eq(c->raw_status, "timedOut");
    cr_assert_str_eq(c->stdout_text, "x\ny");
    cr_assert_str_eq(c->stderr_text, "z");
    cr_assert_str_eq(c->shard, "1/2");
    cr_assert_eq(r->n_notes, 0);
}

Test(ctrf, statuses)
{
    cleanup_report struct report *r = read_ok(
        HEAD
        "\"tests\":[{\"name\":\"1\",\"status\":\"passed\"},{\"name\":\"2\",\"status\":\"skipped\"},"
        "{\"name\":\"3\",\"status\":\"pending\"},{\"name\":\"4\",\"status\":\"other\"},"
        "{\"name\":\"5\",\"status\":\"failed\",\"rawStatus\":\"error\"},{\"name\":\"6\",\"status\":"
        "\"exploded\"},"
        "{\"status\":\"passed\",\"extra\":{\"status\":\"error\"}}]}}");
    static const enum report_status expected[] = { REPORT_PASSED, REPORT_SKIPPED, REPORT_PENDING,
                                                   REPORT_OTHER,  REPORT_ERROR,   REPORT_OTHER,
                                                   REPORT_PASSED };
    for (size_t i = 0; i < 7; i++) {
        cr_expect_eq(r->cases[i].status, expected[i], "%zu", i);
    }
    cr_assert_str_eq(r->cases[6].name, "(unnamed)");
    cr_assert_eq(r->cases[6].time_us, -1);
}

Test(ctrf, a_summary_that_does_not_agree)
{
    cleanup_report struct report *r = read_ok(HEAD SUMMARY "\"tests\":[]}}");
    cr_assert(noted(r, "says 1 tests, the list has 0"));
    cr_assert(r->incomplete);
}

Test(ctrf, refused)
{
    static const struct {
        const char *json, *why;
    } bad[] = {
        { "{\"results\":{}}", "results.tests: must be a list" },
        { "{\"results\":{\"tests\":{}}}", "results.tests: must be a list" },
        { "{\"results\":{\"tests\":[1]}}", "results.tests[0]: must be an object" },
        { "{\"results\":", "not JSON: line 1" },
        { "{\"reportFormat\":\"CTRF\"} x", "not JSON" },
        { "{\"results\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
          "nested deeper than 32" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        read_refused(REPORT_FORMAT_CTRF, bad[i].json, strlen(bad[i].json), ERR_INVALID, bad[i].why);
    }
}

Test(ctrf, values_at_the_maximum_and_one_above)
{
    /* two objects, one list, its values, and one for the document */
    size_t n = REPORT_JSON_VALUES_MAX - 3;
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, REPORT_INPUT_BYTES_MAX);
    cr_assert_eq(buf_add_str(&b, "{\"results\":{\"x\":[0", &err), 0);
    for (size_t i = 1; i < n; i++) {
        cr_assert_eq(buf_add(&b, ",0", 2, &err), 0);
    }
    size_t at = b.len;
    cr_assert_eq(buf_add_str(&b, "]}}", &err), 0);
    read_refused(REPORT_FORMAT_CTRF, b.data, b.len, ERR_INVALID, "results.tests: must be a list");
    b.len = at;
    cr_assert_eq(buf_add_str(&b, ",0]}}", &err), 0);
    read_refused(REPORT_FORMAT_CTRF, b.data, b.len, ERR_TOO_LARGE, "more than 1000000 JSON values");
}
