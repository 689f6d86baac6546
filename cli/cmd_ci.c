/* brood ci: the tests of a checkout, in forks of one prepared machine. docs/ci.md.
 *
 * The steps, each in a file of its own: options (ci_options), what git sees (checkout), which shard
 * gets what (ci_deal), pack and store once (ci_pack), one job (ci_job), wait (ci_wait), reports
 * (ci_collect), what is said at the end (ci_summary). */
#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ci_job.h"
#include "cli/ci_keep.h"
#include "cli/ci_options.h"
#include "cli/ci_summary.h"
#include "cli/ci_wait.h"
#include "cli/money.h"
#include "cli/pages.h"
#include "cli/submit.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/snapshots.h"

#define CHECKOUT "."
#define UPLOAD_TTL_S 604800 /* from the last run with the same content */

struct ci {
    struct cli *cli;
    struct ci_options o;
    struct checkout checkout;
    struct ci_stale stale;
    struct ci_deal deal;
    struct ci_collect collect;
    struct pg pg;
    struct queue queue;
    struct object_store *store;
    struct id job, batch;
    char
        kept[JOB_SNAPSHOT_NAME_MAX + 1]; /* the state of an earlier run that this one starts from */
    struct ci_out *outs;                 /* deal.shards of each */
    char (*labels)[CI_LABEL_MAX];
};

static volatile bool interrupted;

static void ci_done(struct ci *c)
{
    if (c->collect.report) {
        ci_collect_done(&c->collect);
    }
    for (unsigned i = 0; c->outs && i < c->deal.shards; i++) {
        ci_out_done(&c->outs[i]);
    }
    free(c->outs);
    free(c->labels);
    ci_deal_done(&c->deal);
    ci_stale_done(&c->stale);
    checkout_done(&c->checkout);
    ci_options_done(&c->o);
    object_store_free(c->store);
    queue_close(&c->queue);
    pg_close(&c->pg);
}

/* 2 for what the caller can mend, else 125. */
static int fail(const struct ci *c, const struct err *err)
{
    return cli_fail(c->cli, err) == CLI_USAGE ? CI_USAGE : CI_FAILED;
}

static int read_plan(struct ci *c, struct err *err)
{
    cleanup_brood_json struct brood_json file = { 0 };
    int rc = brood_json_read(CHECKOUT, &file, err);
    rc = rc < 0 ? rc : ci_plan_merge(&c->o.plan, &file, err);
    if (rc == 0 && c->o.timings && c->o.plan.test_files.n == 0) {
        rc =
            err_set(err, ERR_USAGE,
                    "--timings: needs --test-files or \"test_files\" in brood.json: brood balances "
                    "the files that it deals out itself");
    }
    return rc;
}

static int read_timings(const char *path, struct report **ret_past, struct err *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_init(&text, REPORT_INPUT_BYTES_MAX);
    int rc = buf_read_file(&text, path, err);
    rc = rc < 0 ? rc
                : report_read(REPORT_FORMAT_UNKNOWN, text.data ? text.data : "", text.len, ret_past,
                              err);
    return rc < 0 ? err_prefix(err, "--timings") : 0;
}

/* A folder that is not there is said before the run, not after it. */
static int check_out(const char *option, const char *path, struct err *err)
{
    if (!path) {
        return 0;
    }
    cleanup_free char *copy = strdup(path);
    if (!copy) {
        abort();
    }
    const char *dir = dirname(copy);
    return access(dir, W_OK | X_OK) == 0
               ? 0
               : err_set(err, ERR_USAGE, "%s %s: %s: %s", option, path, dir, strerror(errno));
}

static void tell_left_out(const struct checkout *files)
{
    size_t told = 0;
    for (; told < files->n_left_out && told < CHECKOUT_LEFT_OUT_TOLD_MAX; told++) {
        (void)fprintf(stderr, "brood: not taken: %s\n", files->left_out[told]);
    }
    if (files->n_left_out > told) {
        (void)fprintf(stderr, "brood: not taken: %zu more such links\n", files->n_left_out - told);
    }
}

/* What needs no service: the list of files and who tests what. */
static int look(struct ci *c, struct err *err)
{
    const struct brood_json *p = &c->o.plan;
    cleanup_report struct report *past = NULL;
    if (check_out("--junit", c->o.junit, err) < 0 || check_out("--ctrf", c->o.ctrf, err) < 0) {
        return -err->code;
    }
    int rc = checkout_list(CHECKOUT, (const char *const *)p->include.items, (size_t)p->include.n,
                           &c->checkout, err);
    if (rc == 0) {
        tell_left_out(&c->checkout);
    }
    if (rc == 0 && c->o.timings) {
        rc = read_timings(c->o.timings, &past, err);
    }
    rc = rc < 0 ? rc : ci_deal_make(&c->checkout, &p->test_files, p->shards, past, &c->deal, err);
    rc = rc < 0 ? rc : ci_stale_find(&c->checkout, CHECKOUT, &p->reports, &c->stale, err);
    if (rc == 0 && c->deal.n > 0) {
        (void)fprintf(stderr, "brood: %zu test files for %u shards", c->deal.n, c->deal.shards);
        (void)fprintf(stderr, past ? ", %zu with a time of %s\n" : "\n", c->deal.timed,
                      c->o.timings);
    }
    return rc;
}

static int upload(struct ci *c, const struct checkout *files, struct ci_upload *ret_upload,
                  struct err *err)
{
    int rc = ci_pack_upload(files, CHECKOUT, c->store, ret_upload, err);
    rc = rc < 0 ? rc
                : store_upload_put(&c->pg, c->cli->config.tenant_default, ret_upload->id.hex,
                                   ret_upload->size_bytes, UPLOAD_TTL_S, err);
    if (rc == 0) {
        (void)fprintf(stderr, "brood: %zu file%s%s, packed %lld KiB, %s\n", files->n,
                      files->n == 1 ? "" : "s", files->used_git ? " (git)" : "",
                      (long long)((ret_upload->size_bytes + 1023) / 1024),
                      ret_upload->existed ? "stored already" : "uploaded");
    }
    return rc;
}

static int connect_all(struct ci *c, struct err *err)
{
    struct object_options options;
    int rc = cli_open_pg(c->cli, &c->pg, err);
    rc = rc < 0 ? rc : queue_open(&c->queue, c->cli->config.redis_url, err);
    rc = rc < 0 ? rc : object_options_from(&options, &c->cli->config, err);
    return rc < 0 ? rc : object_store_open(&c->store, &options, err);
}

static int submit_spec(struct ci *c, struct job_spec *spec, const struct template_info *t,
                       struct err *err)
{
    const char *tenant = c->cli->config.tenant_default;
    int rc = job_check_template(spec, t, err);
    rc = rc < 0 ? rc : store_job_check(&c->pg, tenant, spec, err);
    rc = rc < 0 ? rc : cli_seal(c->cli, spec, err);
    if (rc < 0) {
        return rc;
    }
    struct submit_item item = { .spec = spec };
    c->batch = id_new(); /* so that cancel and report have something to name */
    const struct submit_to to = {
        .tenant = tenant, .batch = c->batch.text, .name = "ci", .all_or_nothing = true
    };
    rc = submit_jobs(&c->pg, &to, &item, 1, err);
    if (rc < 0) {
        return rc;
    }
    submit_wake(&c->queue, tenant, spec->priority, 1);
    c->job = item.ret_id;
    return 0;
}

static int submit(struct ci *c, struct err *err)
{
    cleanup_job_spec struct job_spec *spec = NULL;
    struct ci_upload up;
    struct template_info t;
    int rc =
        store_base_get(&c->pg, c->cli->config.tenant_default, c->o.plan.template_name, &t, err);
    rc = rc < 0 ? rc : upload(c, &c->checkout, &up, err);
    rc = rc < 0 ? rc : ci_job_make(&c->o.plan, up.id.hex, &c->deal, &spec, err);
    return rc < 0 ? rc : submit_spec(c, spec, &t, err);
}

enum kept { KEPT_NOT, KEPT, KEPT_FAILED };

/* Run set-up and keep its state. KEPT_NOT: the warning says why, and set-up is run with the tests.
 * KEPT_FAILED: that is the end, c->job is this job. */
static int set_up(struct ci *c, const struct ci_keep *k, const struct template_info *t,
                  struct err *err)
{
    struct result_row row;
    cleanup_job_spec struct job_spec *spec = NULL;
    struct ci_upload up;
    int rc = upload(c, &k->files, &up, err);
    rc = rc < 0 ? rc : ci_keep_job(&c->o.plan, k, up.id.hex, &spec, err);
    rc = rc < 0 ? rc : submit_spec(c, spec, t, err);
    if (rc < 0) {
        return rc;
    }
    (void)fprintf(stderr, "brood: set-up with %zu key file%s, job %s\n", k->files.n,
                  k->files.n == 1 ? "" : "s", c->job.text);
    struct ci_wait w = {
        .pg = &c->pg, .queue = &c->queue, .job = c->job.text, .broken = &interrupted
    };
    if ((rc = ci_wait(&w, &row, err)) < 0) {
        return rc;
    }
    const struct job_result *r = row.has_result ? &row.result : NULL;
    rc = !r || r->verdict != VERDICT_ACCEPTED ? KEPT_FAILED : r->n_warnings > 0 ? KEPT_NOT : KEPT;
    if (rc == KEPT_NOT) {
        (void)fprintf(stderr, "brood: %s; set-up runs with the tests\n", r->warnings[0]);
    }
    result_row_done(&row);
    return rc;
}

/* Start from the state that an earlier run has kept, or keep one. Returns enum kept. */
static int keep(struct ci *c, struct err *err)
{
    const char *tenant = c->cli->config.tenant_default;
    struct template_info t;
    struct snapshot_row row;
    struct ci_keep k;
    if (!ci_keep_wanted(&c->o.plan)) {
        return KEPT_NOT;
    }
    int rc = store_base_get(&c->pg, tenant, c->o.plan.template_name, &t, err);
    rc = rc < 0 ? rc : ci_keep_name(&c->o.plan, &t, &c->checkout, CHECKOUT, &k, err);
    if (rc < 0) {
        return rc;
    }
    rc = store_snapshot_get(&c->pg, tenant, k.name, &row, err);
    if (rc == 0 && (row.expires_ms < 0 || row.expires_ms > wall_ms())) {
        char since[MONEY_TEXT_MAX];
        duration_format(wall_ms() - row.created_ms, since);
        (void)fprintf(stderr,
                      "brood: set-up is skipped: started from its state of %s ago (%s; template, "
                      "setup and key_files are the same)\n",
                      since, k.name);
        memcpy(c->kept, k.name, sizeof c->kept);
        rc = KEPT;
    } else if (rc == 0 || rc == -ERR_NOT_FOUND) {
        rc = set_up(c, &k, &t, err);
    }
    if (rc == KEPT) {
        ci_keep_use(&k, &c->o.plan);
    }
    ci_keep_done(&k);
    return rc;
}

/* A branch that has ended: its verdict, and its output. */
static int take_branch(void *ctx, const struct branch_result *b, struct err *err)
{
    struct ci *c = ctx;
    int shard = ci_shard_of_node(&c->deal, b->node);
    if (shard < 0 || !b->leaf) {
        return 0;
    }
    ci_collect_verdict(&c->collect, (unsigned)shard, &b->result);
    if (b->result.run.present) {
        ci_out_rest(&c->outs[shard], &b->result.run);
    }
    return cli_out_ok() ? 0 : err_set(err, ERR_CLOSED, "the reader of the output has gone");
}

static int collect(struct ci *c, const struct result_row *row, struct err *err)
{
    ci_collect_init(&c->collect, &c->o.plan, &c->deal, &c->stale);
    c->collect.broken = &interrupted;
    int rc = 0;
    const struct job_result *r = row->has_result ? &row->result : NULL;
    if (r && r->verdict == VERDICT_COMPILE_ERROR && r->setup.present) {
        struct ci_out setup;
        ci_out_init(&setup, "", c->cli->json);
        ci_out_rest(&setup, &r->setup);
        ci_out_done(&setup);
    } else if (r && c->deal.shards == 1) {
        ci_out_rest(&c->outs[0], &r->run);
    }
    if (r && c->deal.shards == 1) {
        ci_collect_verdict(&c->collect, 0, r);
    } else if (r) {
        rc = pages_branches(&c->pg, c->job.text, true, take_branch, c, err);
    }
    rc = rc < 0 ? rc : ci_collect_fetch(&c->collect, &c->pg, c->store, c->job.text, err);
    if (rc == 0) {
        ci_collect_finish(&c->collect);
    }
    return rc;
}

/* The table is shown also when a report file cannot be written. */
static int finish(struct ci *c, const struct result_row *row, struct err *err)
{
    int rc = collect(c, row, err);
    if (rc < 0) {
        return rc;
    }
    int written = ci_summary_write(&c->collect, c->o.junit, c->o.ctrf, err);
    rc = ci_collect_exit(&c->collect, row->has_result ? &row->result : NULL);
    if (c->cli->json) {
        json_t *o = ci_summary_json(&c->collect, row, rc);
        (void)json_dumpf(o, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(o);
    } else {
        ci_summary_print(stdout, &c->collect, row, rc);
    }
    (void)fflush(stdout);
    return written < 0 ? written : rc;
}

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = true;
}

/* ^C: nobody waits for the job any more. A second one ends us at once. */
static void watch_interrupts(void)
{
    struct sigaction once = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    (void)sigaction(SIGINT, &once, NULL);
    (void)sigaction(SIGTERM, &once, NULL);
}

static int cancel(struct ci *c)
{
    char *argv[] = { (char *)"cancel", c->batch.text, NULL };
    bool done = cmd_cancel(c->cli, 2, argv) == CLI_OK;
    (void)fprintf(stderr,
                  done ? "brood: interrupted; batch %s is cancelled\n"
                       : "brood: interrupted, but the job goes on; to end it: brood cancel %s\n",
                  c->batch.text);
    return CI_INTERRUPTED;
}

/* A state that no host can load any more (another kernel, another QEMU) must not stand in the way
 * of every run until it expires. Was it something else, then this costs one set-up. */
static void drop_kept(struct ci *c)
{
    struct err err;
    if (store_snapshot_remove(&c->pg, c->cli->config.tenant_default, c->kept, false, NULL, 0,
                              &err) >= 0) {
        (void)fprintf(stderr, "brood: the state %s is dropped; the next run sets up anew\n",
                      c->kept);
    }
}

static void make_outs(struct ci *c)
{
    c->outs = calloc(c->deal.shards, sizeof *c->outs);
    c->labels = calloc(c->deal.shards, sizeof *c->labels);
    if (!c->outs || !c->labels) {
        abort();
    }
    for (unsigned i = 0; i < c->deal.shards; i++) {
        if (c->deal.shards > 1) {
            ci_shard_label(i, c->deal.shards, c->labels[i]);
        }
        ci_out_init(&c->outs[i], c->labels[i], c->cli->json);
    }
}

static int run(struct ci *c)
{
    struct err err;
    struct result_row row;
    if (read_plan(c, &err) < 0 || look(c, &err) < 0 || connect_all(c, &err) < 0) {
        return fail(c, &err);
    }
    int kept = keep(c, &err);
    if (kept == -ERR_STALE) {
        return cancel(c);
    }
    if (kept < 0 || (kept != KEPT_FAILED && submit(c, &err) < 0)) {
        return fail(c, &err);
    }
    (void)fprintf(stderr, "brood: job %s, %u shard%s, batch %s\n", c->job.text, c->deal.shards,
                  c->deal.shards == 1 ? "" : "s", c->batch.text);
    make_outs(c);
    struct ci_wait w = { .pg = &c->pg,
                         .queue = &c->queue,
                         .job = c->job.text,
                         .deal = &c->deal,
                         .outs = c->outs,
                         .broken = &interrupted };
    int rc = ci_wait(&w, &row, &err);
    if (rc == 0 && c->kept[0] && row.has_result && row.result.verdict == VERDICT_INFRA_ERROR) {
        drop_kept(c);
    }
    if (rc == 0) {
        rc = finish(c, &row, &err);
        result_row_done(&row);
    }
    if (rc == -ERR_STALE) {
        return cancel(c);
    }
    if (rc < 0 && rc != -ERR_CLOSED) {
        (void)cli_fail(c->cli, &err);
        (void)fprintf(stderr, "  the job's result is or will be in Postgres: brood report %s\n",
                      c->job.text);
    }
    return rc < 0 ? CI_FAILED : rc;
}

int cmd_ci(struct cli *cli, int argc, char **argv)
{
    struct ci c = { .cli = cli };
    watch_interrupts();
    int rc = ci_options_parse(cli, argc, argv, &c.o);
    rc = rc != 0 ? (rc == CLI_USAGE ? CI_USAGE : CI_FAILED) : run(&c);
    ci_done(&c);
    return rc;
}
