/* One pass over both texts with two cursors, so 16 MiB against 16 MiB costs no memory; unordered
 * sorts pointers to lines. */
#include "worker/compare.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_TEXT_MAX 128u /* a longer word is compared as text */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

__attribute__((format(printf, 2, 3))) static bool differs(char *why, const char *fmt, ...)
{
    if (why) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(why, COMPARE_WHY_MAX, fmt, ap);
        va_end(ap);
    }
    return false;
}

static bool same_exact(struct compare_text want, struct compare_text got, char *why)
{
    size_t n = want.len < got.len ? want.len : got.len;
    if (n > 0 && memcmp(want.data, got.data, n) != 0) {
        size_t at = 0;
        while (want.data[at] == got.data[at]) {
            at++;
        }
        return differs(why, "output differs from the expected at byte %zu", at + 1);
    }
    if (want.len != got.len) {
        return differs(why, "output has %zu bytes; %zu were expected", got.len, want.len);
    }
    return true;
}

/* Take the next line without its end and trailing white space; false at the end of the text. */
static bool next_line(struct compare_text *t, struct compare_text *ret_line)
{
    if (t->len == 0) {
        return false;
    }
    const char *nl = memchr(t->data, '\n', t->len);
    size_t n = nl ? (size_t)(nl - t->data) : t->len;
    *ret_line = (struct compare_text){ t->data, n };
    size_t used = nl ? n + 1 : n;
    t->data += used;
    t->len -= used;
    while (ret_line->len > 0 && is_space(ret_line->data[ret_line->len - 1])) {
        ret_line->len--;
    }
    return true;
}

static struct compare_text without_tail(struct compare_text t)
{
    while (t.len > 0 && is_space(t.data[t.len - 1])) {
        t.len--;
    }
    return t;
}

static bool same_trim(struct compare_text want, struct compare_text got, char *why)
{
    want = without_tail(want);
    got = without_tail(got);
    struct compare_text a, b;
    for (size_t line = 1;; line++) {
        bool has_a = next_line(&want, &a);
        bool has_b = next_line(&got, &b);
        if (!has_a && !has_b) {
            return true;
        }
        if (has_a != has_b) {
            return differs(why, "output has %s lines than expected (line %zu)",
                           has_a ? "fewer" : "more", line);
        }
        if (a.len != b.len || (a.len > 0 && memcmp(a.data, b.data, a.len) != 0)) {
            return differs(why, "output differs from the expected in line %zu", line);
        }
    }
}

static size_t count_lines(struct compare_text t)
{
    struct compare_text line;
    size_t n = 0;
    while (next_line(&t, &line)) {
        n++;
    }
    return n;
}

static int by_text(const void *a, const void *b)
{
    const struct compare_text *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n > 0 ? memcmp(x->data, y->data, n) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static struct compare_text *sorted_lines(struct compare_text t, size_t n)
{
    struct compare_text *lines = calloc(n ? n : 1, sizeof *lines);
    if (!lines) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        bool there = next_line(&t, &lines[i]);
        assert(there);
        (void)there;
    }
    qsort(lines, n, sizeof *lines, by_text);
    return lines;
}

/* Counted first: memory is taken only for as many lines as were expected. */
static bool same_unordered(struct compare_text want, struct compare_text got, char *why)
{
    want = without_tail(want);
    got = without_tail(got);
    size_t n = count_lines(want), m = count_lines(got);
    if (n != m) {
        return differs(why, "output has %zu lines; %zu were expected, in any order", m, n);
    }
    struct compare_text *a = sorted_lines(want, n), *b = sorted_lines(got, n);
    size_t same = 0;
    while (same < n && by_text(&a[same], &b[same]) == 0) {
        same++;
    }
    free(a);
    free(b);
    return same == n || differs(why, "output has not the expected lines, in any order");
}

static bool next_token(struct compare_text *t, struct compare_text *ret_token)
{
    size_t i = 0;
    while (i < t->len && is_space(t->data[i])) {
        i++;
    }
    size_t from = i;
    while (i < t->len && !is_space(t->data[i])) {
        i++;
    }
    if (i == from) {
        return false;
    }
    *ret_token = (struct compare_text){ t->data + from, i - from };
    t->data += i;
    t->len -= i;
    return true;
}

/* The whole word is a number as strtod reads it ("1e5", "inf", "nan"); hexadecimal floats and
 * nan(...) are text. */
static bool parse_number(struct compare_text t, double *ret)
{
    if (t.len >= NUMBER_TEXT_MAX) {
        return false;
    }
    char text[NUMBER_TEXT_MAX];
    memcpy(text, t.data, t.len);
    text[t.len] = 0;
    if (strlen(text) != t.len || strpbrk(text, "xX(")) {
        return false;
    }
    char *end;
    *ret = strtod(text, &end);
    return end != text && *end == 0;
}

static bool same_number(double want, double got, double tolerance_abs, double tolerance_rel)
{
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got); /* only when a nan is what was asked for */
    }
    if (isinf(want) || isinf(got)) {
        return want == got;
    }
    double diff = fabs(want - got);
    return diff <= tolerance_abs || diff <= tolerance_rel * fabs(want);
}

static bool same_tokens(struct compare_text want, struct compare_text got, bool numbers,
                        double tolerance_abs, double tolerance_rel, char *why)
{
    struct compare_text a, b;
    for (size_t n = 1;; n++) {
        bool has_a = next_token(&want, &a);
        bool has_b = next_token(&got, &b);
        if (!has_a && !has_b) {
            return true;
        }
        if (has_a != has_b) {
            return differs(why, "output has %s words than expected (word %zu)",
                           has_a ? "fewer" : "more", n);
        }
        if (a.len == b.len && memcmp(a.data, b.data, a.len) == 0) {
            continue;
        }
        double x, y;
        if (!numbers || !parse_number(a, &x) || !parse_number(b, &y) ||
            !same_number(x, y, tolerance_abs, tolerance_rel)) {
            return differs(why, "output differs from the expected in word %zu", n);
        }
    }
}

bool compare_output(enum compare_mode mode, struct compare_text want, struct compare_text got,
                    double tolerance_abs, double tolerance_rel, char *why)
{
    assert((want.data || want.len == 0) && (got.data || got.len == 0));
    switch (mode) {
    case COMPARE_EXACT:
        return same_exact(want, got, why);
    case COMPARE_TRIM:
        return same_trim(want, got, why);
    case COMPARE_TOKENS:
        return same_tokens(want, got, false, 0, 0, why);
    case COMPARE_UNORDERED:
        return same_unordered(want, got, why);
    case COMPARE_COUNT:
        break;
    case COMPARE_FLOAT:
        return same_tokens(want, got, true, tolerance_abs, tolerance_rel, why);
    }
    assert(!"compare mode");
    return false;
}
