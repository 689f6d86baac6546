#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/jobargs.h"

Test(jobargs, limits)
{
    struct err err;
    json_t *l = json_object();
    cr_assert_eq(jobargs_limit(l, "cpu_ms=500", &err), 0);
    cr_assert_eq(json_integer_value(json_object_get(l, "cpu_ms")), 500);
    cr_assert_eq(jobargs_limit(l, "cpu=500", &err), -ERR_USAGE);
    cr_assert(strstr(err.text, "memory_mib"), "%s", err.text);
    cr_assert_eq(jobargs_limit(l, "cpu_ms", &err), -ERR_USAGE);
    cr_assert_eq(jobargs_limit(l, "cpu_ms=", &err), -ERR_USAGE);
    cr_assert_eq(jobargs_limit(l, "cpu_ms=5s", &err), -ERR_USAGE);
    cr_assert_eq(jobargs_limit(l, "cpu_ms=99999999999999999999", &err), -ERR_USAGE);
    json_decref(l);
}

Test(jobargs, env)
{
    struct err err;
    json_t *e = json_object();
    cr_assert_eq(jobargs_env(e, "A=b=c", &err), 0);
    cr_assert_str_eq(json_string_value(json_object_get(e, "A")), "b=c");
    cr_assert_eq(jobargs_env(e, "B=", &err), 0);
    cr_assert_eq(jobargs_env(e, "=x", &err), -ERR_USAGE);
    cr_assert_eq(jobargs_env(e, "x", &err), -ERR_USAGE);
    cr_assert_eq(jobargs_env(e, "X=\xff", &err), -ERR_USAGE);
    json_decref(e);
}

static void split(const char *text, const char *from, const char *path)
{
    struct err err;
    char f[64], p[64];
    cr_assert_eq(jobargs_split(text, f, p, sizeof f, &err), 0);
    cr_assert_str_eq(f, from);
    cr_assert_str_eq(p, path);
}

Test(jobargs, split)
{
    struct err err;
    char f[8], p[8];
    split("a.c", "a.c", "a.c");
    split("/x/y/a.c", "/x/y/a.c", "a.c");
    split("/x/a.c:src/b.c", "/x/a.c", "src/b.c");
    split("a:b:c", "a:b", "c");
    cr_assert_eq(jobargs_split(":x", f, p, sizeof f, &err), -ERR_USAGE);
    cr_assert_eq(jobargs_split("x:", f, p, sizeof f, &err), -ERR_USAGE);
    cr_assert_eq(jobargs_split("dir/", f, p, sizeof f, &err), -ERR_USAGE);
    cr_assert_eq(jobargs_split("12345678", f, p, sizeof f, &err), -ERR_USAGE);
    cr_assert_eq(jobargs_split("1234567", f, p, sizeof f, &err), 0);
}

static json_t *load(const char *data, size_t len, mode_t mode)
{
    struct err err;
    char path[] = "/tmp/test_jobargs_XXXXXX", arg[64];
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, data, len) == (ssize_t)len && fchmod(fd, mode) == 0);
    (void)close(fd);
    (void)snprintf(arg, sizeof arg, "%s:x", path);
    json_t *files = json_array();
    cr_assert_eq(jobargs_file(files, arg, &err), 0, "%s", err.text);
    (void)unlink(path);
    json_t *file = json_incref(json_array_get(files, 0));
    json_decref(files);
    return file;
}

Test(jobargs, file_text_binary_mode)
{
    json_t *f = load("hello", 5, 0644);
    cr_assert_str_eq(json_string_value(json_object_get(f, "path")), "x");
    cr_assert_str_eq(json_string_value(json_object_get(f, "text")), "hello");
    cr_assert_null(json_object_get(f, "mode"));
    json_decref(f);
    f = load("\xff\0z", 3, 0755);
    cr_assert_null(json_object_get(f, "text"));
    cr_assert_str_eq(json_string_value(json_object_get(f, "base64")), "/wB6");
    cr_assert_str_eq(json_string_value(json_object_get(f, "mode")), "0755");
    cr_assert_eq(json_object_size(f), 3);
    json_decref(f);
    f = load("", 0, 0644);
    cr_assert_str_eq(json_string_value(json_object_get(f, "text")), "");
    json_decref(f);
}
