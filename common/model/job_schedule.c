/* When a job may run and how often: priority, not_before, deadline, retries. Times are RFC 3339 in
 * UTC; whether they have passed is for whoever has a clock. */
#include "common/model/job_part.h"

#include <stdlib.h>
#include <string.h>

#define TIME_FORM "2026-11-30T08:00:00Z"

/* Digits at *s into *ret_v; moves *s behind them. */
static bool digits(const char **s, int n, int *ret_v)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        char c = (*s)[i];
        if (c < '0' || c > '9') {
            return false;
        }
        v = v * 10 + (c - '0');
    }
    *s += n;
    *ret_v = v;
    return true;
}

static bool take(const char **s, char c)
{
    bool is = **s == c;
    *s += is;
    return is;
}

/* Days since 1970-01-01 of the proleptic Gregorian calendar. */
static int64_t days(int y, int m, int d)
{
    y -= m <= 2;
    int era = y / 400, of_era = y - era * 400;
    int of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return (int64_t)era * 146097 + (of_era * 365 + of_era / 4 - of_era / 100 + of_year) - 719468;
}

static bool month_has(int y, int m, int d)
{
    static const int len[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return m >= 1 && m <= 12 && d >= 1 && d <= len[m - 1] + (m == 2 && leap);
}

bool job_time_parse(const char *s, int64_t *ret_ms)
{
    int y, mo, d, h, mi, sec, ms = 0;
    bool ok = digits(&s, 4, &y) && take(&s, '-') && digits(&s, 2, &mo) && take(&s, '-') &&
              digits(&s, 2, &d) && take(&s, 'T') && digits(&s, 2, &h) && take(&s, ':') &&
              digits(&s, 2, &mi) && take(&s, ':') && digits(&s, 2, &sec);
    ok = ok && (!take(&s, '.') || digits(&s, 3, &ms)) && take(&s, 'Z') && !*s;
    if (!ok || y < 1970 || !month_has(y, mo, d) || h > 23 || mi > 59 || sec > 59) {
        return false;
    }
    *ret_ms = ((days(y, mo, d) * 24 + h) * 60 + mi) * 60000 + (int64_t)sec * 1000 + ms;
    return true;
}

static int read_time(const json_t *root, const char *field, int64_t *ret_ms, struct err *err)
{
    const json_t *v = json_object_get(root, field);
    if (v && (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v) ||
              !job_time_parse(json_string_value(v), ret_ms))) {
        return err_set(err, ERR_INVALID,
                       "%s: must be a time in UTC from 1970 on, like " TIME_FORM
                       " (three digits behind the second are allowed)",
                       field);
    }
    return 0;
}

int job_read_schedule(const json_t *root, struct job_spec *spec, struct err *err)
{
    const json_t *priority = json_object_get(root, "priority"),
                 *retries = json_object_get(root, "retries");
    int p = priority ? -1 : PRIORITY_NORMAL;
    if (json_is_string(priority)) {
        p = job_priority_parse(json_string_value(priority));
    }
    if (p < 0) {
        return err_set(err, ERR_INVALID, "priority: must be high, normal or bulk");
    }
    spec->priority = (enum job_priority)p;
    int rc = read_time(root, "not_before", &spec->not_before_ms, err);
    rc = rc < 0 ? rc : read_time(root, "deadline", &spec->deadline_ms, err);
    if (rc < 0) {
        return rc;
    }
    if (spec->deadline_ms && spec->deadline_ms <= spec->not_before_ms) {
        return err_set(err, ERR_INVALID, "deadline: must be after not_before");
    }
    int64_t n = 0;
    rc = retries ? jr_int(retries, "retries", 0, JOB_RETRIES_MAX, &n, err) : 0;
    spec->retries = (int)n;
    return rc;
}
