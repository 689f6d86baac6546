/* CTRF, the Common Test Report Format (https://ctrf.io): one JSON document. Lenient as to what is
 * missing; a field of the wrong type counts as missing, but results.tests must be a list of
 * objects. */
#include "common/report/report_part.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

DEFINE_CLEANUP(json_decref_fn, json_t, json_decref)

static struct report_slice str(const json_t *v)
{
    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v)) : SLICE("");
}

static struct report_slice member(const json_t *o, const char *name)
{
    return str(json_object_get(o, name));
}

/* A string, or a list of strings joined by sep, into b (reset first). */
static struct report_slice joined(const json_t *v, const char *sep, struct buf *b, bool *cut)
{
    buf_reset(b);
    if (json_is_string(v)) {
        return str(v);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct report_slice s = str(json_array_get(v, i));
        report_append(b, sep, i ? strlen(sep) : 0, cut);
        report_append(b, s.s, s.n, cut);
    }
    return slice_buf(b);
}

static int whole(const json_t *v, int max)
{
    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= max
               ? (int)json_integer_value(v)
               : 0;
}

/* CTRF has no "error"; the writer here puts it into extra.status. It may only make a failure more
 * precise. */
static enum report_status status_of(const json_t *test, const json_t *extra)
{
    struct report_slice s = member(test, "status");
    enum report_status status = REPORT_OTHER;
    for (int i = 0; i < REPORT_STATUS_END; i++) {
        if (slice_is(s, report_status_word((enum report_status)i))) {
            status = (enum report_status)i;
        }
    }
    if (status == REPORT_FAILED && (slice_is(member(extra, "status"), "error") ||
                                    slice_is(member(test, "rawStatus"), "error"))) {
        return REPORT_ERROR;
    }
    return status;
}

struct scratch {
    struct buf suite, out, errors;
};

static int read_test(struct report *r, const json_t *test, struct scratch *scratch, struct err *err)
{
    bool cut = false;
    const json_t *extra = json_object_get(test, "extra");
    const json_t *duration = json_object_get(test, "duration");
    int retries = whole(json_object_get(test, "retries"), 1000000);
    struct report_slice type = member(extra, "type"), name = member(test, "name");
    struct report_new c = {
        .suite = joined(json_object_get(test, "suite"), " > ", &scratch->suite, &cut),
        .classname = member(extra, "classname"),
        .name = name.n ? name : SLICE("(unnamed)"),
        .file = member(test, "filePath"),
        .message = member(test, "message"),
        .type = type,
        .raw_status = member(test, "rawStatus"),
        .shard = member(extra, "shard"),
        .text = member(test, "trace"),
        .stdout_text = joined(json_object_get(test, "stdout"), "\n", &scratch->out, &cut),
        .stderr_text = joined(json_object_get(test, "stderr"), "\n", &scratch->errors, &cut),
        .time_us = json_is_number(duration)
                       ? report_time_from_real(json_number_value(duration), 1000)
                       : -1,
        .line = whole(json_object_get(test, "line"), INT32_MAX),
        .attempts = 1 + (unsigned)retries,
        .status = status_of(test, extra),
        .cut = cut,
    };
    return report_add(r, &c, err);
}

static void check_summary(struct report *r, const json_t *summary)
{
    const json_t *tests = json_object_get(summary, "tests"),
                 *failed = json_object_get(summary, "failed");
    if (json_is_integer(tests) && json_integer_value(tests) != (json_int_t)r->n_cases) {
        report_note(r, "ctrf: the summary says %lld tests, the list has %zu",
                    (long long)json_integer_value(tests), r->n_cases);
    }
    if (json_is_integer(failed) && json_integer_value(failed) > 0 &&
        r->count[REPORT_FAILED] + r->count[REPORT_ERROR] == 0) {
        report_note(r, "ctrf: the summary says %lld failed, the list has none",
                    (long long)json_integer_value(failed));
        r->incomplete = true;
    }
}

static int64_t unix_ms(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) > 0 ? json_integer_value(v) : 0;
}

static int read_root(struct report *r, const json_t *root, struct err *err)
{
    const json_t *results = json_object_get(root, "results");
    const json_t *tests = json_object_get(results, "tests"),
                 *summary = json_object_get(results, "summary");
    if (!json_is_array(tests)) {
        return err_set(err, ERR_INVALID, "ctrf: results.tests: must be a list");
    }
    report_set_tool(r, member(json_object_get(results, "tool"), "name"));
    r->start_ms = unix_ms(json_object_get(summary, "start"));
    r->stop_ms = unix_ms(json_object_get(summary, "stop"));
    struct scratch scratch;
    buf_init(&scratch.suite, REPORT_NAME_BYTES_MAX + 1);
    buf_init(&scratch.out, REPORT_TEXT_BYTES_MAX + 1);
    buf_init(&scratch.errors, REPORT_TEXT_BYTES_MAX + 1);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        rc = json_is_object(test)
                 ? read_test(r, test, &scratch, err)
                 : err_set(err, ERR_INVALID, "ctrf: results.tests[%zu]: must be an object", i);
    }
    buf_done(&scratch.suite);
    buf_done(&scratch.out);
    buf_done(&scratch.errors);
    if (rc == 0) {
        check_summary(r, summary);
    }
    return rc;
}

int report_read_ctrf(struct report *r, const char *data, size_t len, struct err *err)
{
    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data += 3;
        len -= 3;
    }
    int rc = report_json_bounds(data, len, err);
    if (rc < 0) {
        return err_prefix(err, "ctrf");
    }
    json_error_t e;
    CLEANUP(json_decref_fn)
    json_t *root = json_loadb(data, len, JSON_ALLOW_NUL, &e);
    if (!root) {
        char text[JSON_ERROR_TEXT_LENGTH];
        size_t n = strnlen(e.text, sizeof text - 1);
        for (size_t i = 0; i < n; i++) { /* the text quotes the input */
            text[i] = (unsigned char)e.text[i] < 0x20 || (unsigned char)e.text[i] >= 0x7f
                          ? '?'
                          : e.text[i];
        }
        text[n] = 0;
        return err_set(err, ERR_INVALID, "ctrf: not JSON: line %d, column %d: %s", e.line, e.column,
                       text);
    }
    return read_root(r, root, err);
}
