#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"

Test(buf, at_the_maximum_and_one_above)
{
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 10);
    cr_assert_eq(buf_add(&b, "0123456789", 10, &err), 0);
    cr_assert_eq(buf_add(&b, "x", 1, &err), -ERR_TOO_LARGE);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    cr_assert_eq(b.len, 10);
    cr_assert_str_eq(b.data, "0123456789");
    cr_assert_eq(buf_add(&b, "", 0, &err), 0);
    buf_reset(&b);
    cr_assert_eq(buf_add(&b, "0123456789A", 11, &err), -ERR_TOO_LARGE);
    cr_assert_eq(b.len, 0);
    cr_assert_eq(buf_addf(&b, &err, "%s", "0123456789"), 0);
    buf_reset(&b);
    cr_assert_eq(buf_addf(&b, &err, "%s", "0123456789A"), -ERR_TOO_LARGE);
    cr_assert_eq(b.len, 0);
    cr_assert_null(buf_reserve(&b, SIZE_MAX, &err));
}

Test(buf, bytes_survive)
{
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(buf_add(&b,
                             "\0\xff"
                             "a",
                             3, &err),
                     0);
    }
    cr_assert_eq(b.len, 3000);
    cr_assert_eq(b.data[3000], 0);
    buf_consume(&b, 2999);
    cr_assert_eq(b.len, 1);
    cr_assert_eq(b.data[0], 'a');
    cr_assert_eq(b.data[1], 0);
    buf_consume(&b, 1);
    cr_assert_eq(b.len, 0);
    buf_consume(&b, 0);
}

Test(buf, reserve_and_commit)
{
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 8);
    char *to = buf_reserve(&b, 8, &err);
    cr_assert_not_null(to);
    memcpy(to, "abcdefgh", 8);
    buf_commit(&b, 3);
    cr_assert_str_eq(b.data, "abc");
    cr_assert_not_null(buf_reserve(&b, 5, &err));
    cr_assert_null(buf_reserve(&b, 6, &err));
}

Test(buf, take)
{
    struct buf b;
    struct err err;
    size_t len = 99;
    buf_init(&b, 8);
    cleanup_free char *empty = buf_take(&b, &len);
    cr_assert_not_null(empty);
    cr_assert_eq(len, 0);
    cr_assert_str_eq(empty, "");
    cr_assert_eq(buf_add_str(&b, "x", &err), 0);
    cleanup_free char *one = buf_take(&b, NULL);
    cr_assert_str_eq(one, "x");
    cr_assert_eq(b.len, 0);
    cr_assert_eq(b.max, 8);
}

static void write_file(const char *path, size_t n)
{
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(write(fd, "z", 1), 1);
    }
}

Test(buf, read_file)
{
    char path[] = "/tmp/brood-test-buf-XXXXXX";
    cleanup_close int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 100);
    write_file(path, 100);
    cr_assert_eq(buf_read_file(&b, path, &err), 0);
    cr_assert_eq(b.len, 100);
    buf_reset(&b);
    write_file(path, 101);
    cr_assert_eq(buf_read_file(&b, path, &err), -ERR_TOO_LARGE);
    cr_assert(strstr(err.text, path));
    buf_reset(&b);
    write_file(path, 0);
    cr_assert_eq(buf_read_file(&b, path, &err), 0);
    cr_assert_str_eq(b.data, "");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(buf_read_file(&b, path, &err), -ERR_NOT_FOUND);
    cr_assert_eq(buf_read_file(&b, "/", &err), -ERR_SYS);
}

Test(buf, integers)
{
    static const struct {
        int64_t value;
        const char *text;
    } rows[] = { { 0, "0" },
                 { 7, "7" },
                 { -10, "-10" },
                 { INT64_MAX, "9223372036854775807" },
                 { INT64_MIN, "-9223372036854775808" } };
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 20);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buf_reset(&b);
        cr_assert_eq(buf_add_int(&b, rows[i].value, &err), 0);
        cr_expect_str_eq(b.data, rows[i].text);
    }
    cr_assert_eq(buf_add_int(&b, 1, &err), -ERR_TOO_LARGE);
}
