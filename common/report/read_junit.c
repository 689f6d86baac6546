/* JUnit XML. There is no standard, so this reads what producers write: either root, suites in
 * suites, testcases at any level, anything missing but the element's name. Unknown elements are
 * passed over. Check's own XML (suite, title, test) is read here too, since it has the same root.
 *
 * expat parses; it is given one contiguous document, because pieces would make long tokens
 * quadratic. Before that, bytes and character references that XML forbids are replaced: real
 * producers write them. A DOCTYPE is refused, and with it every entity that is not built in. */
#include "common/report/report_part.h"
#include "common/report/xml_filter.h"

#include <assert.h>
#include <expat.h>
#include <stdlib.h>
#include <string.h>

enum element {
    E_NONE,
    E_ROOT, /* testsuites */
    E_SUITE,
    E_CASE,
    E_FAILURE,
    E_ERROR,
    E_SKIPPED,
    E_STDOUT,
    E_STDERR,
    E_RERUN, /* an earlier attempt of the same case (Surefire) */
    E_PROPERTY,
    E_CHECK_SUITE,
    E_CHECK_TEST,
    E_CHECK_TEXT, /* one of the children of E_CHECK_TEST, or the title */
    E_OTHER,
};

static const struct {
    const char *name;
    enum element element;
} elements[] = {
    { "testsuites", E_ROOT },      { "testsuite", E_SUITE },     { "testcase", E_CASE },
    { "failure", E_FAILURE },      { "error", E_ERROR },         { "skipped", E_SKIPPED },
    { "system-out", E_STDOUT },    { "system-err", E_STDERR },   { "rerunFailure", E_RERUN },
    { "rerunError", E_RERUN },     { "flakyFailure", E_RERUN },  { "flakyError", E_RERUN },
    { "property", E_PROPERTY },    { "suite", E_CHECK_SUITE },   { "test", E_CHECK_TEST },
    { "title", E_CHECK_TEXT },     { "fn", E_CHECK_TEXT },       { "id", E_CHECK_TEXT },
    { "iteration", E_CHECK_TEXT }, { "duration", E_CHECK_TEXT }, { "description", E_CHECK_TEXT },
    { "message", E_CHECK_TEXT },
};

struct level {
    enum element element;
    size_t suite_len; /* of the joined suites' names, to go back to */
};

struct junit {
    XML_Parser parser;
    struct report *r;
    struct err *err;
    int rc; /* the error that stopped the parser */
    int depth;
    struct level levels[REPORT_DEPTH_MAX];
    struct buf suite;                 /* names of the open suites, joined */
    int declared_tests, declared_bad; /* of the root, or added up over its suites; -1: not said */
    size_t loose;                     /* cases right below testsuites, which no suite has counted */
    /* the open case */
    bool open, from_suite;
    bool bad, skipped, todo, notrun, own_status, cut;
    enum report_status status, said; /* said: by the attribute status */
    unsigned attempts;
    int line;
    int64_t time_us;
    struct buf name, classname, file, message, type, raw_status, shard, text, out, errors, scratch;
    struct buf *into;   /* where character data goes; NULL: nowhere */
    size_t text_before; /* length of text when the open failure began */
};

static void stop(struct junit *j, int rc)
{
    assert(rc < 0);
    j->rc = rc;
    (void)XML_StopParser(j->parser, XML_FALSE);
}

static const char *attr(const char *const *atts, const char *name)
{
    for (size_t i = 0; atts[i]; i += 2) {
        if (strcmp(atts[i], name) == 0) {
            return atts[i + 1];
        }
    }
    return NULL;
}

static void set(struct junit *j, struct buf *b, const char *s)
{
    buf_reset(b);
    if (s) {
        report_append(b, s, strlen(s), &j->cut);
    }
}

static struct report_slice slice_str(const char *s)
{
    return slice_of(s ? s : "", s ? strlen(s) : 0);
}

static void open_case(struct junit *j)
{
    struct buf *all[] = { &j->name, &j->classname,  &j->file,   &j->message,
                          &j->type, &j->raw_status, &j->shard,  &j->text,
                          &j->out,  &j->errors,     &j->scratch };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buf_reset(all[i]);
    }
    j->open = true;
    j->from_suite = j->bad = j->skipped = j->todo = j->notrun = j->own_status = j->cut = false;
    j->status = j->said = REPORT_PASSED;
    j->attempts = 1;
    j->line = 0;
    j->time_us = -1;
    j->into = NULL;
}

/* What the attribute status says, for producers that use it instead of an element. */
static enum report_status status_word(struct report_slice s)
{
    static const struct {
        const char *word;
        enum report_status status;
    } words[] = {
        { "fail", REPORT_FAILED },     { "failed", REPORT_FAILED },
        { "failure", REPORT_FAILED },  { "error", REPORT_ERROR },
        { "errored", REPORT_ERROR },   { "timeout", REPORT_FAILED },
        { "notrun", REPORT_SKIPPED },  { "disabled", REPORT_SKIPPED },
        { "skipped", REPORT_SKIPPED }, { "skip", REPORT_SKIPPED },
        { "ignored", REPORT_SKIPPED }, { "suppressed", REPORT_SKIPPED },
        { "pending", REPORT_PENDING }, { "todo", REPORT_PENDING },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (slice_is(s, words[i].word)) {
            return words[i].status;
        }
    }
    return REPORT_PASSED;
}

static void close_case(struct junit *j)
{
    assert(j->open);
    j->open = false;
    j->into = NULL;
    struct report_slice text = slice_buf(&j->text), message = slice_trim(slice_buf(&j->message));
    if (j->todo) {
        j->status = REPORT_PENDING; /* node writes todo and failure; todo means "may fail" */
    } else if (!j->bad && j->status == REPORT_PASSED) { /* else it has a brood.status */
        j->status = j->skipped ? REPORT_SKIPPED : j->said;
        /* CTest calls a program that is missing "notrun" and counts it as failed all the same */
        if (j->skipped && j->notrun && slice_starts(message, "Unable to find")) {
            j->status = REPORT_ERROR;
        }
    }
    if (message.n == 0) {
        message = report_first_line(text);
    }
    struct report_slice file = slice_buf(&j->file);
    if (file.n == 0 && j->bad) {
        (void)report_find_place(text, &file, &j->line);
    }
    struct report_new c = {
        .suite = slice_buf(&j->suite),
        .classname = slice_buf(&j->classname),
        .name = j->name.len    ? slice_buf(&j->name)
                : j->suite.len ? slice_buf(&j->suite)
                               : SLICE("(unnamed)"),
        .file = file,
        .message = message,
        .type = slice_buf(&j->type),
        .raw_status = slice_buf(&j->raw_status),
        .shard = slice_buf(&j->shard),
        .text = text,
        .stdout_text = slice_buf(&j->out),
        .stderr_text = slice_buf(&j->errors),
        .time_us = j->time_us,
        .line = j->line,
        .attempts = j->attempts,
        .status = j->status,
        .cut = j->cut,
    };
    j->loose += j->depth == 1 && j->levels[0].element == E_ROOT;
    int rc = report_add(j->r, &c, j->err);
    if (rc < 0) {
        stop(j, rc);
    }
}

static void declare(struct junit *j, const char *const *atts)
{
    int tests = report_parse_count(slice_str(attr(atts, "tests")));
    int failures = report_parse_count(slice_str(attr(atts, "failures")));
    int errors = report_parse_count(slice_str(attr(atts, "errors")));
    int64_t bad = (int64_t)(failures > 0 ? failures : 0) + (errors > 0 ? errors : 0);
    int64_t all = (int64_t)(j->declared_tests > 0 ? j->declared_tests : 0) + tests;
    j->declared_bad = bad + j->declared_bad < INT32_MAX ? (int)bad + j->declared_bad : INT32_MAX;
    if (tests >= 0) {
        j->declared_tests = all < INT32_MAX ? (int)all : INT32_MAX;
    }
}

static void start_suite(struct junit *j, const char *const *atts)
{
    const char *name = attr(atts, "name");
    if (name && name[0]) {
        bool cut = false;
        size_t n = strlen(name);
        report_append(&j->suite, " > ", j->suite.len ? 3 : 0, &cut);
        report_append(&j->suite, name, n < REPORT_NAME_BYTES_MAX ? n : REPORT_NAME_BYTES_MAX, &cut);
        if (strcmp(name, "pytest") == 0) {
            report_set_tool(j->r, SLICE("pytest"));
        }
    }
    const char *when = attr(atts, "timestamp");
    int64_t start_ms = report_parse_date(slice_str(when ? when : attr(atts, "start")));
    if (start_ms > 0 && (!j->r->start_ms || start_ms < j->r->start_ms)) {
        j->r->start_ms = start_ms;
    }
    if (j->depth == 0 || (j->depth == 1 && j->levels[0].element == E_ROOT)) {
        declare(j, atts);
    }
}

static void start_case(struct junit *j, const char *const *atts)
{
    open_case(j);
    set(j, &j->name, attr(atts, "name"));
    set(j, &j->classname, attr(atts, "classname"));
    set(j, &j->file, attr(atts, "file"));
    set(j, &j->raw_status, attr(atts, "status"));
    const char *result = attr(atts, "result"); /* gtest: status run, result skipped */
    if (result && strcmp(result, "completed") != 0) {
        set(j, &j->raw_status, result);
    }
    j->notrun = slice_is(slice_buf(&j->raw_status), "notrun");
    j->said = status_word(slice_buf(&j->raw_status));
    j->line = report_parse_count(slice_str(attr(atts, "line")));
    j->time_us = report_parse_time(slice_str(attr(atts, "time")), 1000000);
}

static void start_outcome(struct junit *j, enum element e, const char *const *atts)
{
    if (!j->open) { /* a suite that could not be set up */
        open_case(j);
        j->from_suite = true;
    }
    const char *message = attr(atts, "message"), *type = attr(atts, "type");
    bool first = !j->bad && !j->skipped;
    if (e == E_SKIPPED) {
        j->skipped = true;
        j->todo |= !j->own_status && type && strcmp(type, "todo") == 0;
    } else {
        j->status =
            e == E_ERROR || (j->bad && j->status == REPORT_ERROR) ? REPORT_ERROR : REPORT_FAILED;
        j->bad = true;
    }
    if (first || j->message.len == 0) {
        set(j, &j->message, message);
    }
    if (first || j->type.len == 0) {
        set(j, &j->type, type);
    }
    set(j, &j->scratch, first ? NULL : message);
    if (j->text.len) {
        report_append(&j->text, "\n", 1, &j->cut);
    }
    j->text_before = j->text.len;
    j->into = &j->text;
}

/* A later failure of the case that has only a message: keep it in the text. */
static void end_outcome(struct junit *j)
{
    size_t n = j->text.len - j->text_before;
    if (n == 0 || slice_trim(slice_of(j->text.data + j->text_before, n)).n == 0) {
        report_append(&j->text, j->scratch.data, j->scratch.len, &j->cut);
    }
    if (j->from_suite) {
        close_case(j);
    }
}

static void property(struct junit *j, const char *const *atts)
{
    const char *name = attr(atts, "name"), *value = attr(atts, "value");
    if (!name || !value || !j->open) {
        return;
    }
    if (strcmp(name, "brood.shard") == 0) {
        set(j, &j->shard, value);
    } else if (strcmp(name, "brood.raw_status") == 0) {
        set(j, &j->raw_status, value);
    } else if (strcmp(name, "brood.attempts") == 0) {
        int n = report_parse_count(slice_str(value));
        j->attempts = n > 0 ? (unsigned)n : 1;
    } else if (strcmp(name, "brood.status") == 0 && !j->bad) {
        /* what JUnit's elements cannot say, and never in place of a failure */
        enum report_status s = report_status_of(value);
        bool known = s == REPORT_PENDING || s == REPORT_OTHER || s == REPORT_SKIPPED;
        j->status = known ? s : j->status;
        j->todo &= !known;
        j->own_status |= known;
    }
}

static void start_check(struct junit *j, enum element e, const char *name, const char *const *atts)
{
    if (e == E_CHECK_TEST) {
        open_case(j);
        report_set_tool(j->r, SLICE("check"));
        set(j, &j->raw_status, attr(atts, "result"));
        enum report_status s = status_word(slice_buf(&j->raw_status));
        j->bad = s != REPORT_PASSED;
        j->status = s;
    } else {
        bool title = strcmp(name, "title") == 0;
        buf_reset(&j->scratch);
        j->into = title || j->open ? &j->scratch : NULL;
    }
}

static void end_check(struct junit *j, const char *name)
{
    struct report_slice s = slice_trim(slice_buf(&j->scratch));
    bool cut = false;
    if (strcmp(name, "title") == 0 && !j->open) {
        size_t n = s.n < REPORT_NAME_BYTES_MAX ? s.n : REPORT_NAME_BYTES_MAX;
        report_append(&j->suite, s.s, n, &cut);
    } else if (!j->open) {
        return;
    } else if (strcmp(name, "fn") == 0) {
        struct report_slice file;
        if (slice_file_line(s, &file, &j->line)) {
            report_append(&j->file, file.s, file.n, &j->cut);
        }
    } else if (strcmp(name, "id") == 0) {
        report_append(&j->name, s.s, s.n, &j->cut);
    } else if (strcmp(name, "iteration") == 0 && !slice_is(s, "0")) {
        report_append(&j->name, "[", 1, &j->cut);
        report_append(&j->name, s.s, s.n, &j->cut);
        report_append(&j->name, "]", 1, &j->cut);
    } else if (strcmp(name, "duration") == 0) {
        j->time_us = report_parse_time(s, 1000000);
    } else if (strcmp(name, "description") == 0) {
        report_append(&j->classname, s.s, s.n, &j->cut);
    } else if (strcmp(name, "message") == 0 && j->bad) {
        report_append(&j->message, s.s, s.n, &j->cut);
    }
}

static enum element element_of(const char *name)
{
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        if (strcmp(name, elements[i].name) == 0) {
            return elements[i].element;
        }
    }
    return E_OTHER;
}

static const char *local(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon ? colon + 1 : name;
}

static void on_start(void *data, const char *full_name, const char **attributes)
{
    struct junit *j = data;
    const char *const *atts = (const char *const *)attributes;
    const char *name = local(full_name);
    enum element e = element_of(name);
    enum element parent = j->depth ? j->levels[j->depth - 1].element : E_NONE;
    if (j->rc < 0) {
        return;
    }
    if (j->depth == 0 && e != E_ROOT && e != E_SUITE) {
        stop(j, err_set(j->err, ERR_INVALID,
                        "junit: the root element is neither testsuites nor testsuite"));
        return;
    }
    if (j->depth == REPORT_DEPTH_MAX) {
        stop(j, err_set(j->err, ERR_INVALID, "junit: elements nested deeper than %d",
                        REPORT_DEPTH_MAX));
        return;
    }
    if ((e == E_CASE || e == E_CHECK_TEST || e == E_SUITE || e == E_ROOT) && j->open) {
        stop(j, err_set(j->err, ERR_INVALID, "junit: a suite or test inside a test"));
        return;
    }
    /* what only means something in its place is passed over elsewhere */
    bool outcome = e == E_FAILURE || e == E_ERROR || e == E_SKIPPED;
    if ((outcome && parent != E_CASE && parent != E_SUITE) ||
        ((e == E_STDOUT || e == E_STDERR || e == E_RERUN) && parent != E_CASE) ||
        (e == E_CHECK_TEST && parent != E_CHECK_SUITE) ||
        (e == E_CHECK_TEXT && parent != E_CHECK_TEST && parent != E_CHECK_SUITE)) {
        e = E_OTHER;
    }
    j->levels[j->depth] = (struct level){ e, j->suite.len };
    j->into = NULL;
    if (e == E_SUITE) {
        start_suite(j, atts);
    } else if (e == E_ROOT && j->depth == 0) {
        if (attr(atts, "tests")) {
            declare(j, atts);
            j->levels[0].element = E_OTHER; /* its suites are not added up as well */
        }
    } else if (e == E_CASE) {
        start_case(j, atts);
    } else if (outcome) {
        start_outcome(j, e, atts);
    } else if (e == E_STDOUT || e == E_STDERR) {
        j->into = e == E_STDOUT ? &j->out : &j->errors;
    } else if (e == E_RERUN) {
        j->attempts++;
    } else if (e == E_PROPERTY) {
        property(j, atts);
    } else if (e == E_CHECK_TEST || e == E_CHECK_TEXT) {
        start_check(j, e, name, atts);
    }
    j->depth++;
}

static void on_end(void *data, const char *full_name)
{
    struct junit *j = data;
    if (j->rc < 0) {
        return;
    }
    assert(j->depth > 0);
    struct level level = j->levels[--j->depth];
    j->into = NULL;
    switch (level.element) {
    case E_CASE:
    case E_CHECK_TEST:
        close_case(j);
        break;
    case E_FAILURE:
    case E_ERROR:
    case E_SKIPPED:
        end_outcome(j);
        break;
    case E_CHECK_TEXT:
        end_check(j, local(full_name));
        return; /* a title stays until its suite ends */
    default:
        break;
    }
    j->suite.len = level.suite_len;
}

static void on_text(void *data, const char *s, int n)
{
    struct junit *j = data;
    if (j->into && j->rc == 0) {
        report_append(j->into, s, (size_t)n, &j->cut);
    }
}

static void on_doctype(void *data, const char *name, const char *system_id, const char *public_id,
                       int internal)
{
    struct junit *j = data;
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)internal;
    stop(j, err_set(j->err, ERR_INVALID, "junit: a DOCTYPE is not allowed"));
}

static void check_declared(struct junit *j)
{
    struct report *r = j->r;
    if (r->n_cases == 0) {
        report_note(r, "junit: no test in the report");
    }
    size_t counted = r->n_cases - j->loose;
    if (j->declared_tests >= 0 && (size_t)j->declared_tests != counted) {
        report_note(r, "junit: the report says %d tests and holds %zu", j->declared_tests, counted);
    }
    if (j->declared_bad > 0 &&
        r->count[REPORT_FAILED] + r->count[REPORT_ERROR] + r->count[REPORT_PENDING] == 0) {
        report_note(r, "junit: the report says %d failures or errors and holds none",
                    j->declared_bad);
        r->incomplete = true;
    }
}

static int parse(struct junit *j, const char *data, size_t len, struct err *err)
{
    /* an ASCII document with other bytes in it is read as UTF-8 */
    enum xml_encoding encoding = xml_encoding_of(data, len);
    j->parser = XML_ParserCreate(encoding == XML_UTF8 ? "UTF-8" : NULL);
    if (!j->parser) {
        abort();
    }
    XML_SetUserData(j->parser, j);
    XML_SetElementHandler(j->parser, on_start, on_end);
    XML_SetCharacterDataHandler(j->parser, on_text);
    XML_SetStartDoctypeDeclHandler(j->parser, on_doctype);
    cleanup_buf struct buf filtered = { 0 };
    buf_init(&filtered, 3 * len + 1);
    const char *from;
    size_t n;
    xml_filter(encoding, data, len, &filtered, &from, &n);
    while (n && (from[0] == ' ' || (from[0] >= '\t' && from[0] <= '\r'))) {
        from++; /* expat allows nothing before the declaration; some producers print a blank line */
        n--;
    }
    enum XML_Status status = XML_Parse(j->parser, from, (int)n, 1);
    int rc = j->rc;
    if (rc == 0 && status != XML_STATUS_OK) {
        rc = err_set(err, ERR_INVALID, "junit: not well-formed XML: line %lu, column %lu: %s",
                     (unsigned long)XML_GetCurrentLineNumber(j->parser),
                     (unsigned long)XML_GetCurrentColumnNumber(j->parser),
                     XML_ErrorString(XML_GetErrorCode(j->parser)));
    }
    XML_ParserFree(j->parser);
    return rc;
}

int report_read_junit(struct report *r, const char *data, size_t len, struct err *err)
{
    struct junit j = { .r = r, .err = err, .declared_tests = -1 };
    struct {
        struct buf *b;
        size_t max;
    } all[] = {
        { &j.suite, REPORT_DEPTH_MAX * (REPORT_NAME_BYTES_MAX + 3) },
        { &j.name, REPORT_NAME_BYTES_MAX + 1 },
        { &j.classname, REPORT_NAME_BYTES_MAX + 1 },
        { &j.file, REPORT_NAME_BYTES_MAX + 1 },
        { &j.message, REPORT_MESSAGE_BYTES_MAX + 1 },
        { &j.type, REPORT_WORD_BYTES_MAX + 1 },
        { &j.raw_status, REPORT_WORD_BYTES_MAX + 1 },
        { &j.shard, REPORT_WORD_BYTES_MAX + 1 },
        { &j.text, REPORT_TEXT_BYTES_MAX + 1 },
        { &j.out, REPORT_TEXT_BYTES_MAX + 1 },
        { &j.errors, REPORT_TEXT_BYTES_MAX + 1 },
        { &j.scratch, REPORT_MESSAGE_BYTES_MAX + 1 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buf_init(all[i].b, all[i].max);
    }
    int rc = parse(&j, data, len, err);
    if (rc == 0) {
        check_declared(&j);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buf_done(all[i].b);
    }
    return rc;
}
