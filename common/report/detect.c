/* Which format, and the door to the readers. */
#include "common/report/report_part.h"

#include <assert.h>
#include <string.h>

#define DETECT_BYTES_MAX 65536u

static bool has(struct report_slice s, const char *word)
{
    return memmem(s.s, s.n, word, strlen(word)) != NULL;
}

static bool tap_line(struct report_slice line)
{
    bool bare =
        (line.n == 2 && slice_begins(line, "ok")) || (line.n == 6 && slice_begins(line, "not ok"));
    bool plan = slice_begins(line, "1..") && line.n > 3 && line.s[3] >= '0' && line.s[3] <= '9';
    return bare || plan || slice_begins(line, "TAP version ") || slice_begins(line, "ok ") ||
           slice_begins(line, "not ok ") || slice_begins(line, "Bail out!");
}

enum report_format report_detect(const char *data, size_t len)
{
    struct report_slice all = { data, len < DETECT_BYTES_MAX ? len : DETECT_BYTES_MAX };
    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        all.s += 3;
        all.n -= 3;
    }
    if (len >= 2 && (memcmp(data, "\xff\xfe", 2) == 0 || memcmp(data, "\xfe\xff", 2) == 0)) {
        return REPORT_FORMAT_JUNIT; /* only XML comes as UTF-16 */
    }
    struct report_slice trimmed = slice_trim(all);
    if (trimmed.n && trimmed.s[0] == '<') {
        return REPORT_FORMAT_JUNIT;
    }
    /* go writes plain lines between its JSON ones, and TAP comes with other output around it */
    for (struct report_slice rest = all; rest.n;) {
        struct report_slice line = slice_line(&rest);
        if (line.n && line.s[0] == '{' && has(line, "\"Action\"")) {
            return REPORT_FORMAT_GO;
        }
        if (tap_line(line)) {
            return REPORT_FORMAT_TAP;
        }
    }
    if (trimmed.n && trimmed.s[0] == '{') {
        bool ctrf = has(trimmed, "\"reportFormat\"") || has(trimmed, "\"results\"");
        return ctrf ? REPORT_FORMAT_CTRF : REPORT_FORMAT_UNKNOWN;
    }
    return REPORT_FORMAT_UNKNOWN;
}

int report_read(enum report_format format, const char *data, size_t len, struct report **ret_report,
                struct err *err)
{
    assert(ret_report);
    if (len > REPORT_INPUT_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "report: %zu bytes; at most %u", len,
                       REPORT_INPUT_BYTES_MAX);
    }
    if (len == 0) {
        return err_set(err, ERR_INVALID, "report: empty");
    }
    if (format == REPORT_FORMAT_UNKNOWN) {
        format = report_detect(data, len);
    }
    cleanup_report struct report *r = report_new();
    r->format = format;
    int rc;
    switch (format) {
    case REPORT_FORMAT_JUNIT:
        rc = report_read_junit(r, data, len, err);
        break;
    case REPORT_FORMAT_TAP:
        rc = report_read_tap(r, data, len, err);
        break;
    case REPORT_FORMAT_GO:
        rc = report_read_go(r, data, len, err);
        break;
    case REPORT_FORMAT_CTRF:
        rc = report_read_ctrf(r, data, len, err);
        break;
    default:
        rc = err_set(err, ERR_INVALID,
                     "report: none of the formats known here: "
                     "JUnit XML, TAP, go test -json, CTRF");
        break;
    }
    if (rc < 0) {
        return rc;
    }
    *ret_report = TAKE_PTR(r);
    return 0;
}
