#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "vmpool/qmp.h"

static const char stream[] =
    "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"
    "{\"return\": {}, \"id\": 1}\r\n"
    "\r\n"
    "{\"timestamp\": {}, \"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\r\n"
    "{\"id\": 2, \"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n";

static void expect_all(size_t step)
{
    struct qmp_reader r;
    struct qmp_message m;
    enum qmp_kind kinds[8];
    int n = 0;
    qmp_reader_init(&r);
    for (size_t at = 0; at < sizeof stream - 1; at += step) {
        size_t part = sizeof stream - 1 - at < step ? sizeof stream - 1 - at : step;
        cr_assert_eq(qmp_reader_feed(&r, stream + at, part, NULL), 0);
        while (qmp_reader_next(&r, &m, NULL) == 1) {
            cr_assert_lt(n, 8);
            if (m.kind == QMP_EVENT) {
                cr_assert_str_eq(m.name, "MIGRATION");
                cr_assert_str_eq(json_string_value(json_object_get(m.data, "status")), "completed");
            } else if (m.kind == QMP_ERROR) {
                cr_assert_str_eq(m.name, "no");
                cr_assert_eq(m.id, 2);
            } else if (m.kind == QMP_RETURN) {
                cr_assert_eq(m.id, 1);
            }
            kinds[n++] = m.kind;
            json_decref(m.root);
        }
    }
    static const enum qmp_kind want[] = { QMP_GREETING, QMP_RETURN, QMP_EVENT, QMP_ERROR };
    cr_assert_eq(n, 4, "step %zu: %d messages", step, n);
    cr_assert_arr_eq(kinds, want, sizeof want);
    qmp_reader_done(&r);
}

Test(qmp, any_cut_gives_the_same_messages)
{
    for (size_t step = 1; step < sizeof stream; step++) {
        expect_all(step);
    }
}

static int feed_line(const char *line, struct err *err)
{
    struct qmp_reader r;
    struct qmp_message m = { 0 };
    qmp_reader_init(&r);
    cr_assert_eq(qmp_reader_feed(&r, line, strlen(line), NULL), 0);
    int rc = qmp_reader_next(&r, &m, err);
    if (rc == 1) {
        json_decref(m.root);
    } else if (rc < 0) {
        cr_assert_lt(qmp_reader_next(&r, &m, NULL), 0, "broken stays broken");
        cr_assert_lt(qmp_reader_feed(&r, "{}\n", 3, NULL), 0);
    }
    qmp_reader_done(&r);
    return rc;
}

Test(qmp, nonsense_is_refused)
{
    static const char *const bad[] = { "[]\n",
                                       "{\n",
                                       "42\n",
                                       "{\"foo\": 1}\n",
                                       "{\"event\": 7}\n",
                                       "{\"return\": 1, \"return\": 2}\n",
                                       "\xff\xfe\n" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = { 0 };
        cr_assert_eq(feed_line(bad[i], &err), -ERR_PROTOCOL, "%s", bad[i]);
        cr_assert(err.text[0] != 0);
    }
    cr_assert_eq(feed_line("{\"return\": {}", NULL), 0, "an unfinished line is not an error");
    cr_assert_eq(feed_line("{\"error\": 5}\n", NULL), 1, "an error without a text is still one");
}

Test(qmp, a_line_has_a_maximum)
{
    struct qmp_reader r;
    struct qmp_message m;
    char *chunk = malloc(1024);
    cr_assert(chunk);
    memset(chunk, 'x', 1024);
    qmp_reader_init(&r);
    for (size_t at = 0; at < QMP_LINE_MAX; at += 1024) {
        cr_assert_eq(qmp_reader_feed(&r, chunk, 1024, NULL), 0);
        cr_assert_eq(qmp_reader_next(&r, &m, NULL), 0);
    }
    cr_assert_eq(qmp_reader_feed(&r, chunk, 1, NULL), 0);
    cr_assert_eq(qmp_reader_next(&r, &m, NULL), -ERR_TOO_LARGE);
    qmp_reader_done(&r);
    free(chunk);
}
