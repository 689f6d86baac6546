#include "cli/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/progress.h"
#include "cli/result_json.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define WATCH_POLL_MS 250
#define WATCH_PLAIN_MS 1000
#define WATCH_LOST_MS_MAX 30000 /* Postgres may restart under us for so long */

static void set_job(struct batch_job *j, const struct result_row *row, const char *want)
{
    free(j->name);
    *j = (struct batch_job){ .name = strdup(row->name ? row->name : row->job_id),
                             .got = row->has_result ? row->result.verdict : VERDICT_NONE,
                             .cost_nanousd = row->cost_nanousd,
                             .charged_ms = row->charged_ms };
    (void)snprintf(j->want, sizeof j->want, "%s", want);
    (void)snprintf(j->reason, sizeof j->reason, "%s",
                   row->has_result ? row->result.reason : job_state_word(row->state));
}

/* Keeps dearest[] sorted, dearest first. */
static void add_dearest(struct batch_summary *s, const struct result_row *row)
{
    int at = s->n_dearest;
    while (at > 0 && s->dearest[at - 1].cost_nanousd < row->cost_nanousd) {
        at--;
    }
    if (at == BATCH_DEAREST) {
        return;
    }
    if (s->n_dearest < BATCH_DEAREST) {
        s->n_dearest++;
    } else {
        free(s->dearest[BATCH_DEAREST - 1].name);
    }
    memmove(&s->dearest[at + 1], &s->dearest[at],
            (size_t)(s->n_dearest - 1 - at) * sizeof s->dearest[0]);
    s->dearest[at] = (struct batch_job){ 0 };
    set_job(&s->dearest[at], row, "");
}

static int add_row(void *ctx, const struct result_row *row, struct err *err)
{
    (void)err;
    struct batch_summary *s = ctx;
    char want[JOB_LABEL_VALUE_MAX + 1];
    enum verdict got = row->has_result ? row->result.verdict : VERDICT_NONE;
    s->total++;
    s->by_verdict[got]++;
    if (result_expected(row, want, sizeof want)) {
        s->expected_total++;
        if (verdict_in(want, got)) {
            s->expected_met++;
        } else if (s->n_unexpected < BATCH_UNEXPECTED_MAX) {
            set_job(&s->unexpected[s->n_unexpected++], row, want);
        }
    }
    if (s->first_submit_ms == 0 || row->submitted_ms < s->first_submit_ms) {
        s->first_submit_ms = row->submitted_ms;
    }
    if (job_state_terminal(row->state)) {
        s->done++;
        if (row->finished_ms >= 0) {
            samples_add(&s->latency_ms, row->finished_ms - row->submitted_ms);
            s->last_finish_ms =
                row->finished_ms > s->last_finish_ms ? row->finished_ms : s->last_finish_ms;
        }
    }
    s->cost_nanousd += row->cost_nanousd;
    s->charged_ms += row->charged_ms;
    s->measured_ms += row->measured_ms;
    if (row->cost_nanousd > 0) {
        add_dearest(s, row);
    }
    return 0;
}

struct batch_summary *batch_summary_new(struct pg *pg, const char *batch_id, struct err *err)
{
    struct batch_summary *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    if (store_results(pg, batch_id, add_row, s, err) < 0) {
        batch_summary_free(s);
        return NULL;
    }
    if (s->total == 0) {
        (void)err_set(err, ERR_NOT_FOUND, "batch %s: no such batch, or it has no jobs", batch_id);
        batch_summary_free(s);
        return NULL;
    }
    return s;
}

void batch_summary_free(struct batch_summary *s)
{
    if (!s) {
        return;
    }
    for (int i = 0; i < s->n_unexpected; i++) {
        free(s->unexpected[i].name);
    }
    for (int i = 0; i < s->n_dearest; i++) {
        free(s->dearest[i].name);
    }
    samples_done(&s->latency_ms);
    free(s);
}

static void print_json(const char *batch_id, const struct batch_summary *s)
{
    json_t *counts = json_object(), *unexpected = json_array();
    for (int v = 1; v < VERDICT_COUNT; v++) {
        if (s->by_verdict[v]) {
            (void)json_object_set_new(counts, verdict_word((enum verdict)v),
                                      json_integer(s->by_verdict[v]));
        }
    }
    for (int i = 0; i < s->n_unexpected; i++) {
        const struct batch_job *j = &s->unexpected[i];
        (void)json_array_append_new(
            unexpected, json_pack("{s:s, s:s, s:s, s:s}", "name", j->name, "wanted", j->want, "got",
                                  verdict_word(j->got), "reason", j->reason));
    }
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:o, s:i, s:i, s:o}", "batch", batch_id, "jobs", s->total,
                  "done", s->done, "verdicts", counts, "expected_total", s->expected_total,
                  "expected_met", s->expected_met, "unexpected", unexpected);
    if (root) {
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(root);
}

int batch_summary_print(const struct cli *cli, const char *batch_id, const struct batch_summary *s)
{
    bool met = s->expected_met == s->expected_total;
    if (cli->json) {
        print_json(batch_id, s);
        return met ? CLI_OK : CLI_NOT_AS_WANTED;
    }
    char verdicts[300];
    progress_verdicts(s->by_verdict, verdicts, sizeof verdicts);
    (void)printf("jobs: %d  verdicts: %s\n", s->total, verdicts[0] ? verdicts : "none yet");
    if (s->expected_total == 0) {
        return CLI_OK;
    }
    (void)printf("verdicts as expected: %d/%d\n", s->expected_met, s->expected_total);
    for (int i = 0; i < s->n_unexpected; i++) {
        const struct batch_job *j = &s->unexpected[i];
        (void)printf("  %s: wanted %s, got %s%s%s\n", j->name, j->want, verdict_word(j->got),
                     j->reason[0] ? ": " : "", j->reason);
    }
    int more = s->expected_total - s->expected_met - s->n_unexpected;
    if (more > 0) {
        (void)printf("  ... and %d more (brood results %s)\n", more, batch_id);
    }
    return met ? CLI_OK : CLI_NOT_AS_WANTED;
}

static int terminal_width(void)
{
    struct winsize ws;
    if (!isatty(2) || ioctl(2, TIOCGWINSZ, &ws) < 0) {
        return 0;
    }
    int w = ws.ws_col > 20 ? ws.ws_col - 1 : 79; /* a pty without a size says 0 */
    return w < PROGRESS_LINE_MAX - 1 ? w : PROGRESS_LINE_MAX - 1;
}

int batch_watch(const struct cli *cli, struct pg *pg, const char *batch_id, struct err *err)
{
    (void)cli;
    struct progress progress = { .started_ms = mono_ms(), .first_done = -1 };
    char line[PROGRESS_LINE_MAX], shown[PROGRESS_LINE_MAX] = "";
    int64_t shown_ms = 0, lost_ms = 0;
    int shown_done = -1;
    for (;; sleep_ms(WATCH_POLL_MS)) {
        struct batch_counts counts;
        int rc = store_batch_counts(pg, batch_id, &counts, err);
        int64_t now = mono_ms();
        if (rc == -ERR_UNAVAILABLE) {
            lost_ms = lost_ms ? lost_ms : now;
            if (now - lost_ms < WATCH_LOST_MS_MAX) {
                continue;
            }
        }
        if (rc < 0) {
            return rc;
        }
        lost_ms = 0;
        if (counts.total == 0) {
            return err_set(err, ERR_NOT_FOUND, "batch %s: no such batch, or it has no jobs",
                           batch_id);
        }
        if (progress.first_done < 0) {
            progress.first_done = counts.done;
        }
        bool end = counts.done >= counts.total;
        int width = terminal_width();
        progress_line(&progress, &counts, now, width, line);
        if (width > 0) {
            if (strcmp(line, shown) != 0) {
                (void)fprintf(stderr, "\r%s\033[K%s", line, end ? "\n" : "");
            } else if (end) {
                (void)fputc('\n', stderr);
            }
        } else if (counts.done != shown_done &&
                   (end || shown_ms == 0 || now - shown_ms >= WATCH_PLAIN_MS)) {
            (void)fprintf(stderr, "%s\n", line);
            shown_ms = now;
            shown_done = counts.done;
        }
        (void)fflush(stderr);
        memcpy(shown, line, sizeof shown);
        if (end) {
            return 0;
        }
    }
}

int batch_follow(const struct cli *cli, struct pg *pg, const char *batch_id)
{
    struct err err;
    if (batch_watch(cli, pg, batch_id, &err) < 0) {
        return cli_fail(cli, &err);
    }
    struct batch_summary *s = batch_summary_new(pg, batch_id, &err);
    if (!s) {
        return cli_fail(cli, &err);
    }
    int rc = batch_summary_print(cli, batch_id, s);
    batch_summary_free(s);
    return rc;
}
