#include "cli/ci_summary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/money.h"
#include "cli/safe_text.h"

#define TEXT_SHOWN_MAX 400
#define RUN_NAME "brood ci"
#define PATH_ROOM 4096

static bool failing(const struct report_case *t)
{
    return t->status == REPORT_FAILED || t->status == REPORT_ERROR;
}

/* Why the status is what it is, when the tests do not say it. */
static const char *why(const struct ci_collect *c, const struct result_row *row, int exit_code)
{
    bool asked = c->plan->reports.n > 0;
    switch (exit_code) {
    case CI_PASSED:
        return "passed";
    case CI_LIMIT:
        return row->has_result && row->result.verdict == VERDICT_COMPILE_ERROR
                   ? "setup failed; no test ran"
               : ci_collect_none_ran(c) ? "a limit was met before the shards; no test ran"
                                        : "a limit ended a shard";
    case CI_TIME_LIMIT:
        return ci_collect_none_ran(c) ? "a time limit was met before the shards; no test ran"
                                      : "a time limit ended a shard";
    case CI_FAILED:
        return c->lacking ? "brood could not get every report" : "brood could not run all of it";
    default:
        break;
    }
    if (ci_collect_none_ran(c)) {
        return "failed: no test ran";
    }
    if (asked && c->n_reports == 0) {
        return "failed: no file matched the report patterns, so no test was read";
    }
    if (asked && c->report->n_cases == 0) {
        return "failed: 0 tests were read";
    }
    return report_ok(c->report) ? "failed: a shard did not end well"
           : c->report->incomplete && c->report->count[REPORT_FAILED] == 0 &&
                   c->report->count[REPORT_ERROR] == 0
               ? "failed: the reports are not complete"
               : "failed";
}

static void print_shards(FILE *to, const struct ci_collect *c)
{
    (void)fprintf(to, "\n%-8s %-16s %7s %7s %7s %7s %12s  %s\n", "SHARD", "VERDICT", "TESTS",
                  "PASSED", "FAILED", "SKIPPED", "TIME", "");
    for (unsigned i = 0; i < c->deal->shards; i++) {
        const struct ci_shard *s = &c->shards[i];
        char wall[MONEY_TEXT_MAX], reason[TEXT_SHOWN_MAX];
        duration_us_format(s->wall_us, wall);
        safe_text(reason, sizeof reason, s->reason, strlen(s->reason));
        (void)fprintf(to, "%-8s %-16s %7zu %7zu %7zu %7zu %12s  %s\n", s->label,
                      s->present ? verdict_word(s->verdict) : "-", s->n_cases,
                      s->count[REPORT_PASSED], s->count[REPORT_FAILED] + s->count[REPORT_ERROR],
                      s->count[REPORT_SKIPPED], wall, reason);
    }
}

static void print_setup(FILE *to, const struct result_row *row)
{
    const struct job_result *r = &row->result;
    if (row->has_result && r->setup.present) {
        char wall[MONEY_TEXT_MAX];
        duration_us_format(r->setup.wall_us, wall);
        (void)fprintf(to, "\nsetup, once: %s%s\n", wall,
                      r->verdict == VERDICT_COMPILE_ERROR ? ", failed" : "");
    }
}

static void print_failures(FILE *to, const struct report *r)
{
    size_t shown = 0, all = 0;
    for (size_t i = 0; i < r->n_cases; i++) {
        const struct report_case *t = &r->cases[i];
        if (!failing(t) || ++all > CI_FAILURES_SHOWN_MAX) {
            continue;
        }
        char name[TEXT_SHOWN_MAX], class[TEXT_SHOWN_MAX], message[TEXT_SHOWN_MAX];
        const char *of = t->classname[0] ? t->classname : t->suite;
        safe_text(name, sizeof name, t->name, strlen(t->name));
        safe_text(class, sizeof class, of, strlen(of));
        safe_text(message, sizeof message, t->message, strcspn(t->message, "\n"));
        (void)fprintf(to, "%s[%s] %s: %s%s%s%s%s\n", shown++ ? "" : "\n", t->shard,
                      report_status_word(t->status), class, class[0] ? " " : "", name,
                      message[0] ? "\n      " : "", message);
    }
    if (all > shown) {
        (void)fprintf(to, "... and %zu more\n", all - shown);
    }
}

void ci_summary_print(FILE *to, const struct ci_collect *c, const struct result_row *row,
                      int exit_code)
{
    const struct report *r = c->report;
    char time[MONEY_TEXT_MAX], cost[MONEY_TEXT_MAX];
    print_setup(to, row);
    print_shards(to, c);
    print_failures(to, r);
    if (r->n_notes > 0) {
        (void)fputc('\n', to);
    }
    for (size_t i = 0; i < r->n_notes; i++) {
        (void)fprintf(to, "note: %s\n", r->notes[i]);
    }
    if (r->notes_dropped > 0) {
        (void)fprintf(to, "note: and %zu more\n", r->notes_dropped);
    }
    for (int i = 0; row->has_result && i < row->result.n_warnings; i++) {
        char shown[TEXT_SHOWN_MAX];
        safe_text(shown, sizeof shown, row->result.warnings[i], strlen(row->result.warnings[i]));
        (void)fprintf(to, "warning: %s\n", shown);
    }
    duration_us_format(report_time_us(r), time);
    money_format(row->cost_nanousd, cost);
    (void)fprintf(to, "\ntests %zu  passed %zu  failed %zu  skipped %zu  other %zu  time %s\n",
                  r->n_cases, r->count[REPORT_PASSED],
                  r->count[REPORT_FAILED] + r->count[REPORT_ERROR], r->count[REPORT_SKIPPED],
                  r->count[REPORT_PENDING] + r->count[REPORT_OTHER], time);
    char reason[TEXT_SHOWN_MAX] = "";
    if (exit_code >= CI_LIMIT || ci_collect_none_ran(c)) {
        const char *text = row->has_result   ? row->result.reason
                           : row->last_error ? row->last_error
                                             : job_state_word(row->state);
        safe_text(reason, sizeof reason, text, strlen(text));
    }
    (void)fprintf(to, "%s%s%s (job %s, %s)\n", why(c, row, exit_code), reason[0] ? ": " : "",
                  reason, row->job_id, cost);
}

static json_t *counts_json(size_t n, const size_t count[REPORT_STATUS_END])
{
    json_t *o = json_pack("{s:I}", "tests", (json_int_t)n);
    for (int i = 0; i < REPORT_STATUS_END; i++) {
        (void)json_object_set_new(o, report_status_word((enum report_status)i),
                                  json_integer((json_int_t)count[i]));
    }
    return o;
}

/* Text that may have come out of a sandbox. */
static json_t *text_json(const char *s)
{
    json_t *v = json_string(s);
    char shown[TEXT_SHOWN_MAX];
    if (!v) {
        safe_text(shown, sizeof shown, s, strlen(s));
        v = json_string(shown);
    }
    return v ? v : json_string("");
}

static json_t *shard_json(const struct ci_shard *s)
{
    json_t *o = counts_json(s->n_cases, s->count);
    (void)json_object_set_new(o, "shard", json_string(s->label));
    (void)json_object_set_new(o, "verdict",
                              s->present ? json_string(verdict_word(s->verdict)) : json_null());
    (void)json_object_set_new(o, "reason", text_json(s->reason));
    (void)json_object_set_new(o, "exit_code",
                              s->exit_code >= 0 ? json_integer(s->exit_code) : json_null());
    (void)json_object_set_new(o, "signal", s->signal ? json_integer(s->signal) : json_null());
    (void)json_object_set_new(o, "wall_us", json_integer(s->wall_us));
    (void)json_object_set_new(o, "cpu_us", json_integer(s->cpu_us));
    (void)json_object_set_new(o, "reports", json_integer(s->n_reports));
    return o;
}

json_t *ci_summary_json(const struct ci_collect *c, const struct result_row *row, int exit_code)
{
    const struct report *r = c->report;
    json_t *o = counts_json(r->n_cases, r->count), *shards = json_array(), *failures = json_array(),
           *notes = json_array();
    for (unsigned i = 0; i < c->deal->shards; i++) {
        (void)json_array_append_new(shards, shard_json(&c->shards[i]));
    }
    for (size_t i = 0; i < r->n_cases; i++) {
        const struct report_case *t = &r->cases[i];
        if (failing(t) && json_array_size(failures) < CI_FAILURES_JSON_MAX) {
            (void)json_array_append_new(
                failures, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "shard", t->shard, "status",
                                    report_status_word(t->status), "suite", text_json(t->suite),
                                    "classname", text_json(t->classname), "name",
                                    text_json(t->name), "message", text_json(t->message)));
        }
    }
    for (size_t i = 0; i < r->n_notes; i++) {
        (void)json_array_append_new(notes, text_json(r->notes[i]));
    }
    (void)json_object_set_new(o, "job", json_string(row->job_id));
    (void)json_object_set_new(o, "verdict",
                              row->has_result ? json_string(verdict_word(row->result.verdict))
                                              : json_null());
    (void)json_object_set_new(o, "reason",
                              text_json(row->has_result   ? row->result.reason
                                        : row->last_error ? row->last_error
                                                          : ""));
    (void)json_object_set_new(o, "outcome", json_string(why(c, row, exit_code)));
    (void)json_object_set_new(o, "exit", json_integer(exit_code));
    (void)json_object_set_new(o, "incomplete", json_boolean(r->incomplete));
    (void)json_object_set_new(o, "time_us", json_integer(report_time_us(r)));
    (void)json_object_set_new(o, "setup_us",
                              row->has_result && row->result.setup.present
                                  ? json_integer(row->result.setup.wall_us)
                                  : json_null());
    (void)json_object_set_new(o, "cost_nanousd", json_integer(row->cost_nanousd));
    (void)json_object_set_new(o, "shards", shards);
    (void)json_object_set_new(o, "failures", failures);
    (void)json_object_set_new(o, "notes", notes);
    return o;
}

static int write_all(int fd, const struct buf *b, const char *path, struct err *err)
{
    for (size_t at = 0; at < b->len;) {
        ssize_t n = write(fd, b->data + at, b->len - at);
        if (n < 0 && errno != EINTR) {
            return err_sys(err, "%s", path);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Through a temporary file beside it and a rename; what is no regular file (a terminal, a pipe) is
 * written to. */
static int write_file(const char *path, const struct buf *b, struct err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        cleanup_close int there = open(path, O_WRONLY | O_CLOEXEC);
        return there < 0 ? err_sys(err, "%s", path) : write_all(there, b, path, err);
    }
    char tmp[PATH_ROOM];
    int len = snprintf(tmp, sizeof tmp, "%s.brood-%d", path, (int)getpid());
    if (len < 0 || len >= (int)sizeof tmp) {
        return err_set(err, ERR_TOO_LARGE, "%s: the path is too long", path);
    }
    cleanup_close int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    int rc = write_all(fd, b, path, err);
    if (rc == 0 && rename(tmp, path) < 0) {
        rc = err_sys(err, "%s", path);
    }
    if (rc < 0) {
        (void)unlink(tmp);
    }
    return rc;
}

int ci_summary_write(const struct ci_collect *c, const char *junit, const char *ctrf,
                     struct err *err)
{
    cleanup_buf struct buf out = { 0 };
    buf_init(&out, REPORT_OUTPUT_BYTES_MAX);
    int rc = 0;
    if (junit) {
        rc = report_write_junit(c->report, RUN_NAME, &out, err);
        rc = rc < 0 ? err_prefix(err, "--junit") : write_file(junit, &out, err);
    }
    if (rc >= 0 && ctrf) {
        struct report_ctrf_info info = { 0 };
        buf_reset(&out);
        rc = report_write_ctrf(c->report, &info, &out, err);
        rc = rc < 0 ? err_prefix(err, "--ctrf") : write_file(ctrf, &out, err);
    }
    return rc < 0 ? rc : 0;
}
