/* Comparing a result with a case's expectation: one function a key, in one table, so that an
 * unknown key is a mistake of the case file and not a check that silently passes. */
#include "tests/e2e/check.h"

#include <assert.h>
#include <regex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

struct checking {
    const json_t *result;
    struct buf *out;
    int differences;
    const char *key; /* of expect, being checked */
};

__attribute__((format(printf, 2, 3))) static void differs(struct checking *c, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct err err;
    if (buf_addf(c->out, &err, "  %s: %s\n", c->key, text) < 0) {
        abort();
    }
    c->differences++;
}

static void malformed(const char *what)
{
    (void)fprintf(stderr, "e2e: case file: %s\n", what);
    abort();
}

static bool one_of(const json_t *want, const char *got)
{
    size_t i;
    json_t *v;
    if (json_is_string(want)) {
        return strcmp(json_string_value(want), got) == 0;
    }
    json_array_foreach((json_t *)(uintptr_t)want, i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), got) == 0) {
            return true;
        }
    }
    return false;
}

static void check_verdict(struct checking *c, const json_t *want)
{
    const char *reason = json_string_value(e2e_at(c->result, "reason"));
    if (!one_of(want, e2e_verdict(c->result))) {
        cleanup_free char *text = json_dumps(want, JSON_ENCODE_ANY);
        differs(c, "is %s (%s), should be %s", e2e_verdict(c->result), reason ? reason : "", text);
    }
}

static void check_run_value(struct checking *c, const char *path, const json_t *want)
{
    const json_t *got = e2e_at(c->result, path);
    if (!json_equal(got ? got : json_null(), want)) {
        cleanup_free char *a = got ? json_dumps(got, JSON_ENCODE_ANY) : NULL;
        cleanup_free char *b = json_dumps(want, JSON_ENCODE_ANY);
        differs(c, "is %s, should be %s", a ? a : "missing", b);
    }
}

static void check_exit_code(struct checking *c, const json_t *want)
{
    check_run_value(c, "exit_code", want);
}

static void check_signal(struct checking *c, const json_t *want)
{
    check_run_value(c, "signal", want);
}

/* {"name": .., "value": ..}: a limit verdict names the limit, its value and what was used. */
static void check_limit(struct checking *c, const json_t *want)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)want, key, v)
    {
        char path[64];
        (void)snprintf(path, sizeof path, "limit.%s", key);
        check_run_value(c, path, v);
    }
    if (!json_is_integer(e2e_at(c->result, "limit.used"))) {
        differs(c, "limit.used is missing");
    }
}

/* {"cpu_us": [lo, hi]}: numbers; null is an open end. */
static void check_range(struct checking *c, const json_t *want)
{
    const char *path;
    json_t *range;
    json_object_foreach((json_t *)(uintptr_t)want, path, range)
    {
        const json_t *got = e2e_at(c->result, path), *lo = json_array_get(range, 0),
                     *hi = json_array_get(range, 1);
        double v = json_number_value(got);
        if (!json_is_number(got) || (json_is_number(lo) && v < json_number_value(lo)) ||
            (json_is_number(hi) && v > json_number_value(hi))) {
            cleanup_free char *b = json_dumps(range, JSON_ENCODE_ANY);
            differs(c, "%s is %.0f%s, should be in %s", path, v,
                    json_is_number(got) ? "" : " (missing)", b);
        }
    }
}

/* {"stdout.truncated": true}: any values. */
static void check_equal(struct checking *c, const json_t *want)
{
    const char *path;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)want, path, v)
    {
        char old_key[128];
        const char *key = c->key;
        (void)snprintf(old_key, sizeof old_key, "%s %s", key, path);
        c->key = old_key;
        check_run_value(c, path, v);
        c->key = key;
    }
}

static void check_reason(struct checking *c, const json_t *want)
{
    const char *reason = json_string_value(e2e_at(c->result, "reason"));
    if (!reason || !strstr(reason, json_string_value(want))) {
        differs(c, "\"%s\" lacks \"%s\"", reason ? reason : "", json_string_value(want));
    }
}

/* ---- output ---- */

static void show(const struct buf *b, char out[200])
{
    size_t n = 0;
    for (size_t i = 0; i < b->len && n < 180; i++) {
        unsigned char ch = (unsigned char)b->data[i];
        n += (size_t)snprintf(out + n, 200 - n, ch >= 32 && ch < 127 ? "%c" : "\\x%02x", ch);
    }
    out[n] = 0;
}

static void decode(const json_t *v, struct buf *ret)
{
    struct err err;
    size_t n = json_string_length(v), got = 0;
    void *room = buf_reserve(ret, n + 1, &err);
    if (!room || sodium_base642bin(room, n + 1, json_string_value(v), n, NULL, &got, NULL,
                                   sodium_base64_VARIANT_ORIGINAL) != 0) {
        malformed("base64");
    }
    buf_commit(ret, got);
}

static bool matches(const char *pattern, const struct buf *b)
{
    regex_t re;
    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0) {
        malformed("regular expression");
    }
    bool yes = regexec(&re, b->len ? b->data : "", 0, NULL, 0) == 0;
    regfree(&re);
    return yes;
}

/* Every string of want (one or a list) stands in b, or does not. */
static void check_holds(struct checking *c, const json_t *want, const struct buf *b, bool should)
{
    size_t i, n = json_is_array(want) ? json_array_size(want) : 1;
    for (i = 0; i < n; i++) {
        const json_t *v = json_is_array(want) ? json_array_get(want, i) : want;
        const char *s = json_string_value(v);
        if (!s) {
            malformed("a string was expected");
        }
        bool is = b->len && memmem(b->data, b->len, s, json_string_length(v)) != NULL;
        if (is != should) {
            char shown[200];
            show(b, shown);
            differs(c, "%s \"%s\" in: %s", should ? "no" : "there is", s, shown);
        }
    }
}

/* What may be said of a stream: {"is", "base64", "sha256", "starts", "ends", "has", "lacks",
 * "matches", "kept"}. */
static void check_stream_rules(struct checking *c, const json_t *want, const struct buf *b)
{
    const char *rule;
    json_t *v;
    char shown[200];
    show(b, shown);
    json_object_foreach((json_t *)(uintptr_t)want, rule, v)
    {
        const char *s = json_string_value(v);
        size_t n = json_string_length(v);
        if (strcmp(rule, "is") == 0) {
            if (b->len != n || memcmp(b->len ? b->data : "", s, n) != 0) {
                differs(c, "is (%zu bytes) %s", b->len, shown);
            }
        } else if (strcmp(rule, "base64") == 0) {
            cleanup_buf struct buf bytes = { 0 };
            buf_init(&bytes, E2E_OUT_MAX);
            decode(v, &bytes);
            if (b->len != bytes.len || memcmp(b->data, bytes.data, b->len) != 0) {
                differs(c, "bytes differ: %s", shown);
            }
        } else if (strcmp(rule, "sha256") == 0) {
            unsigned char hash[crypto_hash_sha256_BYTES];
            char hex[sizeof hash * 2 + 1];
            (void)crypto_hash_sha256(hash, (const unsigned char *)(b->len ? b->data : ""), b->len);
            if (strcmp(sodium_bin2hex(hex, sizeof hex, hash, sizeof hash), s) != 0) {
                differs(c, "sha256 of %zu bytes is %s: %s", b->len, hex, shown);
            }
        } else if (strcmp(rule, "starts") == 0) {
            if (b->len < n || memcmp(b->data, s, n) != 0) {
                differs(c, "does not start with \"%s\": %s", s, shown);
            }
        } else if (strcmp(rule, "ends") == 0) {
            if (b->len < n || memcmp(b->data + b->len - n, s, n) != 0) {
                differs(c, "does not end with \"%s\"", s);
            }
        } else if (strcmp(rule, "has") == 0 || strcmp(rule, "lacks") == 0) {
            check_holds(c, v, b, rule[0] == 'h');
        } else if (strcmp(rule, "matches") == 0) {
            if (!matches(s, b)) {
                differs(c, "does not match %s: %s", s, shown);
            }
        } else if (strcmp(rule, "kept") == 0) {
            if ((json_int_t)b->len != json_integer_value(v)) {
                differs(c, "%zu bytes are kept, should be %lld", b->len,
                        (long long)json_integer_value(v));
            }
        } else {
            malformed(rule);
        }
    }
}

static void check_stream(struct checking *c, const json_t *want, const json_t *run,
                         const char *stream)
{
    cleanup_buf struct buf b = { 0 };
    e2e_output(run, stream, &b);
    if (json_is_string(want)) {
        json_t *is = json_pack("{s:O}", "is", want);
        check_stream_rules(c, is, &b);
        json_decref(is);
        return;
    }
    check_stream_rules(c, want, &b);
}

static void check_stdout(struct checking *c, const json_t *want)
{
    check_stream(c, want, c->result, "stdout");
}

static void check_stderr(struct checking *c, const json_t *want)
{
    check_stream(c, want, c->result, "stderr");
}

static void check_setup_stderr(struct checking *c, const json_t *want)
{
    check_stream(c, want, e2e_at(c->result, "setup"), "stderr");
}

/* ---- the table ---- */

static const struct {
    const char *key;
    void (*check)(struct checking *c, const json_t *want);
} checks[] = {
    { "verdict", check_verdict }, { "exit_code", check_exit_code },
    { "signal", check_signal },   { "limit", check_limit },
    { "range", check_range },     { "equal", check_equal },
    { "reason", check_reason },   { "stdout", check_stdout },
    { "stderr", check_stderr },   { "setup_stderr", check_setup_stderr },
};

int case_check(const json_t *expect, const json_t *result, struct buf *out)
{
    struct checking c = { .result = result, .out = out };
    json_t *want;
    json_object_foreach((json_t *)(uintptr_t)expect, c.key, want)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
            if (strcmp(checks[i].key, c.key) == 0) {
                checks[i].check(&c, want);
                known = true;
            }
        }
        if (!known) {
            malformed(c.key);
        }
    }
    return c.differences;
}

int case_check_relation(const json_t *case_, const json_t *results, struct buf *out)
{
    struct checking c = { .out = out, .key = "relation" };
    const char *relation = json_string_value(json_object_get(case_, "relation"));
    if (!relation) {
        return 0;
    }
    bool distinct = strcmp(relation, "distinct_stdout") == 0;
    if (!distinct && strcmp(relation, "equal_stdout") != 0) {
        malformed(relation);
    }
    size_t n = json_array_size(results);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            cleanup_buf struct buf a = { 0 }, b = { 0 };
            e2e_output(json_array_get(results, i), "stdout", &a);
            e2e_output(json_array_get(results, j), "stdout", &b);
            bool equal =
                a.len == b.len && memcmp(a.len ? a.data : "", b.len ? b.data : "", a.len) == 0;
            if (equal == distinct) {
                char shown[200];
                show(&a, shown);
                differs(&c, "%s: results %zu and %zu: %s", relation, i, j, shown);
            }
        }
    }
    return c.differences;
}

/* ---- loading ---- */

/* {"repeat": "x", "times": 3} -> "xxx"; NULL when v is something else. */
static json_t *repeated(const json_t *v)
{
    const json_t *what = json_object_get(v, "repeat"), *times = json_object_get(v, "times");
    if (!json_is_string(what) || !json_is_integer(times)) {
        return NULL;
    }
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 16u << 20);
    for (json_int_t i = 0; i < json_integer_value(times); i++) {
        if (buf_add(&b, json_string_value(what), json_string_length(what), &err) < 0) {
            malformed(err.text);
        }
    }
    return json_stringn(b.data, b.len);
}

/* {"text": ["a", "b"]} -> {"text": "a\nb\n"}: programs stay readable in the files. */
static void join_lines(json_t *v)
{
    static const char *const keys[] = { "text", "stdin", "stdout" };
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            join_lines(json_array_get(v, i));
        }
        return;
    }
    const char *key;
    json_t *item;
    void *next;
    json_object_foreach_safe(v, next, key, item)
    {
        join_lines(item);
        bool joins = false;
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            joins = joins || strcmp(key, keys[i]) == 0;
        }
        json_t *text = joins ? repeated(item) : NULL;
        if (text) {
            (void)json_object_set_new(v, key, text);
            continue;
        }
        if (!joins || !json_is_array(item)) {
            continue;
        }
        cleanup_buf struct buf b = { 0 };
        struct err err;
        buf_init(&b, 16u << 20);
        for (size_t i = 0; i < json_array_size(item); i++) {
            const json_t *line = json_array_get(item, i);
            if (buf_add(&b, json_string_value(line), json_string_length(line), &err) < 0 ||
                buf_add_str(&b, "\n", &err) < 0) {
                malformed(err.text);
            }
        }
        json_object_set_new(v, key, json_stringn(b.data, b.len));
    }
}

json_t *case_load(const char *path)
{
    json_error_t at;
    json_t *v = json_load_file(path, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &at);
    if (!json_is_object(v)) {
        (void)fprintf(stderr, "e2e: %s:%d: %s\n", path, at.line, at.text);
        abort();
    }
    join_lines(v);
    return v;
}

json_t *case_jobs(const json_t *case_)
{
    json_t *out = json_array();
    const json_t *list = json_object_get(case_, "jobs");
    size_t n = list ? json_array_size(list) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = list ? json_array_get(list, i) : case_;
        const json_t *repeat = json_object_get(item, "repeat");
        json_int_t times = repeat ? json_integer_value(repeat) : 1;
        const json_t *job = json_object_get(item, "job"), *expect = json_object_get(item, "expect");
        if (!json_is_object(job) || !json_is_object(expect) || times < 1 || times > 1000) {
            malformed("each item needs job, expect and a repeat from 1 to 1000");
        }
        for (json_int_t k = 0; k < times; k++) {
            (void)json_array_append_new(out, json_pack("{s:O, s:O}", "job", job, "expect", expect));
        }
    }
    return out;
}
