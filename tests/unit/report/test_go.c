#include "tests/unit/report/report_case.h"

#define LINE(action, test, more) "{\"Action\":\"" action "\",\"Package\":\"p\"" test more "}\n"
#define T1 ",\"Test\":\"T1\""
#define T2 ",\"Test\":\"T2\""

Test(go, interleaved_tests_keep_their_own_output)
{
    cleanup_report struct report *r = read_ok(
        LINE("run", T1, "") LINE("run", T2, "") LINE("output", T1, ",\"Output\":\"one \"")
            LINE("output", T2, ",\"Output\":\"two\\u0000\"")
                LINE("output", T1, ",\"Output\":\"more\"") LINE("pass", T2, ",\"Elapsed\":0.5")
                    LINE("fail", T1, ",\"Elapsed\":1.25") LINE("fail", "", ""));
    cr_assert_eq(r->n_cases, 2);
    cr_assert_str_eq(r->cases[0].name, "T2");
    cr_assert_str_eq(r->cases[0].stdout_text, "two\xef\xbf\xbd");
    cr_assert_eq(r->cases[0].time_us, 500000);
    cr_assert_str_eq(r->cases[1].text, "one more");
    cr_assert_eq(r->cases[1].time_us, 1250000);
    cr_assert_not(r->incomplete);
}

Test(go, a_test_that_did_not_end)
{
    cleanup_report struct report *r = read_ok(LINE("run", T1, "") LINE(
        "output", T1, ",\"Output\":\"panic: test timed out\\n\"") LINE("fail", "", ""));
    cr_assert_eq(r->n_cases, 1, "the package's failure is explained by the test's");
    cr_assert_eq(r->cases[0].status, REPORT_ERROR);
    cr_assert_str_eq(r->cases[0].raw_status, "not ended");
    cr_assert_str_eq(r->cases[0].message, "panic: test timed out");
}

Test(go, a_stream_that_broke_off)
{
    cleanup_report struct report *r =
        read_ok(LINE("run", T1, "") LINE("pass", T1, "") LINE("run", T2, ""));
    cr_assert_eq(r->count[REPORT_ERROR], 1);
    cr_assert(r->incomplete);
    cr_assert(noted(r, "package p did not end"));
}

Test(go, a_package_that_failed_alone)
{
    cleanup_report struct report *r = read_ok(LINE("run", T1, "") LINE("pass", T1, "") LINE(
        "output", "", ",\"Output\":\"exit status 3\\n\"") LINE("fail", "", ",\"Elapsed\":2"));
    cr_assert_eq(r->n_cases, 2);
    cr_assert_eq(r->cases[1].status, REPORT_ERROR);
    cr_assert_str_eq(r->cases[1].name, "(package)");
    cr_assert_str_eq(r->cases[1].message, "exit status 3");
    cr_assert_eq(r->cases[1].time_us, 2000000);
}

Test(go, build_failures)
{
    cleanup_report struct report *old =
        read_ok(LINE("pass", "", "") "FAIL\tq [build failed]\nFAIL\tq [build failed]\n");
    cr_assert_eq(old->n_cases, 1, "said twice is one failure");
    cr_assert_str_eq(old->cases[0].suite, "q");
    cr_assert_eq(old->cases[0].status, REPORT_ERROR);
    cleanup_report struct report *new = read_ok(
        "{\"ImportPath\":\"q [q.test]\",\"Action\":\"build-output\",\"Output\":\"q/a.go:3: "
        "undefined: x\\n\"}\n"
        "{\"ImportPath\":\"q [q.test]\",\"Action\":\"build-fail\"}\n"
        "{\"Action\":\"start\",\"Package\":\"q\"}\n"
        "{\"Action\":\"fail\",\"Package\":\"q\",\"Elapsed\":0,\"FailedBuild\":\"q [q.test]\"}\n");
    cr_assert_eq(new->n_cases, 1);
    cr_assert(strstr(new->cases[0].text, "undefined: x"));
    cr_assert_not(new->incomplete);
}

Test(go, counted_twice_with_count_2)
{
    cleanup_report struct report *r = read_ok(LINE("run", T1, "") LINE("pass", T1, "") LINE(
        "run", T1, "") LINE("fail", T1, "") LINE("fail", "", ""));
    cr_assert_eq(r->n_cases, 2);
    cr_assert_eq(r->count[REPORT_PASSED], 1);
    cr_assert_eq(r->count[REPORT_FAILED], 1);
}

Test(go, lines_of_others)
{
    cleanup_report struct report *r =
        read_ok("hello\n{not json\n{\"a\":1}\n[1]\n" LINE("pass", T1, "") LINE("pass", "", ""));
    cr_assert_eq(r->n_cases, 1);
    read_refused(REPORT_FORMAT_GO, "hello\n", 6, ERR_INVALID, "no line of go test -json");
}

Test(go, a_long_output_is_cut)
{
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 1 << 20);
    cr_assert_eq(buf_add_str(&b, LINE("run", T1, ""), &err), 0);
    for (int i = 0; i < 2 * (int)REPORT_TEXT_BYTES_MAX / 16; i++) {
        cr_assert_eq(
            buf_add_str(&b, LINE("output", T1, ",\"Output\":\"0123456789abcdef\""), &err) < 0, 0);
        if (b.len > b.max - 200) {
            break;
        }
    }
    cr_assert_eq(buf_add_str(&b, LINE("pass", T1, ""), &err), 0);
    cleanup_report struct report *r = read_ok(b.data);
    cr_assert_eq(strlen(r->cases[0].stdout_text), REPORT_TEXT_BYTES_MAX);
    cr_assert(r->cases[0].cut);
}
