/* Test reports, as a hostile guest would write them: every reader over every input. What is read
 * keeps the model's promises, and can be written in both formats and read again with the same
 * counts. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/report/report.h"
#include "common/report/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct report *r)
{
    size_t sum = 0;
    for (int i = 0; i < REPORT_STATUS_END; i++) {
        sum += r->count[i];
    }
    assert(sum == r->n_cases && r->n_cases <= REPORT_CASES_MAX && r->n_notes <= REPORT_NOTES_MAX);
    for (size_t i = 0; i < r->n_cases; i++) {
        const struct report_case *c = &r->cases[i];
        assert(c->name[0] && c->attempts > 0 && c->line >= 0);
        assert(c->time_us >= -1 && c->time_us <= REPORT_TIME_US_MAX);
#define REPORT_FIELD(field, bytes_max, shared, is_text)                                            \
    assert(c->field &&strlen(c->field) <= (bytes_max));
#include "common/report/report_field.def"
#undef REPORT_FIELD
    }
    for (size_t i = 0; i < r->n_notes; i++) {
        assert(strlen(r->notes[i]) <= REPORT_NOTE_BYTES_MAX);
        for (const char *p = r->notes[i]; *p; p++) {
            assert((unsigned char)*p >= 0x20 && *p != 0x7f);
        }
    }
}

static void again(const struct report *r, enum report_format format, const struct buf *written)
{
    struct err err;
    cleanup_report struct report *twin = NULL;
    int rc = report_read(format, written->data, written->len, &twin, &err);
    assert(rc == 0);
    assert(report_detect(written->data, written->len) == format);
    assert(twin->n_cases == r->n_cases);
    assert(memcmp(twin->count, r->count, sizeof r->count) == 0);
    check(twin);
}

static void write_both(const struct report *r)
{
    struct err err;
    cleanup_buf struct buf xml = { 0 }, json = { 0 };
    buf_init(&xml, REPORT_INPUT_BYTES_MAX);
    buf_init(&json, REPORT_INPUT_BYTES_MAX);
    struct report_ctrf_info info = { .branch = "main" };
    if (report_write_junit(r, "all", &xml, &err) == 0) {
        again(r, REPORT_FORMAT_JUNIT, &xml);
    }
    if (report_write_ctrf(r, &info, &json, &err) == 0) {
        again(r, REPORT_FORMAT_CTRF, &json);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum report_format detected = report_detect((const char *)data, size);
    for (int f = REPORT_FORMAT_UNKNOWN; f <= REPORT_FORMAT_CTRF; f++) {
        struct err err = { 0 };
        cleanup_report struct report *r = NULL;
        int rc = report_read((enum report_format)f, (const char *)data, size, &r, &err);
        if (rc < 0) {
            assert(!r && err.code == -rc && err.text[0]);
            for (const char *p = err.text; *p; p++) {
                assert((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
            }
            continue;
        }
        check(r);
        if (f != REPORT_FORMAT_UNKNOWN) {
            continue;
        }
        assert(r->format == detected);
        write_both(r);
        cleanup_report struct report *all = report_new();
        rc = report_merge(all, r, "1/2", &err);
        rc = rc == 0 ? report_merge(all, r, "2/2", &err) : rc;
        assert(rc == 0 && all->n_cases == 2 * r->n_cases);
        check(all);
        struct shard_file files[] = { { "tests/test_a.py", -1 }, { "a.t", -1 } };
        rc = shard_times(files, 2, r, &err);
        assert(rc >= 0);
    }
    return 0;
}
