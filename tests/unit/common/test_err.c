#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/err.h"

Test(err, set_returns_the_negative_code)
{
    struct err err;
    cr_assert_eq(err_set(&err, ERR_INVALID, "field %s: rule %d", "x", 7), -ERR_INVALID);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(err.saved_errno, 0);
    cr_assert_str_eq(err.text, "field x: rule 7");
    cr_assert_eq(err_set(NULL, ERR_CLOSED, "nobody listens"), -ERR_CLOSED);
}

Test(err, sys_keeps_errno)
{
    struct err err;
    errno = ENOENT;
    cr_assert_eq(err_sys(&err, "open %s", "/nope"), -ERR_SYS);
    cr_assert_eq(errno, ENOENT);
    cr_assert_eq(err.saved_errno, ENOENT);
    cr_assert_str_eq(err.text, "open /nope: No such file or directory");
}

Test(err, prefix)
{
    struct err err;
    (void)err_set(&err, ERR_DB, "deadlock");
    cr_assert_eq(err_prefix(&err, "line %d", 37), -ERR_DB);
    cr_assert_str_eq(err.text, "line 37: deadlock");
}

Test(err, text_is_cut_never_overrun)
{
    char big[2 * ERR_TEXT_MAX];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    struct err err;
    (void)err_set(&err, ERR_INTERNAL, "%s", big);
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
    (void)err_prefix(&err, "%s", big);
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
    errno = EIO;
    (void)err_sys(&err, "%s", big);
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
}

Test(err, table)
{
    for (int a = 0; a < ERR_COUNT; a++) {
        cr_assert(err_word(a)[0] && err_http_status(a) >= 200 && err_http_status(a) < 600);
        for (int b = 0; b < a; b++) {
            cr_assert_str_neq(err_word(a), err_word(b));
        }
        if (a) {
            cr_assert_eq(err_fault(a) == FAULT_USER,
                         err_http_status(a) < 500 && a != ERR_STALE && a != ERR_MISMATCH);
        }
    }
    cr_assert_str_eq(err_word(-1), "internal");
    cr_assert_str_eq(err_word(ERR_COUNT), "internal");
    cr_assert(err_retryable(ERR_UNAVAILABLE) && !err_retryable(ERR_INVALID));
}
