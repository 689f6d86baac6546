#include "cli/usage_args.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/model/usage.h"

#define NANO 1000000000

int money_parse(const char *text, int64_t *ret_nanousd, struct err *err)
{
    const char *p = text;
    int sign = *p == '-' ? -1 : 1;
    p += *p == '-' || *p == '+';
    p += *p == '$';
    int64_t whole = 0, part = 0;
    int digits = 0, decimals = 0;
    for (; isdigit((unsigned char)*p) && digits < 10; p++, digits++) {
        whole = whole * 10 + (*p - '0');
    }
    if (*p == '.') {
        for (p++; isdigit((unsigned char)*p) && decimals < 9; p++, decimals++) {
            part = part * 10 + (*p - '0');
        }
    }
    if (*p || digits + decimals == 0 || whole > INT64_MAX / NANO - 1) {
        return err_set(err, ERR_INVALID,
                       "\"%.40s\" is no amount: dollars with up to 9 decimals, such as 0.000014",
                       text);
    }
    for (; decimals < 9; decimals++) {
        part *= 10;
    }
    *ret_nanousd = sign * (whole * NANO + part);
    return 0;
}

/* n digits at p as a number, or -1. */
static int digits(const char *p, int n)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        if (!isdigit((unsigned char)p[i])) {
            return -1;
        }
        v = v * 10 + (p[i] - '0');
    }
    return v;
}

int moment_parse(const char *text, int64_t *ret_ms, struct err *err)
{
    if (strcmp(text, "now") == 0) {
        *ret_ms = wall_ms();
        return 0;
    }
    size_t n = strlen(text);
    struct tm tm = { 0 };
    bool date = n >= 10 && text[4] == '-' && text[7] == '-';
    bool whole =
        n == 20 && text[10] == 'T' && text[13] == ':' && text[16] == ':' && text[19] == 'Z';
    if (date && (n == 10 || whole)) {
        tm.tm_year = digits(text, 4);
        tm.tm_mon = digits(text + 5, 2);
        tm.tm_mday = digits(text + 8, 2);
        tm.tm_hour = whole ? digits(text + 11, 2) : 0;
        tm.tm_min = whole ? digits(text + 14, 2) : 0;
        tm.tm_sec = whole ? digits(text + 17, 2) : 0;
        struct tm want = tm;
        tm.tm_year -= 1900;
        tm.tm_mon -= 1;
        int64_t s = tm.tm_year >= 70 ? (int64_t)timegm(&tm) : -1;
        /* the 31st of a short month, the 61st second: timegm carries them over */
        if (s >= 0 && tm.tm_mon + 1 == want.tm_mon && tm.tm_mday == want.tm_mday &&
            tm.tm_hour == want.tm_hour && tm.tm_min == want.tm_min && tm.tm_sec == want.tm_sec) {
            *ret_ms = s * 1000;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID,
                   "\"%.40s\" is no time: YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ, in UTC", text);
}

int month_parse(const char *text, int *ret_month, struct err *err)
{
    bool shape = strlen(text) == 7 && text[4] == '-';
    int year = shape ? digits(text, 4) : -1, month = shape ? digits(text + 5, 2) : -1;
    if (year < 1970 || month < 1 || month > 12) {
        return err_set(err, ERR_INVALID, "\"%.40s\" is no month: YYYY-MM", text);
    }
    *ret_month = year * 100 + month;
    return 0;
}

int duration_parse(const char *text, int64_t *ret_ms, struct err *err)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = { { "", 1 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 } };
    char *end;
    errno = 0;
    long long v = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    for (size_t i = 0; v >= 0 && errno == 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].unit) == 0 && v <= INT64_MAX / units[i].ms) {
            *ret_ms = v * units[i].ms;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "\"%.40s\" is no length of time: 250ms, 10s, 5m or 2h", text);
}

void moment_format(int64_t ms, int up, char out[MOMENT_TEXT_MAX])
{
    time_t t = (time_t)((ms + (up ? 999 : 0)) / 1000);
    struct tm tm;
    (void)gmtime_r(&t, &tm);
    (void)snprintf(out, MOMENT_TEXT_MAX, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}
