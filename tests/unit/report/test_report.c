#include "tests/unit/report/report_case.h"

#define S(s) ((struct report_slice){ (s), strlen(s) })

static void add(struct report *r, const char *suite, const char *name, enum report_status status,
                int64_t time_us)
{
    struct err err;
    struct report_new c = {
        .suite = S(suite), .name = S(name), .status = status, .time_us = time_us
    };
    cr_assert_eq(report_add(r, &c, &err), 0, "%s", err.text);
}

Test(report, an_empty_one)
{
    cleanup_report struct report *r = report_new();
    cr_assert(report_ok(r));
    cr_assert_eq(report_worst(r), REPORT_PASSED);
    report_free(NULL);
}

Test(report, the_worst_status)
{
    static const enum report_status rising[] = { REPORT_PASSED, REPORT_SKIPPED, REPORT_PENDING,
                                                 REPORT_OTHER,  REPORT_FAILED,  REPORT_ERROR };
    cleanup_report struct report *r = report_new();
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++) {
        add(r, "s", "n", rising[i], 1);
        add(r, "s", "n", REPORT_PASSED, -1);
        cr_expect_eq(report_worst(r), rising[i]);
        cr_expect_eq(report_ok(r), i < 4);
        cr_expect_eq(report_status_of(report_status_word(rising[i])), rising[i]);
    }
    cr_assert_eq(report_time_us(r), 6);
    cr_assert_eq(report_status_of("nonsense"), REPORT_STATUS_END);
}

Test(report, strings_are_cut_at_a_characters_end)
{
    cleanup_report struct report *r = report_new();
    static char name[REPORT_NAME_BYTES_MAX + 3];
    memset(name, 'x', sizeof name);
    memcpy(name + REPORT_NAME_BYTES_MAX - 1, "\xc3\xbc", 2); /* does not fit as a whole */
    struct err err;
    struct report_new c = { .name = { name, REPORT_NAME_BYTES_MAX - 1 },
                            .suite = { name, sizeof name } };
    cr_assert_eq(report_add(r, &c, &err), 0);
    cr_assert_eq(strlen(r->cases[0].name), REPORT_NAME_BYTES_MAX - 1);
    cr_assert_eq(strlen(r->cases[0].suite), REPORT_NAME_BYTES_MAX - 1);
    cr_assert(r->cases[0].cut);
    c = (struct report_new){ .name = { name, REPORT_NAME_BYTES_MAX - 1 } };
    cr_assert_eq(report_add(r, &c, &err), 0);
    cr_assert_not(r->cases[1].cut);
}

Test(report, bytes_become_utf8)
{
    cleanup_report struct report *r = report_new();
    struct err err;
    /* a lone continuation, an overlong slash, a surrogate, beyond U+10FFFF, a cut character, NUL;
     * then valid ones */
    static const char raw[] =
        "\x80 \xc0\xaf \xed\xa0\x80 \xf5\x80\x80\x80 \xe2\x82 \0 \xf0\x9f\x90\xa3";
    struct report_new c = { .name = { raw, sizeof raw - 1 } };
    cr_assert_eq(report_add(r, &c, &err), 0);
#define R "\xef\xbf\xbd"
    cr_assert_str_eq(r->cases[0].name,
                     R " " R R " " R R R " " R R R R " " R R " " R " \xf0\x9f\x90\xa3");
#undef R
}

Test(report, cases_at_the_maximum_and_one_above)
{
    cleanup_report struct report *r = report_new();
    for (size_t i = 0; i < REPORT_CASES_MAX; i++) {
        add(r, "one suite", "n", REPORT_PASSED, 0);
    }
    struct err err;
    struct report_new c = { .name = S("n") };
    cr_assert_eq(report_add(r, &c, &err), -ERR_TOO_LARGE);
    cr_assert_str_eq(err.text, "more than 200000 tests");
    cr_assert_eq(r->n_cases, REPORT_CASES_MAX);
    cr_assert(r->name_bytes < 3 * REPORT_CASES_MAX, "the suite is stored once");

    cleanup_report struct report *into = report_new();
    add(into, "s", "first", REPORT_PASSED, 0);
    cr_assert_eq(report_merge(into, r, "b", &err), -ERR_TOO_LARGE);
    cr_assert_eq(into->n_cases, REPORT_CASES_MAX, "what fitted is kept");
    cr_assert(into->incomplete);
    cr_assert(noted(into, "b: more than 200000 tests: the rest is left out"));
}

Test(report, texts_over_the_budget_are_dropped_and_counted)
{
    cleanup_report struct report *r = report_new();
    static char text[REPORT_TEXT_BYTES_MAX];
    memset(text, 't', sizeof text);
    struct err err;
    struct report_new c = { .name = S("n"),
                            .text = { text, sizeof text },
                            .status = REPORT_FAILED };
    size_t n = REPORT_TEXTS_BYTES_MAX / sizeof text;
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(report_add(r, &c, &err), 0);
    }
    cr_assert_eq(r->texts_dropped, 1, "each needs a byte more than its text");
    cr_assert_str_eq(r->cases[n - 1].text, "");
    cr_assert_str_eq(r->cases[n - 1].name, "n");
    cr_assert(r->cases[n - 1].cut);
    cr_assert_eq(r->count[REPORT_FAILED], n);
}

Test(report, names_over_the_budget_are_refused)
{
    cleanup_report struct report *r = report_new();
    static char name[REPORT_NAME_BYTES_MAX];
    memset(name, 'n', sizeof name);
    struct err err;
    struct report_new c = { .name = { name, sizeof name } };
    size_t n = REPORT_NAMES_BYTES_MAX / (sizeof name + 1);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(report_add(r, &c, &err), 0);
    }
    cr_assert_eq(report_add(r, &c, &err), -ERR_TOO_LARGE);
    cr_assert_str_eq(err.text, "names of all tests: more than 67108864 bytes");
    cr_assert_eq(r->n_cases, n);
}

Test(report, notes_are_bounded)
{
    cleanup_report struct report *r = report_new();
    for (unsigned i = 0; i < REPORT_NOTES_MAX + 5; i++) {
        report_note(r, "%01000d\x1b[31m", i);
    }
    cr_assert_eq(r->n_notes, REPORT_NOTES_MAX);
    cr_assert_eq(r->notes_dropped, 5);
    cr_assert_eq(strlen(r->notes[0]), REPORT_NOTE_BYTES_MAX);
}

Test(report, input_at_the_maximum_and_one_above)
{
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, REPORT_INPUT_BYTES_MAX + 1);
    void *p = buf_reserve(&b, REPORT_INPUT_BYTES_MAX + 1, &err);
    cr_assert_not_null(p);
    memset(p, '\n', REPORT_INPUT_BYTES_MAX + 1);
    memcpy(p, "1..1\nok\n", 8);
    struct report *r = NULL;
    cr_assert_eq(report_read(REPORT_FORMAT_UNKNOWN, p, REPORT_INPUT_BYTES_MAX, &r, &err), 0);
    report_free(r);
    read_refused(REPORT_FORMAT_UNKNOWN, p, REPORT_INPUT_BYTES_MAX + 1, ERR_TOO_LARGE,
                 "at most 33554432");
    read_refused(REPORT_FORMAT_UNKNOWN, "", 0, ERR_INVALID, "empty");
}

Test(report, a_merge)
{
    cleanup_report struct report *a =
        read_ok("<testsuite timestamp='2026-11-30T10:00:00'><testcase name='x'/></testsuite>");
    cleanup_report struct report *b = read_ok("1..2\nok 1 - y\n");
    cleanup_report struct report *all = report_new();
    struct err err;
    cr_assert_eq(report_merge(all, b, "2/2", &err), 0);
    cr_assert_eq(report_merge(all, a, "1/2", &err), 0);
    cr_assert_eq(all->n_cases, 2);
    cr_assert_str_eq(all->cases[0].shard, "2/2");
    cr_assert_str_eq(all->cases[1].shard, "1/2");
    cr_assert(all->incomplete);
    cr_assert(noted(all, "2/2: tap: planned 2 tests, ran 1"));
    cr_assert_eq(all->start_ms, a->start_ms);
    cleanup_report struct report *outer = report_new();
    cr_assert_eq(report_merge(outer, all, "other", &err), 0);
    cr_assert_str_eq(outer->cases[0].shard, "2/2", "a shard that is there stays");
    cr_assert_eq(report_merge(outer, all, NULL, &err), 0);
    cr_assert_eq(outer->n_cases, 4, "duplicates are kept");
}

Test(report, detect)
{
    static const struct {
        const char *text;
        enum report_format format;
    } texts[] = {
        { "<?xml version='1.0'?><testsuite/>", REPORT_FORMAT_JUNIT },
        { "\xef\xbb\xbf \n<testsuites/>", REPORT_FORMAT_JUNIT },
        { "TAP version 14\n", REPORT_FORMAT_TAP },
        { "some noise\n1..4\n", REPORT_FORMAT_TAP },
        { "not ok\n", REPORT_FORMAT_TAP },
        { "# pkg\nx.go:1: oops\n{\"Time\":\"x\",\"Action\":\"run\",\"Package\":\"p\"}\n",
          REPORT_FORMAT_GO },
        { "{\n \"reportFormat\": \"CTRF\",\n \"results\": {}}", REPORT_FORMAT_CTRF },
        { "{\"results\": {\"tool\": {}}}", REPORT_FORMAT_CTRF },
        { "{\"a\": 1}", REPORT_FORMAT_UNKNOWN },
        { "OK (3 tests)\n", REPORT_FORMAT_UNKNOWN },
        { "1...\n", REPORT_FORMAT_UNKNOWN },
        { "\x7f"
          "ELF",
          REPORT_FORMAT_UNKNOWN },
        { "", REPORT_FORMAT_UNKNOWN },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_expect_eq(report_detect(texts[i].text, strlen(texts[i].text)), texts[i].format, "%zu",
                     i);
    }
    read_refused(REPORT_FORMAT_UNKNOWN, "hello", 5, ERR_INVALID, "none of the formats known here");
}

Test(report, dates)
{
    static const struct {
        const char *date;
        int64_t ms;
    } dates[] = {
        { "2026-11-30T00:18:25.982", 1795997905982 },
        { "2026-11-30 00:18:25", 1795997905000 },
        { "2026-11-30T00:18:25Z", 1795997905000 },
        { "2026-11-30T02:18:25+02:00", 1795997905000 },
        { "2026-11-29T22:18:25.5-0200", 1795997905500 },
        { "2026-13-30T00:18:25", 0 },
        { "1970-01-01T00:00:00.000", 0 },
        { "yesterday", 0 },
        { "2026-11-30", 0 },
        { "2026-11-30T00:18", 0 },
    };
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        char xml[200];
        (void)snprintf(xml, sizeof xml, "<testsuite timestamp='%s'/>", dates[i].date);
        cleanup_report struct report *r = read_ok(xml);
        cr_expect_eq(r->start_ms, dates[i].ms, "%s: %lld", dates[i].date, (long long)r->start_ms);
    }
}
