#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "cli/lines.h"

static char path[64];

static void write_file(const char *data, size_t len)
{
    (void)snprintf(path, sizeof path, "/tmp/test_lines_XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, data, len), (ssize_t)len);
    (void)close(fd);
}

static void remove_file(void)
{
    (void)unlink(path);
}

TestSuite(lines, .fini = remove_file);

static void want(struct lines *l, const char *text, size_t len, int number)
{
    struct err err;
    cr_assert_eq(lines_next(l, &err), 1);
    cr_assert_eq(l->buf.len, len, "line %d: %zu bytes", number, l->buf.len);
    cr_assert_eq(memcmp(l->buf.data, text, len), 0);
    cr_assert_eq(l->number, number);
}

Test(lines, ends_and_numbers)
{
    struct err err;
    cleanup_lines struct lines l = { 0 };
    write_file("a\r\n\nb\0c\nlast", 12);
    cr_assert_eq(lines_open(&l, path, 100, &err), 0);
    want(&l, "a", 1, 1);
    want(&l, "", 0, 2);
    cr_assert(lines_blank(&l));
    want(&l, "b\0c", 3, 3);
    want(&l, "last", 4, 4);
    cr_assert_not(lines_blank(&l));
    cr_assert_eq(lines_next(&l, &err), 0);
    cr_assert_eq(lines_next(&l, &err), 0);
}

Test(lines, at_the_maximum_and_one_above)
{
    struct err err;
    cleanup_lines struct lines l = { 0 };
    write_file("12345\n123456\nok\n", 16);
    cr_assert_eq(lines_open(&l, path, 5, &err), 0);
    want(&l, "12345", 5, 1);
    cr_assert_eq(lines_next(&l, &err), -ERR_TOO_LARGE);
    cr_assert_eq(l.number, 2);
    want(&l, "ok", 2, 3);
}

Test(lines, longer_than_a_chunk)
{
    struct err err;
    cleanup_lines struct lines l = { 0 };
    size_t n = 200000;
    char *big = malloc(n + 3);
    memset(big, 'x', n);
    memcpy(big + n, "\ny", 3);
    write_file(big, n + 2);
    cr_assert_eq(lines_open(&l, path, n, &err), 0);
    want(&l, big, n, 1);
    want(&l, "y", 1, 2);
    free(big);
}

Test(lines, gzip)
{
    struct err err;
    cleanup_lines struct lines l = { 0 };
    write_file("", 0);
    gzFile gz = gzopen(path, "wb");
    cr_assert(gzputs(gz, "one\ntwo\n") > 0);
    (void)gzclose(gz);
    cr_assert_eq(lines_open(&l, path, 100, &err), 0);
    want(&l, "one", 3, 1);
    want(&l, "two", 3, 2);
    cr_assert_eq(lines_next(&l, &err), 0);
}

Test(lines, cut_gzip_is_an_error)
{
    struct err err;
    cleanup_lines struct lines l = { 0 };
    write_file("", 0);
    gzFile gz = gzopen(path, "wb");
    for (int i = 0; i < 1000; i++) {
        cr_assert(gzprintf(gz, "%d %d\n", i, i * 7919) > 0);
    }
    (void)gzclose(gz);
    cr_assert_eq(truncate(path, 500), 0);
    cr_assert_eq(lines_open(&l, path, 100, &err), 0);
    int rc;
    while ((rc = lines_next(&l, &err)) > 0) {
    }
    cr_assert_eq(rc, -ERR_INVALID);
}

Test(lines, no_such_file)
{
    struct err err;
    cleanup_lines struct lines l = { 0 };
    cr_assert_eq(lines_open(&l, "/nonexistent/x", 100, &err), -ERR_NOT_FOUND);
    cr_assert_str_eq(err.text, "/nonexistent/x: no such file");
}
