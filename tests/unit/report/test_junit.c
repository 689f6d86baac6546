#include "tests/unit/report/report_case.h"

Test(junit, either_root_and_suites_in_suites)
{
    cleanup_report struct report *r =
        read_ok("<testsuite name='a'><testcase name='1'/><testsuite name='b'><testcase name='2'/>"
                "</testsuite><testcase name='3'/></testsuite>");
    cr_assert_eq(r->n_cases, 3);
    cr_assert_str_eq(r->cases[0].suite, "a");
    cr_assert_str_eq(r->cases[1].suite, "a > b");
    cr_assert_str_eq(r->cases[2].suite, "a");
    cr_assert_eq(r->cases[0].time_us, -1);
    cr_assert_eq(r->count[REPORT_PASSED], 3);
    cr_assert(report_ok(r));
}

Test(junit, equal_names_are_kept)
{
    cleanup_report struct report *r =
        read_ok("<testsuites><testcase name='t' classname='c'/>"
                "<testcase name='t' classname='c'><failure/></testcase></testsuites>");
    cr_assert_eq(r->n_cases, 2);
    cr_assert_eq(r->count[REPORT_FAILED], 1);
}

Test(junit, several_outcomes_of_one_case)
{
    cleanup_report struct report *r = read_ok(
        "<testsuite><testcase name='t'><failure message='one' type='T'>first</failure>"
        "<error message='two'/><failure message='three'>third</failure></testcase></testsuite>");
    cr_assert_eq(r->n_cases, 1);
    cr_assert_eq(r->cases[0].status, REPORT_ERROR, "the worst of them");
    cr_assert_str_eq(r->cases[0].message, "one");
    cr_assert_str_eq(r->cases[0].type, "T");
    cr_assert_str_eq(r->cases[0].text, "first\ntwo\nthird");
}

Test(junit, times)
{
    static const struct {
        const char *time;
        int64_t us;
    } times[] = {
        { "0.001", 1000 },     { "1", 1000000 },      { "1e-05", 10 },    { "1,234.5", 1234500000 },
        { "0,25", 250000 },    { "-1.0", -1 },        { "", -1 },         { "NaN", -1 },
        { "1e999", -1 },       { "2s", -1 },          { " 3 ", 3000000 }, { "1e", -1 },
        { "99999999999", -1 }, { "1.5E+1", 15000000 }
    };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char xml[200];
        (void)snprintf(xml, sizeof xml, "<testsuite><testcase name='t' time='%s'/></testsuite>",
                       times[i].time);
        cleanup_report struct report *r = read_ok(xml);
        cr_expect_eq(r->cases[0].time_us, times[i].us, "%s: %lld", times[i].time,
                     (long long)r->cases[0].time_us);
    }
}

Test(junit, status_attributes)
{
    static const struct {
        const char *attributes, *child;
        enum report_status status;
    } cases[] = {
        { "status='run' result='completed'", "", REPORT_PASSED },
        { "status='FAILED'", "", REPORT_FAILED },
        { "status='notrun'", "<skipped message='SKIP_RETURN_CODE=77'/>", REPORT_SKIPPED },
        { "status='notrun'", "<skipped message='Unable to find executable'/>", REPORT_ERROR },
        { "status='disabled'", "", REPORT_SKIPPED },
        { "status='notrun' result='suppressed'", "", REPORT_SKIPPED },
        { "", "<skipped type='todo'/><failure message='x'/>", REPORT_PENDING },
        { "", "<skipped/><failure message='x'/>", REPORT_FAILED },
        { "status='passed'", "<failure/>", REPORT_FAILED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char xml[400];
        (void)snprintf(xml, sizeof xml,
                       "<testsuite><testcase name='t' %s>%s</testcase></testsuite>",
                       cases[i].attributes, cases[i].child);
        cleanup_report struct report *r = read_ok(xml);
        cr_expect_eq(r->cases[0].status, cases[i].status, "%zu: %s", i,
                     report_status_word(r->cases[0].status));
    }
}

Test(junit, characters_that_xml_forbids)
{
    cleanup_report struct report *r =
        read_ok("<testsuite><testcase name='a\x01z'><failure message='b&#7;&#x1B;z'>c\x1b[31m "
                "\xff\xc3(</failure>"
                "<system-out><![CDATA[d\x02 &#7; ]]&gt; e]]></system-out></testcase></testsuite>");
    cr_assert_str_eq(r->cases[0].name, "a\xef\xbf\xbdz");
    cr_assert_str_eq(r->cases[0].message, "b\xef\xbf\xbd\xef\xbf\xbdz");
    cr_assert_str_eq(r->cases[0].text, "c\xef\xbf\xbd[31m \xef\xbf\xbd\xef\xbf\xbd(");
    cr_assert_str_eq(r->cases[0].stdout_text, "d\xef\xbf\xbd &#7; ]]&gt; e",
                     "no reference inside CDATA");
}

Test(junit, other_encodings)
{
    cleanup_report struct report *r =
        read_ok("\n<?xml version='1.0' encoding='ISO-8859-1'?>"
                "<testsuite><testcase name='gr\xfc\xdf\x01'/></testsuite>" +
                1);
    cr_assert_str_eq(r->cases[0].name, "gr\xc3\xbc\xc3\x9f?");
    cleanup_report struct report *ascii =
        read_ok("\n <?xml version='1.0' encoding='us-ascii'?>"
                "<testsuite><testcase name='\xc3\xbc'/></testsuite>");
    cr_assert_str_eq(ascii->cases[0].name, "\xc3\xbc");
    static const char wide[] = "\xff\xfe<\0t\0e\0s\0t\0s\0u\0i\0t\0e\0/\0>\0";
    struct report *none = NULL;
    struct err err;
    cr_assert_eq(report_read(REPORT_FORMAT_UNKNOWN, wide, sizeof wide - 1, &none, &err), 0, "%s",
                 err.text);
    cr_assert_eq(none->n_cases, 0);
    report_free(none);
}

Test(junit, a_suite_that_failed_without_a_case)
{
    cleanup_report struct report *r = read_ok(
        "<testsuites><testsuite name='s'><error message='no set up'/></testsuite></testsuites>");
    cr_assert_eq(r->n_cases, 1);
    cr_assert_str_eq(r->cases[0].name, "s");
    cr_assert_eq(r->cases[0].status, REPORT_ERROR);
}

Test(junit, counts_that_do_not_agree)
{
    cleanup_report struct report *r =
        read_ok("<testsuite tests='3' failures='1'><testcase name='t'/></testsuite>");
    cr_assert(noted(r, "says 3 tests and holds 1"));
    cr_assert(r->incomplete, "a failure that is announced and not there is not a pass");
    cr_assert_not(report_ok(r));
    cleanup_report struct report *none = read_ok("<testsuites/>");
    cr_assert(noted(none, "no test in the report"));
    cleanup_report struct report *more =
        read_ok("<testsuite tests='2'><testcase name='t'/></testsuite>");
    cr_assert_not(more->incomplete, "producers count retries and sub-tests as they like");
}

Test(junit, reruns_and_own_properties)
{
    cleanup_report struct report *r = read_ok(
        "<testsuite><testcase name='flaky'><flakyFailure message='x'>t</flakyFailure></testcase>"
        "<testcase name='p'><properties><property name='brood.status' value='other'/>"
        "<property name='brood.shard' value='2/4'/></properties><skipped/></testcase>"
        "<testcase name='f'><properties><property name='brood.status' "
        "value='pending'/></properties><failure/>"
        "</testcase><testcase name='g'><failure/><properties><property name='brood.status' "
        "value='passed'/>"
        "</properties></testcase></testsuite>");
    cr_assert_eq(r->cases[0].status, REPORT_PASSED);
    cr_assert_eq(r->cases[0].attempts, 2);
    cr_assert_eq(r->cases[1].status, REPORT_OTHER);
    cr_assert_str_eq(r->cases[1].shard, "2/4");
    cr_assert_eq(r->cases[2].status, REPORT_FAILED, "no property hides a failure");
    cr_assert_eq(r->cases[3].status, REPORT_FAILED);
}

static const char laughs[] =
    "<?xml version='1.0'?><!DOCTYPE l [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;'>]>"
    "<testsuite><testcase name='&b;'/></testsuite>";
static const char external[] = "<!DOCTYPE t SYSTEM 'file:///etc/passwd'><testsuite/>";

Test(junit, refused)
{
    static const struct {
        const char *xml, *why;
    } bad[] = {
        { laughs, "a DOCTYPE is not allowed" },
        { external, "a DOCTYPE is not allowed" },
        { "<html/>", "the root element is neither testsuites nor testsuite" },
        { "<testsuite><testcase name='t'>",
          "not well-formed XML: line 1, column 30: no element found" },
        { "<testsuite><testcase name=t/></testsuite>", "not well-formed" },
        { "<testsuite/><testsuite/>", "not well-formed" },
        { "<testsuite><testcase name='&x;'/></testsuite>", "undefined entity" },
        { "<testsuite><testcase><testcase/></testcase></testsuite>",
          "a suite or test inside a test" },
        { "<?xml version='1.0' encoding='klingon'?><testsuite/>", "unknown encoding" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        read_refused(REPORT_FORMAT_JUNIT, bad[i].xml, strlen(bad[i].xml), ERR_INVALID, bad[i].why);
    }
}

static void nested(struct buf *b, int depth)
{
    struct err err;
    for (int i = 0; i < depth; i++) {
        cr_assert_eq(buf_add_str(b, "<testsuite>", &err), 0);
    }
    for (int i = 0; i < depth; i++) {
        cr_assert_eq(buf_add_str(b, "</testsuite>", &err), 0);
    }
}

Test(junit, depth_at_the_maximum_and_one_above)
{
    cleanup_buf struct buf at = { 0 }, above = { 0 };
    buf_init(&at, 1 << 16);
    buf_init(&above, 1 << 16);
    nested(&at, REPORT_DEPTH_MAX);
    cleanup_report struct report *r = read_ok(at.data);
    nested(&above, REPORT_DEPTH_MAX + 1);
    read_refused(REPORT_FORMAT_JUNIT, above.data, above.len, ERR_INVALID, "nested deeper than 32");
}
