/* Reading characters, numbers, times and dates that strangers wrote, without the locale. */
#include "common/report/report_part.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <time.h>

size_t report_utf8(const char *s, size_t n, uint32_t *ret_code)
{
    assert(n > 0);
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *ret_code = u[0];
        return 1;
    }
    size_t len = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (u[0] < 0xc2 || u[0] > 0xf4 || len > n) {
        return 0;
    }
    uint32_t code = u[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (u[i] & 0x3f);
    }
    if (code < smallest[len] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return 0;
    }
    *ret_code = code;
    return len;
}

bool report_xml_char(uint32_t code)
{
    if (code < 0x20) {
        return code == '\t' || code == '\n' || code == '\r';
    }
    return code != 0xfffe && code != 0xffff && !(code >= 0xd800 && code <= 0xdfff) &&
           code <= 0x10ffff;
}

int64_t report_time_from_real(double value, int64_t scale_us)
{
    double us = value * (double)scale_us;
    if (!isfinite(us) || us < 0 || us > (double)REPORT_TIME_US_MAX) {
        return -1;
    }
    return (int64_t)(us + 0.5);
}

int64_t report_parse_time(struct report_slice s, int64_t scale_us)
{
    s = slice_trim(s);
    bool has_dot = s.n && memchr(s.s, '.', s.n);
    double value = 0, place = 1;
    bool fraction = false, any = false;
    size_t i = 0;
    for (; i < s.n; i++) {
        char c = s.s[i];
        if (c >= '0' && c <= '9') {
            any = true;
            value = fraction ? value : value * 10;
            place = fraction ? place / 10 : 1;
            value += (c - '0') * place;
        } else if (c == ',' && has_dot && !fraction) {
            continue; /* thousands */
        } else if ((c == '.' || c == ',') && !fraction) {
            fraction = true;
        } else {
            break;
        }
    }
    if (any && i < s.n && (s.s[i] == 'e' || s.s[i] == 'E')) {
        int sign = 1, exponent = 0;
        if (++i < s.n && (s.s[i] == '-' || s.s[i] == '+')) {
            sign = s.s[i++] == '-' ? -1 : 1;
        }
        any = i < s.n;
        for (; i < s.n && s.s[i] >= '0' && s.s[i] <= '9'; i++) {
            exponent = exponent < 400 ? exponent * 10 + (s.s[i] - '0') : exponent;
        }
        value *= pow(10, sign * exponent);
    }
    return any && i == s.n ? report_time_from_real(value, scale_us) : -1;
}

int report_parse_count(struct report_slice s)
{
    s = slice_trim(s);
    int64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.s[i] < '0' || s.s[i] > '9' || (v = v * 10 + (s.s[i] - '0')) > INT32_MAX) {
            return -1;
        }
    }
    return s.n ? (int)v : -1;
}

/* Exactly n digits at *at; -1 when they are not there. */
static int digits(struct report_slice s, size_t *at, size_t n)
{
    if (*at + n > s.n) {
        return -1;
    }
    int v = report_parse_count(slice_of(s.s + *at, n));
    for (size_t i = 0; i < n; i++) {
        if (s.s[*at + i] < '0' || s.s[*at + i] > '9') {
            return -1;
        }
    }
    *at += n;
    return v;
}

static bool mark(struct report_slice s, size_t *at, const char *any_of)
{
    if (*at < s.n && s.s[*at] && strchr(any_of, s.s[*at])) {
        (*at)++;
        return true;
    }
    return false;
}

int64_t report_parse_date(struct report_slice s)
{
    s = slice_trim(s);
    size_t at = 0;
    struct tm tm = { 0 };
    int year = digits(s, &at, 4);
    int month = mark(s, &at, "-") ? digits(s, &at, 2) : -1;
    tm.tm_mday = mark(s, &at, "-") ? digits(s, &at, 2) : -1;
    tm.tm_hour = mark(s, &at, "T ") ? digits(s, &at, 2) : -1;
    tm.tm_min = mark(s, &at, ":") ? digits(s, &at, 2) : -1;
    tm.tm_sec = mark(s, &at, ":") ? digits(s, &at, 2) : -1;
    if (year < 1971 || month < 1 || month > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
        tm.tm_hour < 0 || tm.tm_hour > 24 || tm.tm_min < 0 || tm.tm_sec < 0 || tm.tm_sec > 60) {
        return 0;
    }
    int64_t ms = 0, unit = 100;
    if (mark(s, &at, ".,")) {
        for (; at < s.n && s.s[at] >= '0' && s.s[at] <= '9'; at++, unit /= 10) {
            ms += (s.s[at] - '0') * unit;
        }
    }
    int64_t zone_min = 0;
    if (at < s.n && (s.s[at] == '+' || s.s[at] == '-')) {
        int sign = s.s[at++] == '-' ? -1 : 1;
        int hours = digits(s, &at, 2);
        (void)mark(s, &at, ":");
        int minutes = digits(s, &at, 2);
        if (hours < 0 || minutes < 0) {
            return 0;
        }
        zone_min = sign * (hours * 60 + minutes);
    }
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    return ((int64_t)timegm(&tm) - zone_min * 60) * 1000 + ms;
}

bool slice_is(struct report_slice s, const char *word)
{
    return s.n == strlen(word) && strncasecmp(s.n ? s.s : "", word, s.n) == 0;
}

bool slice_starts(struct report_slice s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && strncasecmp(n ? s.s : "", prefix, n) == 0;
}

bool slice_begins(struct report_slice s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && (n == 0 || memcmp(s.s, prefix, n) == 0);
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct report_slice slice_trim(struct report_slice s)
{
    while (s.n && blank(s.s[0])) {
        s.s++;
        s.n--;
    }
    while (s.n && blank(s.s[s.n - 1])) {
        s.n--;
    }
    return s;
}

struct report_slice slice_line(struct report_slice *rest)
{
    const char *end = rest->n ? memchr(rest->s, '\n', rest->n) : NULL;
    struct report_slice line = { rest->s, end ? (size_t)(end - rest->s) : rest->n };
    size_t used = line.n + (end ? 1 : 0);
    rest->s += used;
    rest->n -= used;
    if (line.n && line.s[line.n - 1] == '\r') {
        line.n--;
    }
    return line;
}

bool slice_file_line(struct report_slice s, struct report_slice *ret_file, int *ret_line)
{
    for (size_t i = 1; i + 1 < s.n; i++) {
        if (s.s[i] != ':' || s.s[i + 1] < '0' || s.s[i + 1] > '9') {
            continue;
        }
        size_t to = i + 1;
        while (to < s.n && s.s[to] >= '0' && s.s[to] <= '9') {
            to++;
        }
        int line = report_parse_count(slice_of(s.s + i + 1, to - i - 1));
        if (line > 0 && (to == s.n || strchr(":) ,", s.s[to] ? s.s[to] : 'x'))) {
            *ret_file = slice_of(s.s, i);
            *ret_line = line;
            return true;
        }
        return false;
    }
    return false;
}

void report_append(struct buf *b, const char *s, size_t n, bool *cut)
{
    size_t room = b->max - b->len;
    if (n > room) {
        *cut = true;
        n = room;
    }
    int rc = buf_add(b, s, n, NULL);
    assert(rc == 0);
}

struct report_slice report_first_line(struct report_slice text)
{
    struct report_slice all = slice_trim(text);
    return slice_trim(slice_line(&all));
}

static bool place_at(struct report_slice line, struct report_slice *ret_file, int *ret_line)
{
    struct report_slice file;
    int number;
    if (!slice_file_line(line, &file, &number) || memchr(file.s, ' ', file.n) ||
        !memchr(file.s, '.', file.n)) {
        return false;
    }
    *ret_file = file;
    *ret_line = number;
    return true;
}

bool report_find_place(struct report_slice text, struct report_slice *ret_file, int *ret_line)
{
    text = slice_trim(text);
    size_t at = text.n;
    while (at > 0 && text.s[at - 1] != '\n') {
        at--;
    }
    return place_at(slice_of(text.s + at, text.n - at), ret_file, ret_line) ||
           place_at(report_first_line(text), ret_file, ret_line);
}
