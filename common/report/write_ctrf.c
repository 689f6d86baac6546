/* CTRF. Written piece by piece into the buffer, since a tree of JSON values of a large report would
 * cost many times its text. CTRF has no "error": such a case is failed, with rawStatus and
 * extra.status saying more. */
#include "common/report/report_part.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct writer {
    struct buf *out;
    struct err *err;
    int rc;
    bool first; /* no comma is needed before the next member */
};

static void put(struct writer *w, const char *s, size_t n)
{
    if (w->rc == 0) {
        w->rc = buf_add(w->out, s, n, w->err);
    }
}

static void raw(struct writer *w, const char *s)
{
    put(w, s, strlen(s));
}

static void string(struct writer *w, const char *s, size_t n)
{
    size_t kept = 0;
    raw(w, "\"");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            continue;
        }
        char as[8];
        if (c == '"' || c == '\\') {
            (void)snprintf(as, sizeof as, "\\%c", c);
        } else if (c == '\n') {
            (void)snprintf(as, sizeof as, "\\n");
        } else {
            (void)snprintf(as, sizeof as, "\\u%04x", c);
        }
        put(w, s + kept, i - kept);
        raw(w, as);
        kept = i + 1;
    }
    put(w, s + kept, n - kept);
    raw(w, "\"");
}

static void key(struct writer *w, const char *name)
{
    raw(w, w->first ? "" : ",");
    w->first = false;
    string(w, name, strlen(name));
    raw(w, ":");
}

static void member(struct writer *w, const char *name, const char *value)
{
    if (value && value[0]) {
        key(w, name);
        string(w, value, strlen(value));
    }
}

static void number(struct writer *w, const char *name, int64_t value)
{
    char s[32];
    (void)snprintf(s, sizeof s, "%" PRId64, value);
    key(w, name);
    raw(w, s);
}

static void list_of_one(struct writer *w, const char *name, const char *value)
{
    if (value[0]) {
        key(w, name);
        raw(w, "[");
        string(w, value, strlen(value));
        raw(w, "]");
    }
}

/* The hierarchy that the model keeps joined. */
static void suite_list(struct writer *w, const char *suite)
{
    if (!suite[0]) {
        return;
    }
    key(w, "suite");
    raw(w, "[");
    for (const char *end; (end = strstr(suite, " > ")) != NULL; suite = end + 3) {
        string(w, suite, (size_t)(end - suite));
        raw(w, ",");
    }
    string(w, suite, strlen(suite));
    raw(w, "]");
}

static void open_object(struct writer *w, const char *name)
{
    if (name) {
        key(w, name);
    }
    raw(w, "{");
    w->first = true;
}

static void close_object(struct writer *w)
{
    raw(w, "}");
    w->first = false;
}

static void extra(struct writer *w, const struct report_case *c)
{
    bool error = c->status == REPORT_ERROR;
    if (!error && !c->classname[0] && !c->type[0] && !c->shard[0] && !c->cut) {
        return;
    }
    open_object(w, "extra");
    member(w, "status", error ? "error" : "");
    member(w, "classname", c->classname);
    member(w, "type", c->type);
    member(w, "shard", c->shard);
    if (c->cut) {
        key(w, "cut");
        raw(w, "true");
    }
    close_object(w);
}

static void test(struct writer *w, const struct report_case *c)
{
    bool error = c->status == REPORT_ERROR;
    open_object(w, NULL);
    key(w, "name");
    string(w, c->name, strlen(c->name));
    key(w, "status");
    const char *status = error ? "failed" : report_status_word(c->status);
    string(w, status, strlen(status));
    number(w, "duration", c->time_us > 0 ? (c->time_us + 500) / 1000 : 0);
    suite_list(w, c->suite);
    member(w, "message", c->message);
    member(w, "trace", c->text);
    member(w, "rawStatus", c->raw_status[0] || !error ? c->raw_status : "error");
    member(w, "filePath", c->file);
    if (c->line) {
        number(w, "line", c->line);
    }
    if (c->attempts > 1) {
        number(w, "retries", (int64_t)c->attempts - 1);
        if (c->status == REPORT_PASSED) {
            key(w, "flaky");
            raw(w, "true");
        }
    }
    list_of_one(w, "stdout", c->stdout_text);
    list_of_one(w, "stderr", c->stderr_text);
    extra(w, c);
    close_object(w);
}

static void summary(struct writer *w, const struct report *r)
{
    int64_t start_ms = r->start_ms, stop_ms = r->stop_ms;
    if (stop_ms < start_ms) {
        stop_ms = start_ms + report_time_us(r) / 1000;
    }
    open_object(w, "summary");
    number(w, "tests", (int64_t)r->n_cases);
    number(w, "passed", (int64_t)r->count[REPORT_PASSED]);
    number(w, "failed", (int64_t)(r->count[REPORT_FAILED] + r->count[REPORT_ERROR]));
    number(w, "skipped", (int64_t)r->count[REPORT_SKIPPED]);
    number(w, "pending", (int64_t)r->count[REPORT_PENDING]);
    number(w, "other", (int64_t)r->count[REPORT_OTHER]);
    number(w, "start", start_ms);
    number(w, "stop", stop_ms);
    close_object(w);
}

int report_write_ctrf(const struct report *r, const struct report_ctrf_info *info, struct buf *out,
                      struct err *err)
{
    assert(info);
    struct writer w = { .out = out, .err = err };
    open_object(&w, NULL);
    member(&w, "reportFormat", "CTRF");
    member(&w, "specVersion", "0.0.0");
    member(&w, "generatedBy", "brood");
    open_object(&w, "results");
    open_object(&w, "tool");
    member(&w, "name", info->tool ? info->tool : r->tool[0] ? r->tool : "brood");
    close_object(&w);
    summary(&w, r);
    key(&w, "tests");
    raw(&w, "[");
    for (size_t i = 0; i < r->n_cases && w.rc == 0; i++) {
        raw(&w, i ? ",\n" : "\n");
        test(&w, &r->cases[i]);
    }
    raw(&w, "]");
    if (info->build_url || info->commit || info->branch) {
        open_object(&w, "environment");
        member(&w, "buildUrl", info->build_url);
        member(&w, "commit", info->commit);
        member(&w, "branchName", info->branch);
        close_object(&w);
    }
    close_object(&w);
    close_object(&w);
    raw(&w, "\n");
    return w.rc;
}
