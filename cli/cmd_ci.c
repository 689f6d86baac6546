/* brood ci: the tests of a checkout, in forks of one prepared machine. docs/ci.md.
 *
 * The steps, each in a file of its own: options (ci_options), what git sees (checkout), which shard
 * gets what (ci_deal), pack and store once (ci_pack), one job (ci_job), wait (ci_wait), reports
 * (ci_collect), what is said at the end (ci_summary). */
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ci_options.h"
#include "cli/ci_summary.h"
#include "cli/ci_wait.h"
#include "cli/pages.h"
#include "common/base/cleanup.h"
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
};

static void ci_done(struct ci *c)
{
    if (c->collect.report) {
        ci_collect_done(&c->collect);
    }
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
    if (rc == 0 && c->o.plan.key_files.n > 0) {
        (void)fprintf(stderr, "brood: key_files: this version keeps no state between runs; setup "
                              "runs every time\n");
    }
    return rc;
}

static int read_timings(const char *path, struct report **ret_past, struct err *err)
{
    cleanup_buf struct buf text;
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

static int upload(struct ci *c, struct ci_upload *ret_upload, struct err *err)
{
    struct object_options options;
    int rc = object_options_from(&options, &c->cli->config, err);
    rc = rc < 0 ? rc : object_store_open(&c->store, &options, err);
    rc = rc < 0 ? rc : ci_pack_upload(&c->checkout, CHECKOUT, c->store, ret_upload, err);
    rc = rc < 0 ? rc
                : store_upload_put(&c->pg, c->cli->config.tenant_default, ret_upload->id.hex,
                                   ret_upload->size_bytes, UPLOAD_TTL_S, err);
    if (rc == 0) {
        (void)fprintf(stderr, "brood: %zu file%s%s, packed %lld KiB, %s\n", c->checkout.n,
                      c->checkout.n == 1 ? "" : "s", c->checkout.used_git ? " (git)" : "",
                      (long long)((ret_upload->size_bytes + 1023) / 1024),
                      ret_upload->existed ? "stored already" : "uploaded");
    }
    return rc;
}

static int submit(struct ci *c, struct err *err)
{
    const char *tenant = c->cli->config.tenant_default;
    cleanup_job_spec struct job_spec *spec = NULL;
    struct ci_upload up;
    struct template_info t;
    int rc = cli_open_pg(c->cli, &c->pg, err);
    rc = rc < 0 ? rc : queue_open(&c->queue, c->cli->config.redis_url, err);
    rc = rc < 0 ? rc : store_base_get(&c->pg, tenant, c->o.plan.template_name, &t, err);
    rc = rc < 0 ? rc : upload(c, &up, err);
    rc = rc < 0 ? rc : ci_job_make(&c->o.plan, up.id.hex, &c->deal, &spec, err);
    rc = rc < 0 ? rc : job_check_template(spec, &t, err);
    rc = rc < 0 ? rc : store_job_check(&c->pg, tenant, spec, err);
    if (rc < 0) {
        return rc;
    }
    struct submit_item item = { .spec = spec };
    c->batch = id_new(); /* so that cancel and report have something to name */
    rc = store_submit(&c->pg, tenant, c->batch.text, "ci", 0, &item, 1, true, err);
    rc = rc < 0 ? rc : queue_wake(&c->queue, err);
    c->job = item.ret_id;
    return rc < 0 ? rc : 0;
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
    if (!c->cli->json && b->result.run.present) {
        ci_print_shard(c->collect.shards[shard].label, &b->result.run);
    }
    return cli_out_ok() ? 0 : err_set(err, ERR_CLOSED, "the reader of the output has gone");
}

static int collect(struct ci *c, const struct result_row *row, struct err *err)
{
    ci_collect_init(&c->collect, &c->o.plan, &c->deal, &c->stale);
    int rc = 0;
    if (row->has_result && c->deal.shards == 1) {
        ci_collect_verdict(&c->collect, 0, &row->result);
    } else if (row->has_result) {
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

static int run(struct ci *c)
{
    struct err err;
    struct result_row row;
    if (read_plan(c, &err) < 0 || look(c, &err) < 0 || submit(c, &err) < 0) {
        return fail(c, &err);
    }
    (void)fprintf(stderr, "brood: job %s, %u shard%s, batch %s\n", c->job.text, c->deal.shards,
                  c->deal.shards == 1 ? "" : "s", c->batch.text);
    struct ci_wait w = { .cli = c->cli,
                         .pg = &c->pg,
                         .queue = &c->queue,
                         .job = c->job.text,
                         .live = c->deal.shards == 1 };
    int rc = ci_wait(&w, &row, &err);
    if (rc == 0) {
        if (row.has_result) {
            ci_wait_rest(&w, &row.result);
        }
        rc = finish(c, &row, &err);
        result_row_done(&row);
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
    int rc = ci_options_parse(cli, argc, argv, &c.o);
    rc = rc != 0 ? (rc == CLI_USAGE ? CI_USAGE : CI_FAILED) : run(&c);
    ci_done(&c);
    return rc;
}
