/* priority, not_before, deadline, retries. */
#include "tests/unit/common/job_case.h"

static void ms_of(const char *text, bool want_ok, int64_t want)
{
    int64_t ms = -1;
    cr_assert_eq(job_time_parse(text, &ms), want_ok, "%s", text);
    cr_assert_eq(ms, want_ok ? want : -1, "%s: %lld", text, (long long)ms);
}

Test(job_schedule, times)
{
    ms_of("1970-01-01T00:00:00Z", true, 0);
    ms_of("2026-11-30T08:00:00Z", true, 1796025600000);
    ms_of("2026-11-30T08:00:00.125Z", true, 1796025600125);
    ms_of("2000-02-29T23:59:59Z", true, 951868799000);
    ms_of("9999-12-31T23:59:59.999Z", true, 253402300799999);
    const char *bad[] = { "",
                          "2026-11-30",
                          "2026-11-30T08:00:00",
                          "2026-11-30T08:00:00+01:00",
                          "2026-11-30 08:00:00Z",
                          "2026-11-30T08:00:00.1Z",
                          "2026-11-30T08:00:00.Z",
                          "2026-11-30T24:00:00Z",
                          "2026-11-30T08:60:00Z",
                          "2026-11-31T08:00:00Z",
                          "2026-02-29T08:00:00Z",
                          "1900-02-29T08:00:00Z",
                          "1969-12-31T23:59:59Z",
                          "2026-00-10T08:00:00Z",
                          "2026-13-10T08:00:00Z",
                          "2026-11-00T08:00:00Z",
                          "2026-11-30T08:00:00Zx",
                          "-026-11-30T08:00:00Z" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ms_of(bad[i], false, 0);
    }
}

Test(job_schedule, defaults)
{
    cleanup_job_spec struct job_spec *s = parse(HEAD "}");
    cr_assert_eq(s->priority, PRIORITY_NORMAL);
    cr_assert_eq(s->not_before_ms, 0);
    cr_assert_eq(s->deadline_ms, 0);
    cr_assert_eq(s->retries, 0);
}

Test(job_schedule, all_given)
{
    cleanup_job_spec struct job_spec *s =
        parse(HEAD ",\"priority\":\"bulk\",\"not_before\":\"2026-11-30T08:00:00Z\","
                   "\"deadline\":\"2026-11-30T08:00:00.001Z\",\"retries\":10}");
    cr_assert_eq(s->priority, PRIORITY_BULK);
    cr_assert_eq(s->not_before_ms, 1796025600000);
    cr_assert_eq(s->deadline_ms, 1796025600001);
    cr_assert_eq(s->retries, JOB_RETRIES_MAX);
}

Test(job_schedule, refused_with_the_field_and_the_rule)
{
    refused(HEAD ",\"priority\":\"urgent\"}", ERR_INVALID,
            "priority: must be high, normal or bulk");
    refused(HEAD ",\"priority\":1}", ERR_INVALID, "priority: must be high, normal or bulk");
    refused(HEAD ",\"not_before\":5}", ERR_INVALID, "not_before: must be a time in UTC");
    refused(HEAD ",\"deadline\":\"soon\"}", ERR_INVALID, "deadline: must be a time in UTC");
    refused(HEAD ",\"deadline\":\"2026-11-30T08:00:00Z\\u0000\"}", ERR_INVALID, "deadline: ");
    refused(HEAD ",\"not_before\":\"2026-11-30T08:00:00Z\",\"deadline\":\"2026-11-30T08:00:00Z\"}",
            ERR_INVALID, "deadline: must be after not_before");
    refused(HEAD ",\"retries\":11}", ERR_INVALID, "retries: must be a whole number from 0 to 10");
    refused(HEAD ",\"retries\":-1}", ERR_INVALID, "retries: must be a whole number from 0 to 10");
}
