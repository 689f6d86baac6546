/* The error convention of brood.
 *
 * A function that can fail takes `struct err *err` as its last parameter and returns 0 (or a count)
 * on success or -ERR_X with *err filled. The maker of an error returns the negative code from
 * err_set(), so callers write one `return`. No heap: the text is cut at its fixed size. A failing
 * user program is a verdict, never an err. Codes, API words and whose fault: err.def, nowhere else.
 */
#pragma once
#include <stdbool.h>

enum err_code {
    ERR_NONE = 0,
#define ERR_DEF(name, word, http, retryable, fault) ERR_##name,
#include "common/base/err.def"
#undef ERR_DEF
    ERR_COUNT
};

enum err_fault { FAULT_USER, FAULT_OURS, FAULT_PEER };

#define ERR_TEXT_MAX 512

struct err {
    int code;            /* enum err_code; 0 = none */
    int saved_errno;     /* errno of the failed call, 0 when not from one */
    long retry_after_ms; /* when it may be tried again; 0: not known */
    char text[ERR_TEXT_MAX];
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* Fill *err (NULL allowed) and return -code. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set with ERR_SYS; appends ": strerror(errno)" and keeps errno. */
int err_sys(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put "fmt...: " before the text of an error already set; returns -err->code. */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "not_found" and so on; "none" for 0, "internal" for an unknown code. */
const char *err_word(int code);
int err_http_status(int code);
bool err_retryable(int code);
enum err_fault err_fault(int code);
