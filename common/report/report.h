/* Test reports: the model, its readers and its writers.
 *
 * A report is a list of cases in the order in which they were found; equal names are kept, since a
 * parametrised or repeated test is not one test. Reports come out of guests, so a reader takes any
 * bytes: it answers with a report or with an error that names the rule, in memory bounded by the
 * maxima below. Every string of a case is NUL-terminated, valid UTF-8 and never NULL; control
 * characters are kept as they are (the JUnit writer replaces them). A string over its maximum is
 * cut, and the case says so; once all texts together pass their maximum, later texts are dropped
 * and counted, so that the list of cases stays whole. Formats, dialects and what each producer
 * does: docs/reports.md.
 *
 * Pure: no I/O, no clock, no globals. A report belongs to one thread. Memory exhaustion aborts. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"

#define REPORT_INPUT_BYTES_MAX (32u << 20) /* one report read; GitLab's maximum is 30 MB */
#define REPORT_CASES_MAX 200000u           /* cases of one report, merged ones too */
#define REPORT_NAME_BYTES_MAX 1024u        /* suite, classname, name, file */
#define REPORT_MESSAGE_BYTES_MAX 4096u     /* the one-line message */
#define REPORT_TEXT_BYTES_MAX 65536u       /* text, stdout, stderr: each */
#define REPORT_WORD_BYTES_MAX 128u         /* type, raw status, shard */
#define REPORT_TEXTS_BYTES_MAX (64u << 20) /* message, text, stdout and stderr of all cases */
#define REPORT_NAMES_BYTES_MAX (64u << 20) /* the other strings of all cases */
#define REPORT_NOTES_MAX 64u               /* remarks of the readers */
#define REPORT_NOTE_BYTES_MAX 512u         /* one remark */
#define REPORT_DEPTH_MAX 32             /* nested suites, XML elements, JSON values, TAP subtests */
#define REPORT_JSON_VALUES_MAX 1000000u /* values of one JSON document */
#define REPORT_OUTPUT_BYTES_MAX (128u << 20) /* a buffer that holds any report written */
#define REPORT_TIME_US_MAX (INT64_C(100000) * 3600 * 1000000)

enum report_status {
#define REPORT_STATUS(name, word, rank) REPORT_##name,
#include "common/report/status.def"
#undef REPORT_STATUS
    REPORT_STATUS_END
};

enum report_format {
    REPORT_FORMAT_UNKNOWN,
    REPORT_FORMAT_JUNIT,
    REPORT_FORMAT_TAP,
    REPORT_FORMAT_GO, /* go test -json */
    REPORT_FORMAT_CTRF,
};

struct report_case {
#define REPORT_FIELD(name, bytes_max, shared, is_text) const char *name;
#include "common/report/report_field.def"
#undef REPORT_FIELD
    int64_t time_us;   /* -1: not known */
    int line;          /* in file; 0: not known */
    unsigned attempts; /* 1, or more when the producer ran the test again */
    enum report_status status;
    bool cut; /* one of the strings was longer than its maximum */
};

struct report_arena;
struct report {
    struct report_case *cases;
    size_t n_cases, cases_room;
    size_t count[REPORT_STATUS_END];
    int64_t start_ms, stop_ms;            /* Unix time; 0: not known */
    char tool[REPORT_WORD_BYTES_MAX + 1]; /* the producer as far as it can be told, or "" */
    enum report_format format;            /* of what was read; of the first when merged */
    /* The producer ended before its time, or cases that it announced are not there. Such a report
     * is not a pass. */
    bool incomplete;
    size_t texts_dropped; /* cases that lost a text to REPORT_TEXTS_BYTES_MAX */
    char *notes[REPORT_NOTES_MAX];
    size_t n_notes, notes_dropped;
    struct report_arena *arena;
    size_t text_bytes, name_bytes; /* stored so far, against the maxima */
};

/* Bytes that somebody else owns; s may be NULL when n is 0. Need not be UTF-8, may hold NUL. */
struct report_slice {
    const char *s;
    size_t n;
};
/* A case to be added: the strings as slices, all copied. */
struct report_new {
#define REPORT_FIELD(name, bytes_max, shared, is_text) struct report_slice name;
#include "common/report/report_field.def"
#undef REPORT_FIELD
    int64_t time_us; /* below 0 or above REPORT_TIME_US_MAX: not known */
    int line;
    unsigned attempts; /* 0 counts as 1 */
    enum report_status status;
    bool cut; /* the caller cut a text already */
};

struct report *report_new(void);
void report_free(struct report *r); /* NULL allowed */
DEFINE_CLEANUP(cleanup_report_fn, struct report, report_free)
#define cleanup_report CLEANUP(cleanup_report_fn)

/* Append a case. -ERR_TOO_LARGE past REPORT_CASES_MAX or REPORT_NAMES_BYTES_MAX; nothing is added
 * then. */
MUST_CHECK int report_add(struct report *r, const struct report_new *c, struct err *err);
/* A remark for people: printable, cut at REPORT_NOTE_BYTES_MAX; past REPORT_NOTES_MAX only counted.
 */
void report_note(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The worst status, by the rank in status.def; PASSED for a report without cases. */
enum report_status report_worst(const struct report *r);
/* Complete, and neither failed nor error. An empty report is ok: whether that is enough is the
 * caller's rule. */
bool report_ok(const struct report *r);
int64_t report_time_us(const struct report *r); /* the known times added up */
const char *report_status_word(enum report_status s);
/* The status of a word ("failed"), or REPORT_STATUS_END. */
enum report_status report_status_of(const char *word);
const char *report_format_word(enum report_format f); /* "junit", "tap", "go", "ctrf", "unknown" */

/* Append the cases of `from` to `into`. Cases that have no shard yet get the label (at most
 * REPORT_WORD_BYTES_MAX bytes; NULL or "": none), notes get it as prefix. The start is the
 * earliest, the stop the latest, incomplete if one was. On -ERR_TOO_LARGE the cases that fitted are
 * kept and `into` is marked incomplete. */
MUST_CHECK int report_merge(struct report *into, const struct report *from, const char *shard,
                            struct err *err);

/* The format, told from the first 64 KiB. */
enum report_format report_detect(const char *data, size_t len);
/* Read len bytes (at most REPORT_INPUT_BYTES_MAX) of a format; REPORT_FORMAT_UNKNOWN detects it.
 * *ret_report is the caller's (report_free). -ERR_INVALID with the rule that was broken,
 * -ERR_TOO_LARGE with the maximum. */
MUST_CHECK int report_read(enum report_format format, const char *data, size_t len,
                           struct report **ret_report, struct err *err);

/* Append the report to out. name is the run's name, for the root element. -ERR_TOO_LARGE when out
 * is full. */
MUST_CHECK int report_write_junit(const struct report *r, const char *name, struct buf *out,
                                  struct err *err);
/* What CTRF knows beside the cases; NULL members are left out. */
struct report_ctrf_info {
    const char *tool; /* NULL: the report's, or "brood" */
    const char *build_url, *commit, *branch;
};
MUST_CHECK int report_write_ctrf(const struct report *r, const struct report_ctrf_info *info,
                                 struct buf *out, struct err *err);
