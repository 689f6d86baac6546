/* `go test -json`: lines {Time, Action, Package, Test, Elapsed, Output}. A test opens with "run"
 * and ends with pass, fail or skip; lines of parallel tests are interleaved, so open tests are kept
 * in a table. A line without Test is about the package: a package that fails although none of its
 * tests did (a build error, a panic outside of a test, TestMain) gets a row of its own. Go up
 * to 1.23 prints build errors as plain text between the JSON lines; 1.24 has actions for them. */
#include "common/report/report_part.h"

#include <assert.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* keyed: the names come from a stranger, who could choose them to collide */
#define HASH_FUNCTION(at, n, ret) ((ret) = keyed_hash(g->hash_key, (at), (n)))
#include <uthash.h>
#include <utlist.h>

DEFINE_CLEANUP(json_decref_fn, json_t, json_decref)
#define PACKAGE_ROW "(package)"

/* A test, or with an empty test name a package. The key is package NUL test. */
struct open_test {
    UT_hash_handle hh;
    struct open_test *package, *prev, *next; /* test: in its package's list */
    struct open_test *open;                  /* package: its open tests */
    struct buf output;
    size_t failed; /* package: rows that failed */
    bool cut, ended;
    size_t package_len, key_len;
    char key[];
};

struct go {
    unsigned char hash_key[crypto_shorthash_KEYBYTES];
    struct report *r;
    struct err *err;
    struct open_test *tests; /* open ones only */
    struct open_test *packages;
    size_t kept_bytes; /* in the outputs of all open tests */
};

static unsigned keyed_hash(const unsigned char *key, const void *p, size_t n)
{
    unsigned char out[crypto_shorthash_BYTES];
    unsigned v;
    (void)crypto_shorthash(out, p, n, key);
    memcpy(&v, out, sizeof v);
    return v;
}

static struct report_slice member(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v)) : SLICE("");
}

static void open_free(struct go *g, struct open_test *t)
{
    g->kept_bytes -= t->output.len;
    buf_done(&t->output);
    free(t);
}

/* The open test of a package, made when there is none; the package itself without a test's name.
 * NULL when there are too many. */
static struct open_test *lookup(struct go *g, struct report_slice package, struct report_slice test)
{
    bool is_package = test.n == 0;
    struct open_test *owner = is_package ? NULL : lookup(g, package, SLICE(""));
    if (!is_package && !owner) {
        return NULL;
    }
    package.n = package.n < REPORT_NAME_BYTES_MAX ? package.n : REPORT_NAME_BYTES_MAX;
    test.n = test.n < REPORT_NAME_BYTES_MAX ? test.n : REPORT_NAME_BYTES_MAX;
    char key[2 * REPORT_NAME_BYTES_MAX + 1];
    memcpy(key, package.s, package.n);
    key[package.n] = 0;
    memcpy(key + package.n + 1, test.s, test.n);
    size_t n = package.n + 1 + test.n;
    struct open_test *t;
    HASH_FIND(hh, is_package ? g->packages : g->tests, key, n, t);
    if (t) {
        return t;
    }
    if (HASH_COUNT(g->packages) + HASH_COUNT(g->tests) >= REPORT_CASES_MAX) {
        return NULL;
    }
    t = calloc(1, sizeof *t + n + 1);
    if (!t) {
        abort();
    }
    buf_init(&t->output, REPORT_TEXT_BYTES_MAX);
    t->package_len = package.n;
    t->key_len = n;
    memcpy(t->key, key, n);
    if (is_package) {
        HASH_ADD(hh, g->packages, key, n, t);
    } else {
        t->package = owner;
        DL_APPEND(owner->open, t);
        HASH_ADD(hh, g->tests, key, n, t);
    }
    return t;
}

/* Lines of the test runner itself. */
static bool runner_line(struct report_slice s)
{
    s = slice_trim(s);
    return slice_begins(s, "=== ") || slice_begins(s, "--- PASS") || slice_begins(s, "--- FAIL") ||
           slice_begins(s, "--- SKIP");
}

static void keep(struct go *g, struct open_test *t, struct report_slice s)
{
    if (runner_line(s)) {
        return;
    }
    if (s.n > REPORT_TEXTS_BYTES_MAX - g->kept_bytes) {
        t->cut = true;
        return;
    }
    size_t before = t->output.len;
    report_append(&t->output, s.s, s.n, &t->cut);
    g->kept_bytes += t->output.len - before;
}

/* "    x_test.go:12: text" of testing.T, which prints no folders; in a panic's trace the first line
 * in a test file. */
static bool own_file(struct report_slice file)
{
    bool test_file = file.n > 8 && memcmp(file.s + file.n - 8, "_test.go", 8) == 0;
    bool go_file = file.n > 3 && memcmp(file.s + file.n - 3, ".go", 3) == 0;
    return !memchr(file.s, ' ', file.n) && (test_file || (go_file && !memchr(file.s, '/', file.n)));
}

static void find_place(struct report_slice text, struct report_new *c)
{
    while (text.n) {
        struct report_slice line = slice_trim(slice_line(&text)), file;
        int number;
        if (slice_file_line(line, &file, &number) && own_file(file)) {
            c->file = file;
            c->line = number;
            const char *rest = memchr(line.s + file.n + 1, ':', line.n - file.n - 1);
            if (rest) {
                c->message = slice_trim(slice_of(rest + 1, line.n - (size_t)(rest + 1 - line.s)));
            }
            return;
        }
    }
}

static int row(struct go *g, struct open_test *t, enum report_status status, const char *raw,
               int64_t time_us)
{
    struct report_slice test =
        slice_of(t->key + t->package_len + 1, t->key_len - t->package_len - 1);
    struct report_slice output = slice_buf(&t->output);
    struct report_new c = {
        .suite = slice_of(t->key, t->package_len),
        .classname = slice_of(t->key, t->package_len),
        .name = test.n ? test : SLICE(PACKAGE_ROW),
        .raw_status = slice_of(raw, strlen(raw)),
        .time_us = time_us,
        .status = status,
        .cut = t->cut,
    };
    if (status == REPORT_PASSED) {
        c.stdout_text = output;
    } else {
        c.text = output;
        find_place(output, &c);
        if (c.message.n == 0) {
            c.message = report_first_line(output);
        }
    }
    return report_add(g->r, &c, g->err);
}

static int end_test(struct go *g, struct open_test *t, enum report_status status, const char *raw,
                    int64_t time_us)
{
    int rc = row(g, t, status, raw, time_us);
    t->package->failed += status == REPORT_FAILED || status == REPORT_ERROR;
    DL_DELETE(t->package->open, t);
    HASH_DEL(g->tests, t);
    open_free(g, t);
    return rc;
}

static int end_package(struct go *g, struct open_test *p, const char *action, int64_t time_us)
{
    p->ended = true;
    /* what still runs when its package ends was cut off: a panic, or the time-out of go test */
    while (p->open) {
        int rc = end_test(g, p->open, REPORT_ERROR, "not ended", -1);
        if (rc < 0) {
            return rc;
        }
    }
    bool unexplained = strcmp(action, "fail") == 0 && p->failed == 0;
    int rc = unexplained ? row(g, p, REPORT_ERROR, "fail", time_us) : 0;
    g->kept_bytes -= p->output.len; /* should the package run again, it starts anew */
    buf_reset(&p->output);
    p->failed = 0;
    p->cut = false;
    return rc;
}

static int event(struct go *g, const json_t *o)
{
    struct report_slice action = member(o, "Action"), package = member(o, "Package"),
                        test = member(o, "Test");
    const json_t *elapsed = json_object_get(o, "Elapsed");
    int64_t time_us =
        json_is_number(elapsed) ? report_time_from_real(json_number_value(elapsed), 1000000) : -1;
    int64_t now_ms = report_parse_date(member(o, "Time"));
    struct report *r = g->r;
    if (now_ms > 0) {
        r->start_ms = r->start_ms && r->start_ms < now_ms ? r->start_ms : now_ms;
        r->stop_ms = r->stop_ms > now_ms ? r->stop_ms : now_ms;
    }
    if (slice_begins(action, "build-")) { /* 1.24: ImportPath is "pkg [pkg.test]" */
        package = member(o, "ImportPath");
        const char *space = package.n ? memchr(package.s, ' ', package.n) : NULL;
        package.n = space ? (size_t)(space - package.s) : package.n;
        test = SLICE("");
    }
    if (package.n == 0) {
        return 0;
    }
    struct open_test *p = lookup(g, package, SLICE(""));
    struct open_test *t = test.n ? lookup(g, package, test) : p;
    if (!p || !t) {
        return err_set(g->err, ERR_TOO_LARGE, "more than %u tests", REPORT_CASES_MAX);
    }
    p->ended &= !(slice_is(action, "run") || slice_is(action, "start"));
    if (slice_is(action, "output") || slice_is(action, "build-output")) {
        keep(g, t, member(o, "Output"));
    } else if (slice_is(action, "pass") || slice_is(action, "fail") || slice_is(action, "skip")) {
        const char *word = slice_is(action, "pass")   ? "pass"
                           : slice_is(action, "fail") ? "fail"
                                                      : "skip";
        enum report_status s = word[0] == 'p'   ? REPORT_PASSED
                               : word[0] == 'f' ? REPORT_FAILED
                                                : REPORT_SKIPPED;
        return test.n ? end_test(g, t, s, word, time_us) : end_package(g, p, word, time_us);
    }
    return 0; /* run, pause, cont, start, bench, build-fail */
}

/* "FAIL\tpackage [build failed]" or "[setup failed]", which go prints without JSON. */
static int plain(struct go *g, struct report_slice line)
{
    line = slice_trim(line);
    if (!slice_begins(line, "FAIL\t") || line.n < 6 || line.s[line.n - 1] != ']') {
        return 0;
    }
    struct report_slice rest = slice_trim(slice_of(line.s + 5, line.n - 5));
    const char *space = memchr(rest.s, ' ', rest.n);
    if (!space) {
        return 0;
    }
    struct open_test *p = lookup(g, slice_of(rest.s, (size_t)(space - rest.s)), SLICE(""));
    if (!p) {
        return err_set(g->err, ERR_TOO_LARGE, "more than %u tests", REPORT_CASES_MAX);
    }
    keep(g, p, slice_of(space + 1, rest.n - (size_t)(space + 1 - rest.s)));
    return p->ended ? 0 : end_package(g, p, "fail", -1);
}

static int line_of(struct go *g, struct report_slice line)
{
    struct err ignored;
    if (line.n == 0 || line.s[0] != '{') {
        return plain(g, line);
    }
    if (report_json_bounds(line.s, line.n, &ignored) < 0) {
        return err_set(g->err, ERR_INVALID, "go: %s", ignored.text);
    }
    CLEANUP(json_decref_fn)
    json_t *o = json_loadb(line.s, line.n, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(o)) {
        return 0; /* a program's own output */
    }
    return event(g, o);
}

static int read_lines(struct go *g, struct report_slice rest)
{
    struct open_test *t, *next;
    while (rest.n) {
        int rc = line_of(g, slice_line(&rest));
        if (rc < 0) {
            return rc;
        }
    }
    if (HASH_COUNT(g->packages) == 0) {
        return err_set(g->err, ERR_INVALID, "go: no line of go test -json");
    }
    HASH_ITER(hh, g->tests, t, next)
    { /* the stream broke off */
        int rc = end_test(g, t, REPORT_ERROR, "not ended", -1);
        if (rc < 0) {
            return rc;
        }
    }
    HASH_ITER(hh, g->packages, t, next)
    {
        if (!t->ended) {
            report_note(g->r, "go: package %s did not end", t->key);
            g->r->incomplete = true;
        }
    }
    return 0;
}

int report_read_go(struct report *r, const char *data, size_t len, struct err *err)
{
    struct go here = { .r = r, .err = err }, *g = &here;
    randombytes_buf(g->hash_key, sizeof g->hash_key);
    report_set_tool(r, SLICE("go test"));
    int rc = read_lines(g, slice_of(data, len));
    struct open_test *t, *next;
    HASH_ITER(hh, g->tests, t, next)
    {
        HASH_DEL(g->tests, t);
        open_free(g, t);
    }
    HASH_ITER(hh, g->packages, t, next)
    {
        HASH_DEL(g->packages, t);
        open_free(g, t);
    }
    return rc;
}
