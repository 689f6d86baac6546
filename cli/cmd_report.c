/* brood report: one table about a batch, for people and (--json) for scripts. */
#include <string.h>
#include <jansson.h>

#include "cli/batch.h"
#include "cli/branch_report.h"
#include "cli/money.h"
#include "cli/progress.h"
#include "cli/result_json.h"

static const struct argp argp = {
    .parser = cli_parse_key,
    .args_doc = "BATCH|JOB|latest",
    .doc = "One table about a batch: verdicts, wall time, runs per second, submit-to-verdict "
           "times, cost; or about a job: its branches, one a line.\v"
           "Exit status 1 when a job's verdict is not the one of its label expected_verdict.\n\n"
           "Examples:\n"
           "  brood report latest\n"
           "  brood report latest --json | jq .runs_per_s\n"
           "  brood report $(brood results latest | jq -r .job | head -1)\n",
    .children = cli_globals,
};

struct figures {
    int64_t wall_ms, deci_per_s, p50_ms, p95_ms; /* deci_per_s: runs per second x 10 */
};

static struct figures figures(struct batch_summary *s)
{
    struct figures f = { .p50_ms = samples_percentile(&s->latency_ms, 50),
                         .p95_ms = samples_percentile(&s->latency_ms, 95) };
    if (s->last_finish_ms > s->first_submit_ms) {
        f.wall_ms = s->last_finish_ms - s->first_submit_ms;
        f.deci_per_s = (int64_t)s->done * 10000 / f.wall_ms;
    }
    return f;
}

static void print_json(const char *batch, const struct batch_summary *s, const struct figures *f)
{
    json_t *counts = json_object(), *dearest = json_array(), *unexpected = json_array();
    for (int v = 1; v < VERDICT_COUNT; v++) {
        if (s->by_verdict[v]) {
            (void)json_object_set_new(counts, verdict_word((enum verdict)v),
                                      json_integer(s->by_verdict[v]));
        }
    }
    for (int i = 0; i < s->n_dearest; i++) {
        const struct batch_job *j = &s->dearest[i];
        (void)json_array_append_new(
            dearest, json_pack("{s:s, s:s, s:I, s:I}", "name", j->name, "verdict",
                               verdict_word(j->got), "charged_ms", (json_int_t)j->charged_ms,
                               "cost_nanousd", (json_int_t)j->cost_nanousd));
    }
    for (int i = 0; i < s->n_unexpected; i++) {
        const struct batch_job *j = &s->unexpected[i];
        (void)json_array_append_new(
            unexpected, json_pack("{s:s, s:s, s:s, s:s}", "name", j->name, "wanted", j->want, "got",
                                  verdict_word(j->got), "reason", j->reason));
    }
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:o, s:i, s:i, s:o, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "batch",
        batch, "problems", s->total, "done", s->done, "verdicts", counts, "expected_total",
        s->expected_total, "expected_met", s->expected_met, "unexpected", unexpected, "wall_ms",
        (json_int_t)f->wall_ms, "runs_per_s", (double)f->deci_per_s / 10,
        "submit_to_verdict_p50_ms", (json_int_t)f->p50_ms, "submit_to_verdict_p95_ms",
        (json_int_t)f->p95_ms, "measured_ms", (json_int_t)s->measured_ms, "charged_ms",
        (json_int_t)s->charged_ms, "cost_nanousd", (json_int_t)s->cost_nanousd, "dearest", dearest);
    if (root) {
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(root);
}

static void print_table(const char *batch, const struct batch_summary *s, const struct figures *f)
{
    char wall[MONEY_TEXT_MAX], p50[MONEY_TEXT_MAX], p95[MONEY_TEXT_MAX], cost[MONEY_TEXT_MAX],
        charged[MONEY_TEXT_MAX], measured[MONEY_TEXT_MAX], verdicts[300];
    duration_format(f->wall_ms, wall);
    duration_format(f->p50_ms, p50);
    duration_format(f->p95_ms, p95);
    duration_format(s->charged_ms, charged);
    duration_format(s->measured_ms, measured);
    money_format(s->cost_nanousd, cost);
    progress_verdicts(s->by_verdict, verdicts, sizeof verdicts);
    (void)printf("batch              %s\n", batch);
    (void)printf("problems           %d", s->total);
    if (s->done < s->total) {
        (void)printf("  (%d not ended yet)", s->total - s->done);
    }
    (void)printf("\nverdicts           %s\n", verdicts[0] ? verdicts : "none yet");
    (void)printf("wall time          %s\n", wall);
    (void)printf("runs per second    %lld.%lld\n", (long long)(f->deci_per_s / 10),
                 (long long)(f->deci_per_s % 10));
    (void)printf("submit to verdict  p50 %s, p95 %s\n", p50, p95);
    (void)printf("sandbox time       measured %s, charged %s\n", measured, charged);
    (void)printf("total billed       %s\n", cost);
    for (int i = 0; i < s->n_dearest; i++) {
        const struct batch_job *j = &s->dearest[i];
        money_format(j->cost_nanousd, cost);
        duration_format(j->charged_ms, charged);
        (void)printf("%s%-12s %s (%s, %s)\n", i ? "                   " : "dearest jobs       ",
                     cost, j->name, verdict_word(j->got), charged);
    }
    if (s->expected_total > 0) {
        (void)printf("verdicts as expected: %d/%d\n", s->expected_met, s->expected_total);
    }
    for (int i = 0; i < s->n_unexpected; i++) {
        const struct batch_job *j = &s->unexpected[i];
        (void)printf("  %s: wanted %s, got %s%s%s\n", j->name, j->want, verdict_word(j->got),
                     j->reason[0] ? ": " : "", j->reason);
    }
}

/* 1: id is a job, and was reported; 0: it is none. */
static int report_job(struct cli *cli, struct pg *pg, const char *id, bool *ret_met,
                      struct err *err)
{
    struct result_row row;
    char want[JOB_LABEL_VALUE_MAX + 1];
    int rc = store_job(pg, id, &row, err);
    if (rc < 0) {
        return rc == -ERR_NOT_FOUND ? 0 : rc;
    }
    enum verdict got = row.has_result ? row.result.verdict : VERDICT_NONE;
    *ret_met = !result_expected(&row, want, sizeof want) || verdict_in(want, got);
    rc = branch_report(cli, pg, &row, err);
    result_row_done(&row);
    return rc < 0 ? rc : 1;
}

int cmd_report(struct cli *cli, int argc, char **argv)
{
    struct cli_opts o = { .cli = cli, .takes = &cli_takes_batch };
    struct err err;
    struct id batch;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o, &pg, &batch);
    if (rc != 0) {
        return rc;
    }
    bool met = true;
    rc = report_job(cli, &pg, batch.text, &met, &err);
    if (rc != 0) {
        return rc < 0 ? cli_fail(cli, &err) : met ? CLI_OK : CLI_NOT_AS_WANTED;
    }
    struct batch_summary *s = batch_summary_new(&pg, batch.text, &err);
    if (!s) {
        return cli_fail(cli, &err);
    }
    struct figures f = figures(s);
    if (cli->json) {
        print_json(batch.text, s, &f);
    } else {
        print_table(batch.text, s, &f);
    }
    rc = s->expected_met == s->expected_total ? CLI_OK : CLI_NOT_AS_WANTED;
    batch_summary_free(s);
    return rc;
}
