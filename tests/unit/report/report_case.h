/* Reading a report from a string in a test. */
#pragma once
#include <criterion/criterion.h>
#include <string.h>

#include "common/report/report.h"

static inline struct report *read_ok(const char *text)
{
    struct report *r = NULL;
    struct err err = { 0 };
    int rc = report_read(REPORT_FORMAT_UNKNOWN, text, strlen(text), &r, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_assert_not_null(r);
    return r;
}

/* The report is refused with this code and this text. */
static inline void read_refused(enum report_format format, const char *text, size_t len, int code,
                                const char *why)
{
    struct report *r = NULL;
    struct err err = { 0 };
    int rc = report_read(format, text, len, &r, &err);
    cr_assert_eq(rc, -code, "%d: %s", rc, err.text);
    cr_assert_null(r);
    cr_assert(strstr(err.text, why), "\"%s\" instead of \"%s\"", err.text, why);
}

static inline bool noted(const struct report *r, const char *part)
{
    for (size_t i = 0; i < r->n_notes; i++) {
        if (strstr(r->notes[i], part)) {
            return true;
        }
    }
    return false;
}
