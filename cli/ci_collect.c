#include "cli/ci_collect.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/pages.h"
#include "cli/safe_text.h"
#include "common/base/clock.h"

#define NAME_SHOWN_MAX 400
#define SUITE "brood ci"
#define STORE_POLL_MS 500

void ci_collect_init(struct ci_collect *c, const struct brood_json *plan,
                     const struct ci_deal *deal, const struct ci_stale *stale)
{
    *c = (struct ci_collect){ .plan = plan, .deal = deal, .stale = stale, .report = report_new() };
    c->shards = calloc(deal->shards, sizeof *c->shards);
    if (!c->shards) {
        abort();
    }
    for (unsigned i = 0; i < deal->shards; i++) {
        ci_shard_label(i, deal->shards, c->shards[i].label);
        c->shards[i].exit_code = -1;
    }
}

void ci_collect_done(struct ci_collect *c)
{
    free(c->shards);
    report_free(c->report);
    *c = (struct ci_collect){ 0 };
}

/* Why a report of a shard is not in the sum; that is never a pass. */
static void not_read(struct ci_collect *c, unsigned shard, const char *path, const char *why)
{
    char shown[NAME_SHOWN_MAX];
    safe_text(shown, sizeof shown, path, strlen(path));
    report_note(c->report, "shard %s: %s: %s", c->shards[shard].label, shown, why);
    c->report->incomplete = true;
}

/* The same, when the tests have no part in it. */
static void not_had(struct ci_collect *c, unsigned shard, const char *path, const char *why)
{
    not_read(c, shard, path, why);
    c->lacking = true;
}

void ci_collect_verdict(struct ci_collect *c, unsigned shard, const struct job_result *r)
{
    assert(shard < c->deal->shards);
    struct ci_shard *s = &c->shards[shard];
    s->present = true;
    s->verdict = r->verdict;
    (void)snprintf(s->reason, sizeof s->reason, "%s", r->reason);
    s->exit_code = r->run.present ? r->run.exit_code : -1;
    s->signal = r->run.present ? r->run.signal : 0;
    s->wall_us = r->run.wall_us;
    s->cpu_us = r->run.cpu_us;
    if (c->plan->reports.n > 0 && r->artifacts.truncated) {
        not_read(c, shard, "a report may be missing", "not all files that match were listed");
    }
}

void ci_collect_report(struct ci_collect *c, unsigned shard, const char *path, const char *data,
                       size_t len)
{
    assert(shard < c->deal->shards);
    struct ci_shard *s = &c->shards[shard];
    cleanup_report struct report *r = NULL;
    struct err err;
    if (len > REPORT_INPUT_BYTES_MAX) {
        not_read(c, shard, path, "larger than a report may be");
        return;
    }
    if (report_read(REPORT_FORMAT_UNKNOWN, data, len, &r, &err) < 0) {
        not_read(c, shard, path, err.text);
        return;
    }
    if (r->incomplete) {
        not_read(c, shard, path, "is not complete");
    }
    for (size_t i = 0; i < r->n_cases; i++) {
        r->cases[i].shard = ""; /* which shard it was is ours to say, not the report's */
    }
    if (report_merge(c->report, r, s->label, &err) < 0) {
        not_read(c, shard, path, err.text);
    }
    for (int i = 0; i < REPORT_STATUS_END; i++) {
        s->count[i] += r->count[i];
    }
    s->n_cases += r->n_cases;
    s->n_reports++;
    c->n_reports++;
}

struct fetch {
    struct ci_collect *c;
    struct object_store *store;
    int64_t until_ms; /* mono_ms: no more waiting; 0: nothing was waited for yet */
    int n_pending;
};

/* false: it was waited for long enough. */
static bool wait_store(struct fetch *f, const char *why)
{
    int64_t now = mono_ms();
    if (f->until_ms == 0) {
        f->until_ms = now + CI_STORE_MS_MAX;
        (void)fprintf(stderr, "brood: waiting for the object store: %s\n", why);
    }
    if (now >= f->until_ms || (f->c->broken && *f->c->broken)) {
        return false;
    }
    sleep_ms(STORE_POLL_MS);
    return true;
}

/* The shard whose report it is, -1: none. */
static int shard_of(const struct ci_collect *c, const struct artifact_row *row)
{
    const struct artifact *a = &row->artifact;
    return ci_globs_match(&c->plan->reports, a->path, a->path_len)
               ? ci_shard_of_node(c->deal, row->node)
               : -1;
}

static int count_pending(void *ctx, const struct artifact_row *row, struct err *err)
{
    struct fetch *f = ctx;
    (void)err;
    f->n_pending += shard_of(f->c, row) >= 0 && row->artifact.reason == ARTIFACT_PENDING;
    return 0;
}

/* One of the maxima of all reports is passed: say so once. */
static bool too_much(struct ci_collect *c, unsigned shard, const struct artifact *a)
{
    int64_t now = mono_ms();
    c->started_ms = c->started_ms ? c->started_ms : now;
    const char *why =
        c->n_reports >= CI_REPORTS_MAX              ? "not read: there are too many reports"
        : c->bytes + a->size > CI_REPORTS_BYTES_MAX ? "not read: the reports are too large together"
        : now - c->started_ms > CI_READ_MS_MAX      ? "not read: reading the reports takes too long"
                                                    : NULL;
    if (why && !c->gave_up) {
        not_read(c, shard, a->path, why);
        c->gave_up = true;
    }
    return why != NULL;
}

/* Why one that is listed is not in the store. */
static void not_stored(struct ci_collect *c, unsigned shard, const struct artifact *a)
{
    char why[128];
    bool ours = a->reason == ARTIFACT_PENDING || a->reason == ARTIFACT_STORE;
    (void)snprintf(why, sizeof why, "not stored: %s",
                   a->type == ARTIFACT_LINK ? "a link" : artifact_reason_word(a->reason));
    (ours ? not_had : not_read)(c, shard, a->path, why);
}

static int open_report(struct fetch *f, const struct artifact *a, int *ret_fd, struct err *err)
{
    struct object_id id;
    int rc = object_id_parse(&id, a->sha256, err);
    while (rc == 0 && (rc = object_open(f->store, &id, true, ret_fd, err)) < 0 &&
           err_retryable(-rc) && wait_store(f, err->text)) {
        rc = 0;
    }
    return rc;
}

static int fetch_one(void *ctx, const struct artifact_row *row, struct err *err)
{
    struct fetch *f = ctx;
    struct ci_collect *c = f->c;
    const struct artifact *a = &row->artifact;
    int shard = shard_of(c, row);
    (void)err; /* a report that is not to be had is a note */
    if (shard < 0) {
        return 0;
    }
    if (a->type != ARTIFACT_FILE || !a->stored) {
        not_stored(c, (unsigned)shard, a);
        return 0;
    }
    if (ci_stale_is(c->stale, a->path, a->sha256)) {
        report_note(c->report, "shard %s: %s is as it was in the checkout; not read",
                    c->shards[shard].label, a->path);
        return 0;
    }
    if (too_much(c, (unsigned)shard, a)) {
        return 0;
    }
    c->bytes += a->size;
    struct err why;
    cleanup_close int fd = -1;
    cleanup_buf struct buf data = { 0 };
    buf_init(&data, REPORT_INPUT_BYTES_MAX);
    int rc = open_report(f, a, &fd, &why);
    if (rc < 0) {
        not_had(c, (unsigned)shard, a->path, why.text);
    } else if ((rc = buf_read_fd(&data, fd, &why)) < 0) {
        (rc == -ERR_TOO_LARGE ? not_read : not_had)(c, (unsigned)shard, a->path, why.text);
    } else {
        ci_collect_report(c, (unsigned)shard, a->path, data.data ? data.data : "", data.len);
    }
    return 0;
}

int ci_collect_fetch(struct ci_collect *c, struct pg *pg, struct object_store *store,
                     const char *job_id, struct err *err)
{
    if (c->plan->reports.n == 0) {
        return 0;
    }
    struct fetch f = { .c = c, .store = store };
    int rc;
    do {
        f.n_pending = 0;
        rc = pages_artifacts(pg, job_id, -1, count_pending, &f, err);
    } while (rc >= 0 && f.n_pending > 0 && wait_store(&f, "reports are still on a worker's disk"));
    rc = rc < 0 ? rc : pages_artifacts(pg, job_id, -1, fetch_one, &f, err);
    return rc < 0 ? rc : 0;
}

static enum report_status status_of(enum verdict v)
{
    switch (v) {
    case VERDICT_ACCEPTED:
        return REPORT_PASSED;
    case VERDICT_SKIPPED:
    case VERDICT_CANCELLED:
        return REPORT_SKIPPED;
    case VERDICT_NONE:
        return REPORT_PENDING;
    case VERDICT_INFRA_ERROR:
    case VERDICT_JUDGE_ERROR:
        return REPORT_ERROR;
    default:
        return REPORT_FAILED;
    }
}

static struct report_slice text_slice(const char *s)
{
    return (struct report_slice){ s, strlen(s) };
}

/* 124 for a time limit, 123 for another one, else 0. */
static int limit_of(enum verdict v)
{
    switch (v) {
    case VERDICT_TIME_LIMIT:
    case VERDICT_WALL_TIME_LIMIT:
        return CI_TIME_LIMIT;
    case VERDICT_MEMORY_LIMIT:
    case VERDICT_OUTPUT_LIMIT:
    case VERDICT_DISK_LIMIT:
    case VERDICT_PROCESS_LIMIT:
    case VERDICT_COMPILE_ERROR:
        return CI_LIMIT;
    default:
        return 0;
    }
}

bool ci_collect_none_ran(const struct ci_collect *c)
{
    for (unsigned i = 0; i < c->deal->shards; i++) {
        if (c->shards[i].present && c->shards[i].verdict != VERDICT_SKIPPED) {
            return false;
        }
    }
    return true;
}

int ci_collect_exit(const struct ci_collect *c, const struct job_result *job)
{
    if (!job || job->verdict == VERDICT_INFRA_ERROR || job->verdict == VERDICT_JUDGE_ERROR ||
        job->verdict == VERDICT_CANCELLED || c->lacking) {
        return CI_FAILED;
    }
    if (job->verdict == VERDICT_COMPILE_ERROR) {
        return CI_LIMIT;
    }
    int exit_code = limit_of(job->verdict);
    if (exit_code > 0 && ci_collect_none_ran(c)) {
        return exit_code;
    }
    for (unsigned i = 0; i < c->deal->shards; i++) {
        const struct ci_shard *s = &c->shards[i];
        int code = !s->present || s->verdict == VERDICT_INFRA_ERROR ||
                           s->verdict == VERDICT_JUDGE_ERROR || s->verdict == VERDICT_NONE
                       ? CI_FAILED
                       : limit_of(s->verdict);
        exit_code = code > exit_code ? code : exit_code;
    }
    if (exit_code > 0) {
        return exit_code;
    }
    bool passed =
        job->verdict == VERDICT_ACCEPTED && report_ok(c->report) && c->report->n_cases > 0;
    return passed ? CI_PASSED : CI_TESTS_FAILED;
}

void ci_collect_finish(struct ci_collect *c)
{
    for (unsigned i = 0; i < c->deal->shards; i++) {
        struct ci_shard *s = &c->shards[i];
        bool asked = c->plan->reports.n > 0;
        if (s->verdict == VERDICT_ACCEPTED && asked && s->n_reports == 0) {
            report_note(c->report, "shard %s: passed, but left no report", s->label);
            c->report->incomplete = true;
        }
        /* A status of its own beside failing tests is what test runners do. */
        bool explained = s->verdict == VERDICT_ACCEPTED
                             ? asked
                             : s->exit_code > 0 && limit_of(s->verdict) == 0 &&
                                   s->count[REPORT_FAILED] + s->count[REPORT_ERROR] > 0;
        if (explained) {
            continue;
        }
        char name[CI_LABEL_MAX + 8];
        (void)snprintf(name, sizeof name, "shard %s", s->label);
        const char *word = verdict_word(s->verdict);
        struct report_new row = { .suite = text_slice(SUITE),
                                  .classname = text_slice(SUITE),
                                  .name = text_slice(name),
                                  .shard = text_slice(s->label),
                                  .message = text_slice(s->reason[0] ? s->reason : word),
                                  .type = text_slice(word),
                                  .raw_status = text_slice(word),
                                  .time_us = s->wall_us,
                                  .status = status_of(s->verdict) };
        if (row.status == REPORT_PASSED) {
            row.message = row.type = (struct report_slice){ 0 };
        }
        struct err err;
        if (report_add(c->report, &row, &err) < 0) {
            not_read(c, i, name, err.text);
        }
    }
}
