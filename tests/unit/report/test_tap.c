#include "tests/unit/report/report_case.h"

Test(tap, versions_directives_and_numbers)
{
    cleanup_report struct report *r =
        read_ok("TAP version 14\n1..7\nok 1 - one\nok\nnot ok 3 three # SKIP why\n"
                "not ok 4 - four # TODO later\nok 5 - five # todo\n"
                "ok 6 - a \\# b \\\\ c # Skipped: no\nnot ok 7 - seven #8\n");
    static const enum report_status expected[] = { REPORT_PASSED,  REPORT_PASSED, REPORT_SKIPPED,
                                                   REPORT_PENDING, REPORT_PASSED, REPORT_SKIPPED,
                                                   REPORT_FAILED };
    cr_assert_eq(r->n_cases, 7);
    for (size_t i = 0; i < 7; i++) {
        cr_expect_eq(r->cases[i].status, expected[i], "%zu: %s", i,
                     report_status_word(r->cases[i].status));
    }
    cr_assert_str_eq(r->cases[1].name, "(unnamed)");
    cr_assert_str_eq(r->cases[2].name, "three");
    cr_assert_str_eq(r->cases[2].message, "why", "SKIP wins over not ok");
    cr_assert_str_eq(r->cases[2].raw_status, "not ok");
    cr_assert_str_eq(r->cases[5].name, "a # b \\ c");
    cr_assert_str_eq(r->cases[5].message, "no");
    cr_assert_str_eq(r->cases[6].name, "seven #8");
    cr_assert_not(r->incomplete);
}

Test(tap, plans)
{
    static const struct {
        const char *tap, *note;
        bool incomplete;
    } plans[] = {
        { "1..2\nok\nok\n", "", false },
        { "ok\nok\n1..2\n", "", false },
        { "1..3\nok 1\nok 2\n", "planned 3 tests, ran 2", true },
        { "1..1\nok 1\nok 2\n", "planned 1 tests, ran 2", true },
        { "ok 1\nok 2\n", "no plan after 2 tests", true },
        { "1..2\nok 1\nBail out! disk\nok 2\n", "bail out: disk", true },
        { "1..1\nok 1\n1..2\nok 1\n", "planned 2 tests, ran 1", true },
        { "TAP version 13\n1..1\nok 1\nTAP version 13\n1..1\nok 1\n", "", false },
        { "    1..2\n    ok 1\n    ok 2\nok 1 - s\n1..1\n", "", false },
        { "    1..2\n    ok 1\nok 1 - s\n1..1\n", "s: planned 2 tests, ran 1", true },
        { "ok 1 - before\n    1..1\n    ok 1\nok 2 - s\n1..2\n", "", false },
        { "1..1\n    ok 1\n    1..1\n", "subtests without the line of their test", true },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        cleanup_report struct report *r = read_ok(plans[i].tap);
        cr_expect_eq(r->incomplete, plans[i].incomplete, "%zu", i);
        cr_expect(!plans[i].note[0] || noted(r, plans[i].note), "%zu: %s", i,
                  r->n_notes ? r->notes[0] : "no note");
        cr_expect(plans[i].incomplete || r->n_notes == 0, "%zu: %s", i,
                  r->n_notes ? r->notes[0] : "");
    }
}

Test(tap, bail_out_is_an_error_and_the_end)
{
    cleanup_report struct report *r = read_ok("1..9\nok 1\nBail out! no disk\nok 2\n");
    cr_assert_eq(r->n_cases, 2);
    cr_assert_eq(r->cases[1].status, REPORT_ERROR);
    cr_assert_str_eq(r->cases[1].message, "no disk");
}

Test(tap, everything_skipped)
{
    cleanup_report struct report *r = read_ok("1..0 # SKIP no database\n");
    cr_assert_eq(r->n_cases, 1);
    cr_assert_eq(r->cases[0].status, REPORT_SKIPPED);
    cr_assert_str_eq(r->cases[0].message, "no database");
    cr_assert(report_ok(r));
}

Test(tap, subtests_four_deep)
{
    cleanup_report struct report *r =
        read_ok("            ok 1 - leaf\n            1..1\n        ok 1 - c\n        1..1\n"
                "    ok 1 - b\n    1..1\nok 1 - a\nok 2 - next\n1..2\n");
    cr_assert_eq(r->n_cases, 5);
    cr_assert_str_eq(r->cases[0].name, "leaf");
    cr_assert_str_eq(r->cases[0].suite, "a > b > c");
    cr_assert_str_eq(r->cases[1].suite, "a > b");
    cr_assert_str_eq(r->cases[2].suite, "a");
    cr_assert_str_eq(r->cases[3].suite, "");
    cr_assert_str_eq(r->cases[4].suite, "");
    cr_assert_eq(r->n_notes, 0);
}

Test(tap, yaml_blocks)
{
    cleanup_report struct report *r =
        read_ok("1..2\nnot ok 1 - a\n  ---\n  message: 'it broke'\n  severity: fail\n"
                "  duration_ms: 12.5\n  at:\n  file: t/a.t\n  line: 7\n  data:\n"
                "    ok 9 - not a test\n  ...\n# after\nok 2 - b\n");
    cr_assert_eq(r->n_cases, 2);
    cr_assert_str_eq(r->cases[0].message, "it broke");
    cr_assert_eq(r->cases[0].time_us, 12500);
    cr_assert_str_eq(r->cases[0].file, "t/a.t");
    cr_assert_eq(r->cases[0].line, 7);
    cr_assert(strstr(r->cases[0].text, "  ok 9 - not a test\n"));
    cr_assert(strstr(r->cases[0].text, "after\n"));
    cleanup_report struct report *open =
        read_ok("1..1\nnot ok 1\n  ---\n  message: |\n    two\n    lines\n");
    cr_assert_str_eq(open->cases[0].message, "two", "a block that never ends");
}

Test(tap, other_output_is_passed_over)
{
    cleanup_report struct report *r =
        read_ok("hello\nOK (3 tests)\nok 1 - a\n ok 2 - odd indent\nokay\n{}\n"
                "<xml>\n1..1\r\n");
    cr_assert_eq(r->n_cases, 1);
    cr_assert_not(r->incomplete);
    read_refused(REPORT_FORMAT_TAP, "nothing\nhere\n", 13, ERR_INVALID,
                 "neither a plan nor a test line");
}

Test(tap, bytes_that_are_not_text)
{
    static const char tap[] = "1..1\nnot ok 1 - a\0b\xff\n# c\0\n";
    struct report *r = NULL;
    struct err err;
    cr_assert_eq(report_read(REPORT_FORMAT_UNKNOWN, tap, sizeof tap - 1, &r, &err), 0);
    cr_assert_str_eq(r->cases[0].name, "a\xef\xbf\xbd"
                                       "b\xef\xbf\xbd");
    report_free(r);
}

Test(tap, a_very_long_plan)
{
    cleanup_report struct report *r = read_ok("1..2147483647\nok\n");
    cr_assert(noted(r, "planned 2147483647 tests, ran 1"));
    cleanup_report struct report *none = read_ok("1..99999999999999999999\nok 1\n");
    cr_assert(noted(none, "no plan"));
}
