#include "common/base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct err_row {
    const char *word;
    int http;
    bool retryable;
    enum err_fault fault;
};

static const struct err_row rows[ERR_COUNT] = {
    [ERR_NONE] = { "none", 200, false, FAULT_USER },
#define ERR_DEF(name, w, h, r, f) [ERR_##name] = { w, h, r, FAULT_##f },
#include "common/base/err.def"
#undef ERR_DEF
};

static const struct err_row *row(int code)
{
    return (code < 0 || code >= ERR_COUNT) ? &rows[ERR_INTERNAL] : &rows[code];
}

static int set_v(struct err *err, enum err_code code, int saved_errno, const char *fmt, va_list ap)
{
    assert(code > ERR_NONE && code < ERR_COUNT);
    if (err) {
        err->code = code;
        err->saved_errno = saved_errno;
        err->retry_after_ms = 0;
        (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
    }
    return -(int)code;
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = set_v(err, code, 0, fmt, ap);
    va_end(ap);
    return rc;
}

int err_sys(struct err *err, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    int rc = set_v(err, ERR_SYS, saved, fmt, ap);
    va_end(ap);
    if (err) {
        size_t used = strlen(err->text);
        char why[128];
        (void)snprintf(err->text + used, sizeof err->text - used, ": %s",
                       strerror_r(saved, why, sizeof why));
    }
    errno = saved;
    return rc;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    assert(err && err->code > ERR_NONE);
    char old[ERR_TEXT_MAX];
    (void)snprintf(old, sizeof old, "%s", err->text);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t used = strlen(err->text);
    (void)snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    return -err->code;
}

const char *err_word(int code)
{
    return row(code)->word;
}

int err_http_status(int code)
{
    return row(code)->http;
}

bool err_retryable(int code)
{
    return row(code)->retryable;
}

enum err_fault err_fault(int code)
{
    return row(code)->fault;
}
