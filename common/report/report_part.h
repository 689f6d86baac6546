/* What the readers and writers share. Internal to common/report. */
#pragma once
#include "common/report/report.h"

#define SLICE(literal) ((struct report_slice){ (literal), sizeof(literal) - 1 })

static inline struct report_slice slice_of(const char *s, size_t n)
{
    return (struct report_slice){ s, n };
}

/* Length of the UTF-8 character at s (n >= 1 bytes there) and its code point; 0 when it is not one.
 */
size_t report_utf8(const char *s, size_t n, uint32_t *ret_code);
/* XML 1.0 may hold it. */
bool report_xml_char(uint32_t code);

/* "0.001", "3", "1e-05", "1,234.5" or "0,5" seconds in microseconds; -1 when it is not a number,
 * negative or above REPORT_TIME_US_MAX. scale_us is the unit: 1000000 for seconds, 1000 for
 * milliseconds. */
int64_t report_parse_time(struct report_slice s, int64_t scale_us);
int64_t report_time_from_real(double value, int64_t scale_us);
/* ISO 8601 date and time, with "T" or space, fraction and zone optional (none: UTC), as Unix ms; 0
 * when not one. */
int64_t report_parse_date(struct report_slice s);
/* A whole number from 0 to INT32_MAX; -1 when it is not one. */
int report_parse_count(struct report_slice s);

bool slice_is(struct report_slice s, const char *word);       /* equal but for ASCII case */
bool slice_starts(struct report_slice s, const char *prefix); /* likewise */
bool slice_begins(struct report_slice s, const char *prefix); /* exactly, case too */
struct report_slice slice_trim(struct report_slice s);        /* without white space at both ends */
struct report_slice
slice_line(struct report_slice *rest); /* cut off the first line, without its end */
/* "path:12" or "path:12:5", maybe followed by ":" or ")": the file and the line; false when it is
 * not one. */
bool slice_file_line(struct report_slice s, struct report_slice *ret_file, int *ret_line);

/* Append as much of the n bytes as fits; *cut becomes true when some did not. */
void report_append(struct buf *b, const char *s, size_t n, bool *cut);
static inline struct report_slice slice_buf(const struct buf *b)
{
    return slice_of(b->data ? b->data : "", b->len); /* no arithmetic on NULL */
}
/* The first line of text that is not blank, trimmed. */
struct report_slice report_first_line(struct report_slice text);
/* Where a failure's text says it happened: "path.ext:12" at the start of its last or first line. */
bool report_find_place(struct report_slice text, struct report_slice *ret_file, int *ret_line);

/* Put prefix (" > " between) before the suites of the cases from `first` on. */
MUST_CHECK int report_prefix_suites(struct report *r, size_t first, struct report_slice prefix,
                                    struct err *err);
void report_set_tool(struct report *r, struct report_slice s);

/* JSON: count before jansson allocates. -ERR_TOO_LARGE past REPORT_JSON_VALUES_MAX, -ERR_INVALID
 * past REPORT_DEPTH_MAX. */
MUST_CHECK int report_json_bounds(const char *s, size_t n, struct err *err);

MUST_CHECK int report_read_junit(struct report *r, const char *data, size_t len, struct err *err);
MUST_CHECK int report_read_tap(struct report *r, const char *data, size_t len, struct err *err);
MUST_CHECK int report_read_go(struct report *r, const char *data, size_t len, struct err *err);
MUST_CHECK int report_read_ctrf(struct report *r, const char *data, size_t len, struct err *err);
