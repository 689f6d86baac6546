/* TAP 12, 13 and 14, and `prove -v`, which is TAP with prove's own lines around it.
 *
 * One pass over the lines. A test line is kept open until the next one, because its YAML block and
 * its comments follow it. Subtests are indented by four spaces a level and come before the line of
 * their parent: when that line is seen, its name is put before the suites of the cases found since.
 * The parent keeps a row of its own, as `prove` and `go test` count it; only node's suites, which
 * say that they are one, do not when they have cases.
 *
 * A plan that is missing or wrong, and a bail-out, make the report incomplete: the program died,
 * however many lines said ok. */
#include "common/report/report_part.h"

#include <assert.h>
#include <string.h>

#define INDENT 4

struct level {
    int plan;        /* -1: none seen */
    int seen;        /* test lines */
    size_t children; /* the first case that belongs to the next test line of this level */
};

struct tap {
    struct report *r;
    struct err *err;
    struct level levels[REPORT_DEPTH_MAX];
    int deepest;     /* highest level in use since the last test line of level 0 */
    bool any;        /* a test line or a plan was seen */
    struct buf file; /* of prove -v */
    /* the open test line */
    bool open, cut, is_suite;
    int depth;
    struct report_new c;
    struct buf name, message, type, text, place;
    bool in_yaml;
    size_t yaml_indent;
    int block_indent; /* of a "message: |" being read; -1: none */
};

static void add(struct buf *b, struct report_slice s, bool *cut)
{
    report_append(b, s.s, s.n, cut);
}

static void level_reset(struct level *l, size_t n_cases)
{
    *l = (struct level){ .plan = -1, .children = n_cases };
}

/* A level ends: what its plan said against what came. */
static void check_plan(struct tap *t, int depth, struct report_slice who)
{
    struct level *l = &t->levels[depth];
    int n = who.n < 200 ? (int)who.n : 200;
    const char *name = who.n ? who.s : "";
    const char *sep = who.n ? ": " : "";
    if (l->plan < 0 && l->seen > 0) {
        report_note(t->r, "tap: %.*s%sno plan after %d tests", n, name, sep, l->seen);
        t->r->incomplete = true;
    } else if (l->plan >= 0 && l->plan != l->seen) {
        report_note(t->r, "tap: %.*s%splanned %d tests, ran %d", n, name, sep, l->plan, l->seen);
        t->r->incomplete = true;
    }
}

static int flush(struct tap *t)
{
    if (!t->open) {
        return 0;
    }
    t->open = t->in_yaml = false;
    t->block_indent = -1;
    struct level *l = &t->levels[t->depth];
    struct report_slice name = slice_buf(&t->name);
    for (int d = t->deepest; d > t->depth; d--) {
        check_plan(t, d, name);
    }
    size_t first = l->children, children = t->r->n_cases - first;
    int rc = report_prefix_suites(t->r, first, name, t->err);
    if (rc == 0 && t->depth == 0) {
        rc = report_prefix_suites(t->r, first, slice_buf(&t->file), t->err);
    }
    if (rc < 0) {
        return rc;
    }
    if (!(t->is_suite && children > 0)) {
        struct report_new *c = &t->c;
        struct report_slice text = slice_buf(&t->text);
        c->name = name.n ? name : SLICE("(unnamed)");
        c->suite = t->depth == 0 ? slice_buf(&t->file) : SLICE("");
        if (t->message.len) {
            c->message = slice_buf(&t->message);
        } else if (c->status == REPORT_FAILED || c->status == REPORT_ERROR) {
            c->message = report_first_line(text);
        }
        c->type = slice_buf(&t->type);
        c->text = text;
        c->cut = t->cut;
        if (t->place.len && slice_file_line(slice_buf(&t->place), &c->file, &c->line)) {
            /* found */
        } else if (t->place.len) {
            c->file = slice_buf(&t->place);
        }
        rc = report_add(t->r, c, t->err);
        if (rc < 0) {
            return rc;
        }
    }
    for (int d = t->depth + 1; d < REPORT_DEPTH_MAX; d++) {
        level_reset(&t->levels[d], t->r->n_cases);
    }
    l->children = t->r->n_cases;
    t->deepest = t->depth;
    return 0;
}

/* The end of a document: prove runs many, and output may be several joined. */
static int finish(struct tap *t)
{
    int rc = flush(t);
    if (rc < 0) {
        return rc;
    }
    for (int d = t->deepest; d >= 0; d--) {
        check_plan(t, d, slice_buf(&t->file));
    }
    if (t->deepest > 0 && t->r->n_cases > t->levels[0].children) {
        report_note(t->r, "tap: subtests without the line of their test");
        t->r->incomplete = true;
    }
    for (int d = 0; d < REPORT_DEPTH_MAX; d++) {
        level_reset(&t->levels[d], t->r->n_cases);
    }
    t->deepest = 0;
    return 0;
}

/* Position of the directive's "#": one that is not escaped and stands free. s.n when there is none.
 */
static size_t find_hash(struct report_slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.s[i] == '\\') {
            i++;
        } else if (s.s[i] == '#' && (i == 0 || s.s[i - 1] == ' ' || s.s[i - 1] == '\t')) {
            struct report_slice word = slice_trim(slice_of(s.s + i + 1, s.n - i - 1));
            if (slice_starts(word, "skip") || slice_starts(word, "todo") ||
                slice_starts(word, "time=")) {
                return i;
            }
        }
    }
    return s.n;
}

static void unescape(struct buf *to, struct report_slice s, bool *cut)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.s[i] == '\\' && i + 1 < s.n && (s.s[i + 1] == '#' || s.s[i + 1] == '\\')) {
            i++;
        }
        report_append(to, s.s + i, 1, cut);
    }
}

/* Criterion ends a name with "  (0.01s)". */
static void take_time(struct tap *t)
{
    size_t n = t->name.len, at = n;
    while (at > 0 && t->name.data[at - 1] != '(') {
        at--;
    }
    if (at < 4 || n < 3 || memcmp(t->name.data + n - 2, "s)", 2) != 0 ||
        memcmp(t->name.data + at - 3, "  (", 3) != 0) {
        return;
    }
    int64_t time_us = report_parse_time(slice_of(t->name.data + at, n - 2 - at), 1000000);
    if (time_us >= 0) {
        t->c.time_us = time_us;
        t->name.len = at - 3;
    }
}

static void directive(struct tap *t, struct report_slice s, bool ok)
{
    s = slice_trim(s);
    bool skip = slice_starts(s, "skip"), todo = slice_starts(s, "todo");
    if (!skip && !todo) {
        return;
    }
    while (s.n && s.s[0] != ' ' && s.s[0] != '\t') { /* the word: SKIP, skipped:, TODO */
        s.s++;
        s.n--;
    }
    add(&t->message, slice_trim(s), &t->cut);
    if (skip) { /* wins over "not ok": bats and cmocka print that */
        t->c.status = REPORT_SKIPPED;
    } else {
        t->c.status = ok ? REPORT_PASSED : REPORT_PENDING;
        add(&t->type, SLICE("todo"), &t->cut);
    }
}

static int test_line(struct tap *t, int depth, bool ok, struct report_slice rest)
{
    int rc = flush(t);
    if (rc < 0) {
        return rc;
    }
    struct buf *all[] = { &t->name, &t->message, &t->type, &t->text, &t->place };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buf_reset(all[i]);
    }
    t->open = t->any = true;
    t->cut = t->is_suite = false;
    t->depth = depth;
    t->deepest = depth > t->deepest ? depth : t->deepest;
    t->c = (struct report_new){ .time_us = -1,
                                .status = ok ? REPORT_PASSED : REPORT_FAILED,
                                .raw_status = ok ? SLICE("ok") : SLICE("not ok") };
    struct level *l = &t->levels[depth];
    if (l->seen < INT32_MAX) {
        l->seen++;
    }
    rest = slice_trim(rest);
    struct report_slice number = { rest.s, 0 };
    while (number.n < rest.n && rest.s[number.n] >= '0' && rest.s[number.n] <= '9') {
        number.n++;
    }
    rest = slice_trim(slice_of(rest.s + number.n, rest.n - number.n));
    if (rest.n && rest.s[0] == '-' && (rest.n == 1 || rest.s[1] == ' ')) {
        rest = slice_trim(slice_of(rest.s + 1, rest.n - 1));
    }
    size_t hash = find_hash(rest);
    unescape(&t->name, slice_trim(slice_of(rest.s, hash)), &t->cut);
    take_time(t);
    if (t->name.len == 0 && number.n) {
        add(&t->name, SLICE("test "), &t->cut);
        add(&t->name, number, &t->cut);
    }
    if (hash < rest.n) {
        directive(t, slice_of(rest.s + hash + 1, rest.n - hash - 1), ok);
    }
    return 0;
}

static int plan_line(struct tap *t, int depth, struct report_slice rest)
{
    size_t digits = 0;
    while (digits < rest.n && rest.s[digits] >= '0' && rest.s[digits] <= '9') {
        digits++;
    }
    int plan = report_parse_count(slice_of(rest.s, digits));
    if (plan < 0) {
        return 0; /* not a plan after all */
    }
    if (depth == 0 && t->levels[0].plan >= 0) { /* the next document */
        int rc = finish(t);
        if (rc < 0) {
            return rc;
        }
    }
    if (t->open && depth > t->depth) { /* the subtests of the next test: the open one has none */
        int rc = flush(t);
        if (rc < 0) {
            return rc;
        }
    }
    t->any = true;
    t->deepest = depth > t->deepest ? depth : t->deepest;
    t->levels[depth].plan = plan;
    struct report_slice why = slice_trim(slice_of(rest.s + digits, rest.n - digits));
    if (plan == 0 && why.n && why.s[0] == '#' && depth == 0) {
        int rc = test_line(t, 0, true, why);
        t->levels[0].seen = 0;
        buf_reset(&t->name);
        add(&t->name, SLICE("(all)"), &t->cut);
        return rc;
    }
    return 0;
}

/* One "key: value" of the YAML block; the rest of it is only kept as text. */
static void yaml_line(struct tap *t, size_t indent, struct report_slice s)
{
    if (t->block_indent >= 0) {
        if (s.n == 0 || (int)indent > t->block_indent) {
            if (t->message.len == 0) {
                add(&t->message, s, &t->cut);
            }
            return;
        }
        t->block_indent = -1;
    }
    const char *colon = s.n ? memchr(s.s, ':', s.n) : NULL;
    if (!colon || indent != t->yaml_indent) {
        return;
    }
    struct report_slice key = slice_trim(slice_of(s.s, (size_t)(colon - s.s)));
    struct report_slice value = slice_trim(slice_of(colon + 1, s.n - (size_t)(colon + 1 - s.s)));
    if (value.n >= 2 && (value.s[0] == '\'' || value.s[0] == '"') &&
        value.s[value.n - 1] == value.s[0]) {
        value = slice_of(value.s + 1, value.n - 2);
    }
    bool block = value.n && (value.s[0] == '|' || value.s[0] == '>');
    if (slice_is(key, "duration_ms")) {
        t->c.time_us = report_parse_time(value, 1000);
    } else if ((slice_is(key, "message") || slice_is(key, "error")) && t->message.len == 0) {
        if (block) {
            t->block_indent = (int)indent;
        } else {
            add(&t->message, value, &t->cut);
        }
    } else if (slice_is(key, "failureType") && t->type.len == 0) {
        add(&t->type, value, &t->cut);
    } else if ((slice_is(key, "location") || slice_is(key, "file") || slice_is(key, "at")) &&
               t->place.len == 0) {
        add(&t->place, value, &t->cut);
    } else if (slice_is(key, "line") && t->c.line == 0) {
        t->c.line = report_parse_count(value);
    } else if (slice_is(key, "type")) {
        t->is_suite = slice_is(value, "suite");
    }
}

static void in_yaml(struct tap *t, size_t indent, struct report_slice line)
{
    struct report_slice s = slice_of(line.s + indent, line.n - indent);
    if (slice_is(s, "...") && indent <= t->yaml_indent) {
        t->in_yaml = false;
        return;
    }
    yaml_line(t, indent, s);
    size_t from = indent < t->yaml_indent ? indent : t->yaml_indent;
    report_append(&t->text, line.s + from, line.n - from, &t->cut);
    report_append(&t->text, "\n", 1, &t->cut);
}

static void comment(struct tap *t, struct report_slice s)
{
    s = slice_of(s.s + 1, s.n - 1);
    bool told = t->open && (t->c.status == REPORT_FAILED || t->c.status == REPORT_PENDING);
    if (told && !slice_starts(slice_trim(s), "Subtest")) {
        if (s.n && s.s[0] == ' ') {
            s = slice_of(s.s + 1, s.n - 1);
        }
        add(&t->text, s, &t->cut);
        report_append(&t->text, "\n", 1, &t->cut);
    }
}

static int bail_out(struct tap *t, struct report_slice why)
{
    int rc = flush(t);
    if (rc < 0) {
        return rc;
    }
    why = slice_trim(why);
    report_note(t->r, "tap: bail out: %.*s", why.n < 300 ? (int)why.n : 300, why.n ? why.s : "");
    t->r->incomplete = true;
    struct report_new c = { .suite = slice_buf(&t->file),
                            .name = SLICE("(bail out)"),
                            .message = why,
                            .time_us = -1,
                            .status = REPORT_ERROR };
    return report_add(t->r, &c, t->err);
}

/* "t/name.t .. " and "t/name.t .. skipped: why" open a file of prove -v; its own "ok" closes it. */
static int prove_line(struct tap *t, struct report_slice line, bool *ret_taken)
{
    const char *dots = line.n ? memmem(line.s, line.n, " ..", 3) : NULL;
    struct report_slice file = dots ? slice_of(line.s, (size_t)(dots - line.s)) : SLICE("");
    *ret_taken = false;
    if (file.n == 0 || memchr(file.s, ' ', file.n)) {
        return 0;
    }
    struct report_slice rest = slice_of(dots + 1, line.n - file.n - 1);
    while (rest.n && rest.s[0] == '.') {
        rest.s++;
        rest.n--;
    }
    rest = slice_trim(rest);
    bool skipped = slice_starts(rest, "skipped: ");
    if (rest.n && !skipped) {
        return 0;
    }
    *ret_taken = true;
    int rc = finish(t);
    if (rc < 0) {
        return rc;
    }
    bool cut = false;
    buf_reset(&t->file);
    add(&t->file, file, &cut);
    report_set_tool(t->r, SLICE("prove"));
    if (skipped) {
        struct report_new c = { .suite = file,
                                .name = SLICE("(all)"),
                                .message = slice_of(rest.s + 9, rest.n - 9),
                                .time_us = -1,
                                .status = REPORT_SKIPPED };
        rc = report_add(t->r, &c, t->err);
        t->levels[0].children = t->r->n_cases;
        t->any = true;
    }
    return rc;
}

static bool plan_met(const struct tap *t)
{
    return t->levels[0].plan >= 0 && t->levels[0].seen >= t->levels[0].plan;
}

/* Returns 1 when nothing more is to be read. */
static int line_of(struct tap *t, struct report_slice line)
{
    size_t indent = 0;
    while (indent < line.n && line.s[indent] == ' ') {
        indent++;
    }
    if (t->in_yaml) {
        in_yaml(t, indent, line);
        return 0;
    }
    struct report_slice s = slice_of(line.s + indent, line.n - indent);
    if (t->open && slice_is(s, "---") && indent > (size_t)t->depth * INDENT) {
        t->in_yaml = true;
        t->yaml_indent = indent;
        t->block_indent = -1;
        return 0;
    }
    int depth = (int)(indent / INDENT < REPORT_DEPTH_MAX ? indent / INDENT : REPORT_DEPTH_MAX);
    if (indent % INDENT || depth == REPORT_DEPTH_MAX) {
        return 0; /* a program's own output */
    }
    bool ok = slice_begins(s, "ok") && (s.n == 2 || s.s[2] == ' ');
    bool not_ok = slice_begins(s, "not ok") && (s.n == 6 || s.s[6] == ' ');
    if (ok && s.n == 2 && t->file.len && plan_met(t)) {
        return 0; /* prove's verdict on the file */
    }
    if (ok || not_ok) {
        size_t n = ok ? 2 : 6;
        return test_line(t, depth, ok, slice_of(s.s + n, s.n - n));
    }
    if (slice_begins(s, "1..")) {
        return plan_line(t, depth, slice_of(s.s + 3, s.n - 3));
    }
    if (slice_begins(s, "Bail out!")) {
        int rc = bail_out(t, slice_of(s.s + 9, s.n - 9));
        return rc < 0 ? rc : 1;
    }
    if (slice_begins(s, "TAP version ") && depth == 0 && t->any) {
        return finish(t);
    }
    if (s.n && s.s[0] == '#') {
        comment(t, s);
        return 0;
    }
    bool taken;
    return depth == 0 ? prove_line(t, s, &taken) : 0;
}

int report_read_tap(struct report *r, const char *data, size_t len, struct err *err)
{
    struct tap t = { .r = r, .err = err, .block_indent = -1 };
    for (int d = 0; d < REPORT_DEPTH_MAX; d++) {
        level_reset(&t.levels[d], 0);
    }
    buf_init(&t.file, REPORT_NAME_BYTES_MAX + 1);
    buf_init(&t.name, REPORT_NAME_BYTES_MAX + 1);
    buf_init(&t.message, REPORT_MESSAGE_BYTES_MAX + 1);
    buf_init(&t.type, REPORT_WORD_BYTES_MAX + 1);
    buf_init(&t.place, REPORT_NAME_BYTES_MAX + 1);
    buf_init(&t.text, REPORT_TEXT_BYTES_MAX + 1);
    int rc = 0;
    for (struct report_slice rest = { data, len }; rest.n && rc == 0;) {
        rc = line_of(&t, slice_line(&rest));
    }
    if (rc == 0) {
        rc = finish(&t);
    }
    if (rc >= 0 && !t.any && r->n_cases == 0) {
        rc = err_set(err, ERR_INVALID, "tap: neither a plan nor a test line");
    }
    buf_done(&t.file);
    buf_done(&t.name);
    buf_done(&t.message);
    buf_done(&t.type);
    buf_done(&t.place);
    buf_done(&t.text);
    return rc < 0 ? rc : 0;
}
