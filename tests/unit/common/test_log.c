/* Every line of the log is one JSON object, whatever the values hold. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

static int pipe_fd[2];

static void setup(void)
{
    cr_assert_eq(pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK), 0);
    log_init("test", LOG_INFO, pipe_fd[1]);
}

static void teardown(void)
{
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
}

TestSuite(log, .init = setup, .fini = teardown);

static json_t *line(void)
{
    static char text[8192];
    ssize_t n = read(pipe_fd[0], text, sizeof text - 1);
    cr_assert_gt(n, 0);
    text[n] = 0;
    cr_assert_eq(strchr(text, '\n'), text + n - 1, "one line, one write");
    json_error_t why;
    json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    cr_assert_not_null(v, "%s: %s", why.text, text);
    return v;
}

static const char *field(const json_t *v, const char *name)
{
    return json_string_value(json_object_get(v, name));
}

Test(log, fields)
{
    log_info("job done", "job", "j1", "note", NULL);
    json_t *v = line();
    cr_assert_str_eq(field(v, "msg"), "job done");
    cr_assert_str_eq(field(v, "level"), "info");
    cr_assert_str_eq(field(v, "proc"), "test");
    cr_assert_str_eq(field(v, "job"), "j1");
    cr_assert_eq(strlen(field(v, "ts")), 24);
    json_decref(v);
}

Test(log, null_value)
{
    log_kv(LOG_ERROR, "m", "job", (char *)NULL, (char *)0);
    json_t *v = line();
    cr_assert(json_is_null(json_object_get(v, "job")));
    json_decref(v);
}

Test(log, escapes)
{
    log_warn("a\"b\\c\nd\x01\xff", "k", "\"},{\"level\":\"fake\"\r\n");
    json_t *v = line();
    cr_assert_str_eq(field(v, "level"), "warn");
    cr_assert_str_eq(field(v, "k"), "\"},{\"level\":\"fake\"\r\n");
    cr_assert(strncmp(field(v, "msg"), "a\"b\\c\nd\x01", 8) == 0);
    json_decref(v);
}

Test(log, long_values_are_cut)
{
    static char big[20000];
    memset(big, '\n', sizeof big - 1);
    log_info(big);
    json_decref(line());
    log_info("m", "k", big, "more", big);
    json_decref(line());
    memset(big, 'a', sizeof big - 1);
    for (size_t n = 3900; n < 4200; n++) {
        char saved = big[n];
        big[n] = 0;
        log_info("m", "k", big);
        json_decref(line());
        log_info("m", "k", big, "second", "value \n\n\n");
        json_decref(line());
        big[n] = saved;
    }
    log_fmt(LOG_INFO, "%s", big);
    json_decref(line());
}

Test(log, level)
{
    char byte;
    log_debug("hidden");
    log_fmt(LOG_DEBUG, "hidden");
    cr_assert_lt(read(pipe_fd[0], &byte, 1), 0);
    cr_assert_eq(log_level_parse("warn"), LOG_WARN);
    cr_assert_eq(log_level_parse("loud"), -1);
}
