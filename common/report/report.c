/* The model. Strings live in an arena that grows by chunks and is freed as a whole; a suite, class
 * or file that equals the previous case's is stored once, which is what keeps 200,000 cases of one
 * suite small. */
#include "common/report/report.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/report_part.h"

#define ARENA_CHUNK_BYTES 65536u
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

struct report_arena {
    struct report_arena *next;
    size_t used, room;
    char bytes[];
};

static const struct {
    const char *word;
    int rank;
} statuses[] = {
#define REPORT_STATUS(name, word, rank) { word, rank },
#include "common/report/status.def"
#undef REPORT_STATUS
};

const char *report_status_word(enum report_status s)
{
    assert(s >= 0 && s < REPORT_STATUS_END);
    return statuses[s].word;
}

enum report_status report_status_of(const char *word)
{
    for (int i = 0; i < REPORT_STATUS_END; i++) {
        if (strcmp(word, statuses[i].word) == 0) {
            return (enum report_status)i;
        }
    }
    return REPORT_STATUS_END;
}

const char *report_format_word(enum report_format f)
{
    static const char *const words[] = { "unknown", "junit", "tap", "go", "ctrf" };
    assert((size_t)f < sizeof words / sizeof *words);
    return words[f];
}

struct report *report_new(void)
{
    struct report *r = calloc(1, sizeof *r);
    if (!r) {
        abort();
    }
    return r;
}

void report_free(struct report *r)
{
    if (!r) {
        return;
    }
    while (r->arena) {
        struct report_arena *a = r->arena;
        r->arena = a->next;
        free(a);
    }
    for (size_t i = 0; i < r->n_notes; i++) {
        free(r->notes[i]);
    }
    free(r->cases);
    free(r);
}

static char *arena_get(struct report *r, size_t n)
{
    struct report_arena *a = r->arena;
    if (!a || a->room - a->used < n) {
        size_t room = n > ARENA_CHUNK_BYTES ? n : ARENA_CHUNK_BYTES;
        struct report_arena *fresh = malloc(sizeof *fresh + room);
        if (!fresh) {
            abort();
        }
        *fresh = (struct report_arena){ .room = room };
        if (a && n > ARENA_CHUNK_BYTES / 2) { /* a chunk of its own; the open one stays in front */
            fresh->next = a->next;
            a->next = fresh;
        } else {
            fresh->next = a;
            r->arena = fresh;
        }
        a = fresh;
    }
    char *p = a->bytes + a->used;
    a->used += n;
    return p;
}

/* Bytes of s once it is valid UTF-8 and at most max bytes; cut at a character's end. */
static size_t clean_length(struct report_slice s, size_t max, bool *cut)
{
    size_t out = 0;
    for (size_t i = 0; i < s.n;) {
        uint32_t code;
        size_t n = report_utf8(s.s + i, s.n - i, &code);
        size_t grow = n && code ? n : sizeof REPLACEMENT - 1;
        if (out + grow > max) {
            *cut = true;
            break;
        }
        out += grow;
        i += n ? n : 1;
    }
    return out;
}

static void clean_copy(char *to, size_t out, struct report_slice s)
{
    size_t at = 0;
    for (size_t i = 0; at < out;) {
        uint32_t code;
        size_t n = report_utf8(s.s + i, s.n - i, &code);
        if (n && code) {
            memcpy(to + at, s.s + i, n);
            at += n;
        } else {
            memcpy(to + at, REPLACEMENT, sizeof REPLACEMENT - 1);
            at += sizeof REPLACEMENT - 1;
        }
        i += n ? n : 1;
    }
    assert(at == out);
    to[out] = 0;
}

/* The stored form of s, or `last` when that is the same. NULL when the budget is used up. */
static const char *store(struct report *r, struct report_slice s, size_t max, const char *last,
                         bool is_text, bool *cut)
{
    size_t n = clean_length(s, max, cut);
    if (n == 0) {
        return "";
    }
    if (last && n == s.n && strlen(last) == n && memcmp(last, s.s, n) == 0) {
        return last;
    }
    size_t *used = is_text ? &r->text_bytes : &r->name_bytes;
    size_t budget = is_text ? REPORT_TEXTS_BYTES_MAX : REPORT_NAMES_BYTES_MAX;
    if (n + 1 > budget - *used) {
        return NULL;
    }
    *used += n + 1;
    char *p = arena_get(r, n + 1);
    clean_copy(p, n, s);
    return p;
}

static int too_many_names(struct err *err)
{
    return err_set(err, ERR_TOO_LARGE, "names of all tests: more than %u bytes",
                   REPORT_NAMES_BYTES_MAX);
}

int report_add(struct report *r, const struct report_new *c, struct err *err)
{
    assert(c->status >= 0 && c->status < REPORT_STATUS_END);
    if (r->n_cases == REPORT_CASES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "more than %u tests", REPORT_CASES_MAX);
    }
    if (r->n_cases == r->cases_room) {
        size_t room = r->cases_room ? 2 * r->cases_room : 64;
        struct report_case *p = realloc(r->cases, room * sizeof *p);
        if (!p) {
            abort();
        }
        r->cases = p;
        r->cases_room = room;
    }
    const struct report_case *last = r->n_cases ? &r->cases[r->n_cases - 1] : NULL;
    bool known = c->time_us >= 0 && c->time_us <= REPORT_TIME_US_MAX;
    struct report_case new = {
        .time_us = known ? c->time_us : -1,
        .line = c->line > 0 ? c->line : 0,
        .attempts = c->attempts ? c->attempts : 1,
        .status = c->status,
        .cut = c->cut,
    };
    bool dropped = false;
#define REPORT_FIELD(field, bytes_max, shared, is_text)                                            \
    new.field =                                                                                    \
        store(r, c->field, (bytes_max), (shared) && last ? last->field : NULL, is_text, &new.cut); \
    if (!new.field && !(is_text)) {                                                                \
        return too_many_names(err);                                                                \
    }                                                                                              \
    if (!new.field) {                                                                              \
        new.field = "";                                                                            \
        dropped = true;                                                                            \
    }
#include "common/report/report_field.def"
#undef REPORT_FIELD
    new.cut |= dropped;
    r->texts_dropped += dropped;
    r->cases[r->n_cases++] = new;
    r->count[new.status]++;
    return 0;
}

void report_note(struct report *r, const char *fmt, ...)
{
    if (r->n_notes == REPORT_NOTES_MAX) {
        r->notes_dropped++;
        return;
    }
    char raw[REPORT_NOTE_BYTES_MAX + 1];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    bool cut = false;
    struct report_slice s = slice_of(raw, strlen(raw));
    for (size_t i = 0; i < s.n; i++) { /* notes are shown on terminals */
        raw[i] = (unsigned char)raw[i] < 0x20 || raw[i] == 0x7f ? ' ' : raw[i];
    }
    size_t len = clean_length(s, REPORT_NOTE_BYTES_MAX, &cut);
    char *p = malloc(len + 1);
    if (!p) {
        abort();
    }
    clean_copy(p, len, s);
    r->notes[r->n_notes++] = p;
}

void report_set_tool(struct report *r, struct report_slice s)
{
    bool cut = false;
    size_t n = clean_length(s, sizeof r->tool - 1, &cut);
    clean_copy(r->tool, n, s);
}

int report_prefix_suites(struct report *r, size_t first, struct report_slice prefix,
                         struct err *err)
{
    assert(first <= r->n_cases);
    const char *before = NULL, *after = NULL;
    if (prefix.n == 0) {
        return 0;
    }
    for (size_t i = first; i < r->n_cases; i++) {
        struct report_case *c = &r->cases[i];
        if (before != c->suite) {
            cleanup_buf struct buf joined = { 0 };
            buf_init(&joined, 2 * REPORT_NAME_BYTES_MAX + 8);
            before = c->suite;
            size_t keep = prefix.n < REPORT_NAME_BYTES_MAX ? prefix.n : REPORT_NAME_BYTES_MAX;
            report_append(&joined, prefix.s, keep, &c->cut); /* may hold NUL */
            report_append(&joined, " > ", before[0] ? 3 : 0, &c->cut);
            report_append(&joined, before, strlen(before), &c->cut);
            after = store(r, slice_buf(&joined), REPORT_NAME_BYTES_MAX, NULL, false, &c->cut);
            if (!after) {
                return too_many_names(err);
            }
        }
        c->suite = after;
    }
    return 0;
}

enum report_status report_worst(const struct report *r)
{
    enum report_status worst = REPORT_PASSED;
    for (int i = 0; i < REPORT_STATUS_END; i++) {
        if (r->count[i] && statuses[i].rank > statuses[worst].rank) {
            worst = (enum report_status)i;
        }
    }
    return worst;
}

bool report_ok(const struct report *r)
{
    return !r->incomplete && r->count[REPORT_FAILED] == 0 && r->count[REPORT_ERROR] == 0;
}

int64_t report_time_us(const struct report *r)
{
    int64_t sum = 0; /* at most REPORT_CASES_MAX times REPORT_TIME_US_MAX: clamped */
    for (size_t i = 0; i < r->n_cases; i++) {
        int64_t t = r->cases[i].time_us;
        if (t > 0 && (sum += t) > REPORT_TIME_US_MAX) {
            return REPORT_TIME_US_MAX;
        }
    }
    return sum;
}

int report_merge(struct report *into, const struct report *from, const char *shard, struct err *err)
{
    assert(into != from);
    const char *label = shard ? shard : "";
    if (into->n_cases == 0 && into->format == REPORT_FORMAT_UNKNOWN) {
        into->format = from->format;
    }
    if (!into->tool[0]) {
        memcpy(into->tool, from->tool, sizeof into->tool);
    }
    if (from->start_ms && (!into->start_ms || from->start_ms < into->start_ms)) {
        into->start_ms = from->start_ms;
    }
    into->stop_ms = from->stop_ms > into->stop_ms ? from->stop_ms : into->stop_ms;
    into->incomplete |= from->incomplete;
    for (size_t i = 0; i < from->n_notes; i++) {
        report_note(into, "%s%s%s", label, label[0] ? ": " : "", from->notes[i]);
    }
    into->notes_dropped += from->notes_dropped;
    into->texts_dropped += from->texts_dropped;
    for (size_t i = 0; i < from->n_cases; i++) {
        const struct report_case *c = &from->cases[i];
        struct report_new n = {
            .time_us = c->time_us,
            .line = c->line,
            .attempts = c->attempts,
            .status = c->status,
            .cut = c->cut,
        };
#define REPORT_FIELD(field, bytes_max, shared, is_text)                                            \
    n.field = slice_of(c->field, strlen(c->field));
#include "common/report/report_field.def"
#undef REPORT_FIELD
        if (n.shard.n == 0) {
            n.shard = slice_of(label, strlen(label));
        }
        int rc = report_add(into, &n, err);
        if (rc < 0) {
            into->incomplete = true;
            report_note(into, "%s%s%s: the rest is left out", label, label[0] ? ": " : "",
                        err->text);
            return rc;
        }
    }
    return 0;
}
