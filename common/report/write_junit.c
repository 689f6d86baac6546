/* JUnit XML in the dialect that the readers of CI systems have in common: testsuites > testsuite >
 * testcase with failure, error or skipped, system-out and system-err. Cases of one suite and shard
 * are put together, in the order of their first case. What JUnit has no place for is a property
 * named brood.*, which the reader here takes back. */
#include "common/report/report_part.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct slot {
    const struct report_case *c;
    size_t index, group; /* group: index of the first case of its suite and shard */
};

struct total {
    size_t tests, failures, errors, skipped;
    int64_t time_us;
};

struct writer {
    struct buf *out;
    struct err *err;
    int rc; /* the first error; later writes do nothing */
};

static void put(struct writer *w, const char *s, size_t n)
{
    if (w->rc == 0) {
        w->rc = buf_add(w->out, s, n, w->err);
    }
}

static void puts_(struct writer *w, const char *s)
{
    put(w, s, strlen(s));
}

/* Text or attribute value: escaped, and what XML forbids as pytest writes it ("#x1B"). */
static void escaped(struct writer *w, const char *s, bool attribute)
{
    size_t n = strlen(s), kept = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t len = report_utf8(s + i, n - i, &code);
        assert(len > 0); /* the model keeps only valid UTF-8 */
        char number[16];
        const char *as = NULL;
        if (code == '&') {
            as = "&amp;";
        } else if (code == '<') {
            as = "&lt;";
        } else if (code == '>') {
            as = "&gt;";
        } else if (code == '"' && attribute) {
            as = "&quot;";
        } else if (code == '\r' || (attribute && (code == '\n' || code == '\t'))) {
            (void)snprintf(number, sizeof number, "&#%u;", (unsigned)code);
            as = number;
        } else if (!report_xml_char(code)) {
            (void)snprintf(number, sizeof number, "#x%02X", (unsigned)code);
            as = number;
        }
        if (as) {
            put(w, s + kept, i - kept);
            puts_(w, as);
            kept = i + len;
        }
        i += len;
    }
    put(w, s + kept, n - kept);
}

static void attribute(struct writer *w, const char *name, const char *value)
{
    puts_(w, " ");
    puts_(w, name);
    puts_(w, "=\"");
    escaped(w, value, true);
    puts_(w, "\"");
}

static void optional(struct writer *w, const char *name, const char *value)
{
    if (value[0]) {
        attribute(w, name, value);
    }
}

static void number(struct writer *w, const char *name, size_t value)
{
    char s[32];
    (void)snprintf(s, sizeof s, "%zu", value);
    attribute(w, name, s);
}

static void seconds(struct writer *w, int64_t time_us)
{
    char s[40];
    time_us = time_us > 0 ? time_us : 0;
    (void)snprintf(s, sizeof s, "%" PRId64 ".%06" PRId64, time_us / 1000000, time_us % 1000000);
    attribute(w, "time", s);
}

static void element(struct writer *w, const char *name, const char *text)
{
    if (text[0]) {
        puts_(w, "      <");
        puts_(w, name);
        puts_(w, ">");
        escaped(w, text, false);
        puts_(w, "</");
        puts_(w, name);
        puts_(w, ">\n");
    }
}

static void property(struct writer *w, const char *name, const char *value)
{
    puts_(w, "        <property");
    attribute(w, "name", name);
    attribute(w, "value", value);
    puts_(w, "/>\n");
}

static void properties(struct writer *w, const struct report_case *c)
{
    /* a skipped test of type todo would be read as pending */
    bool no_element = c->status == REPORT_PENDING || c->status == REPORT_OTHER ||
                      (c->status == REPORT_SKIPPED && strcmp(c->type, "todo") == 0);
    if (!no_element && !c->shard[0] && !c->raw_status[0] && c->attempts == 1 && !c->cut) {
        return;
    }
    puts_(w, "      <properties>\n");
    if (no_element) {
        property(w, "brood.status", report_status_word(c->status));
    }
    if (c->raw_status[0]) {
        property(w, "brood.raw_status", c->raw_status);
    }
    if (c->shard[0]) {
        property(w, "brood.shard", c->shard);
    }
    if (c->attempts > 1) {
        char s[16];
        (void)snprintf(s, sizeof s, "%u", c->attempts);
        property(w, "brood.attempts", s);
    }
    if (c->cut) {
        property(w, "brood.cut", "true");
    }
    puts_(w, "      </properties>\n");
}

static void outcome(struct writer *w, const struct report_case *c)
{
    const char *name = c->status == REPORT_FAILED   ? "failure"
                       : c->status == REPORT_ERROR  ? "error"
                       : c->status == REPORT_PASSED ? NULL
                                                    : "skipped";
    if (!name) {
        return;
    }
    puts_(w, "      <");
    puts_(w, name);
    optional(w, "message", c->message);
    optional(w, "type", c->type);
    if (c->text[0]) {
        puts_(w, ">");
        escaped(w, c->text, false);
        puts_(w, "</");
        puts_(w, name);
        puts_(w, ">\n");
    } else {
        puts_(w, "/>\n");
    }
}

static void testcase(struct writer *w, const struct report_case *c)
{
    puts_(w, "    <testcase");
    attribute(w, "name", c->name);
    /* GitLab's key is class and name; without a class the suite keeps equal names of two suites
     * apart */
    attribute(w, "classname", c->classname[0] ? c->classname : c->suite);
    seconds(w, c->time_us);
    optional(w, "file", c->file);
    if (c->line) {
        number(w, "line", (size_t)c->line);
    }
    puts_(w, ">\n");
    properties(w, c);
    outcome(w, c);
    element(w, "system-out", c->stdout_text);
    element(w, "system-err", c->stderr_text);
    puts_(w, "    </testcase>\n");
}

/* Equal strings are mostly one string. */
static int compare(const char *a, const char *b)
{
    return a == b ? 0 : strcmp(a, b);
}

static int by_suite(const void *pa, const void *pb)
{
    const struct slot *a = pa, *b = pb;
    int order = compare(a->c->shard, b->c->shard);
    order = order ? order : compare(a->c->suite, b->c->suite);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_group(const void *pa, const void *pb)
{
    const struct slot *a = pa, *b = pb;
    if (a->group != b->group) {
        return a->group > b->group ? 1 : -1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

static bool same_suite(const struct report_case *a, const struct report_case *b)
{
    return compare(a->suite, b->suite) == 0 && compare(a->shard, b->shard) == 0;
}

/* The cases grouped by suite and shard; the caller frees. */
static struct slot *grouped(const struct report *r)
{
    struct slot *slots = calloc(r->n_cases ? r->n_cases : 1, sizeof *slots);
    if (!slots) {
        abort();
    }
    for (size_t i = 0; i < r->n_cases; i++) {
        slots[i] = (struct slot){ &r->cases[i], i, 0 };
    }
    qsort(slots, r->n_cases, sizeof *slots, by_suite);
    for (size_t i = 0; i < r->n_cases; i++) {
        bool same = i > 0 && same_suite(slots[i].c, slots[i - 1].c);
        slots[i].group = same ? slots[i - 1].group : slots[i].index;
    }
    qsort(slots, r->n_cases, sizeof *slots, by_group);
    return slots;
}

static struct total total_of(const struct slot *slots, size_t n)
{
    struct total t = { .tests = n };
    for (size_t i = 0; i < n; i++) {
        enum report_status s = slots[i].c->status;
        int64_t time_us = slots[i].c->time_us > 0 ? slots[i].c->time_us : 0;
        t.failures += s == REPORT_FAILED;
        t.errors += s == REPORT_ERROR;
        t.skipped += s == REPORT_SKIPPED || s == REPORT_PENDING || s == REPORT_OTHER;
        t.time_us = t.time_us < REPORT_TIME_US_MAX ? t.time_us + time_us : t.time_us;
    }
    return t;
}

static void totals(struct writer *w, struct total t, int64_t start_ms)
{
    number(w, "tests", t.tests);
    number(w, "failures", t.failures);
    number(w, "errors", t.errors);
    number(w, "skipped", t.skipped);
    seconds(w, t.time_us);
    time_t at = (time_t)(start_ms / 1000);
    struct tm tm;
    char when[40];
    if (start_ms > 0 && gmtime_r(&at, &tm) &&
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm) > 0) {
        attribute(w, "timestamp", when);
    }
}

int report_write_junit(const struct report *r, const char *name, struct buf *out, struct err *err)
{
    struct writer w = { .out = out, .err = err };
    cleanup_free struct slot *slots = grouped(r);
    puts_(&w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites");
    attribute(&w, "name", name);
    totals(&w, total_of(slots, r->n_cases), r->start_ms);
    puts_(&w, ">\n");
    for (size_t from = 0, to; from < r->n_cases && w.rc == 0; from = to) {
        for (to = from + 1; to < r->n_cases && slots[to].group == slots[from].group; to++) {
        }
        const struct report_case *first = slots[from].c;
        puts_(&w, "  <testsuite");
        attribute(&w, "name", first->suite[0] ? first->suite : first->classname);
        totals(&w, total_of(slots + from, to - from), r->start_ms);
        puts_(&w, ">\n");
        for (size_t i = from; i < to && w.rc == 0; i++) {
            testcase(&w, slots[i].c);
        }
        puts_(&w, "  </testsuite>\n");
    }
    puts_(&w, "</testsuites>\n");
    return w.rc;
}
