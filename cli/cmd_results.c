/* brood results: the batch as JSONL in submission order, streamed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/batch.h"
#include "cli/pages.h"
#include "cli/result_json.h"
#include "common/base/cleanup.h"

struct opts {
    struct cli_opts base;
    const char *out;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case 'o':
        o->out = arg;
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "out",
      .key = 'o',
      .arg = "FILE",
      .doc = "write there (complete or not at all) instead of standard output" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "BATCH|latest",
    .doc = "One JSON object a line for each job, in submission order; jobs that have not ended "
           "have verdict null.\v"
           "Output is text, or *_base64 where text cannot carry it; cut output has stdout (head), "
           "stdout_tail and "
           "stdout_bytes (the total). A job with branches has them in branches, in order. "
           "docs/cli.md describes every field.\n\n"
           "Examples:\n"
           "  brood results latest --out results.jsonl\n"
           "  brood results latest | jq -r 'select(.verdict != \"accepted\") | .name'\n"
           "  brood results latest | jq -r '.branches[]? | [.name, .verdict] | @tsv'\n",
    .children = cli_globals,
};

struct writer {
    const struct cli *cli;
    FILE *out;
    struct pg more; /* a second connection: the first is in the middle of the rows */
    int rows;
    bool first; /* of the list that is being written */
};

static int failed_write(struct err *err)
{
    return errno == EPIPE ? err_set(err, ERR_CLOSED, "the reader of the output has gone")
                          : err_sys(err, "write");
}

/* One more element of a list; takes v over. */
static int write_element(struct writer *w, json_t *v, struct err *err)
{
    bool ok = (w->first || fputc(',', w->out) != EOF) && json_dumpf(v, w->out, JSON_COMPACT) == 0;
    w->first = false;
    json_decref(v);
    return ok ? 0 : failed_write(err);
}

static int write_artifact(void *ctx, const struct artifact_row *row, struct err *err)
{
    return write_element(ctx, artifact_to_json(&row->artifact), err);
}

struct branch_writer {
    struct writer *w;
    const char *job_id;
};

/* The object without its closing brace, which the caller writes. */
static int write_open(struct writer *w, json_t *obj, struct err *err)
{
    cleanup_free char *text = json_dumps(obj, JSON_COMPACT);
    json_decref(obj);
    if (!text) {
        abort();
    }
    size_t n = strlen(text) - 1;
    return fwrite(text, 1, n, w->out) == n ? 0 : failed_write(err);
}

static int write_artifacts(struct writer *w, const char *job_id, int node, struct err *err)
{
    if (fputs(",\"artifacts\":[", w->out) == EOF) {
        return failed_write(err);
    }
    w->first = true;
    int rc = pages_artifacts(&w->more, job_id, node, write_artifact, w, err);
    return rc < 0 ? rc : fputc(']', w->out) == EOF ? failed_write(err) : 0;
}

static int write_branch(void *ctx, const struct branch_result *b, struct err *err)
{
    struct branch_writer *bw = ctx;
    struct writer *w = bw->w;
    if (b->node > 1 && fputc(',', w->out) == EOF) {
        return failed_write(err);
    }
    int rc = write_open(w, branch_to_json(b), err);
    if (rc == 0 && b->result.artifacts.listed > 0) {
        rc = write_artifacts(w, bw->job_id, b->node, err);
    }
    return rc < 0 ? rc : fputc('}', w->out) == EOF ? failed_write(err) : 0;
}

/* What a job has many of is written as it is read: a line may be longer than memory allows. */
static int write_lists(struct writer *w, const struct result_row *row, struct err *err)
{
    bool branches = row->has_result && row->result.tree.nodes > 1;
    bool artifacts = row->has_result && row->result.artifacts.listed > 0 && !branches;
    if (!branches && !artifacts) {
        return 0;
    }
    int rc = w->more.conn ? 0 : cli_open_pg(w->cli, &w->more, err);
    if (rc < 0 || artifacts) {
        return rc < 0 ? rc : write_artifacts(w, row->job_id, 0, err);
    }
    struct branch_writer bw = { .w = w, .job_id = row->job_id };
    if (fputs(",\"branches\":[", w->out) == EOF) {
        return failed_write(err);
    }
    rc = pages_branches(&w->more, row->job_id, true, write_branch, &bw, err);
    return rc < 0 ? rc : fputc(']', w->out) == EOF ? failed_write(err) : 0;
}

static int write_row(void *ctx, const struct result_row *row, struct err *err)
{
    struct writer *w = ctx;
    int rc = write_open(w, result_to_json(row), err);
    if (rc < 0 || (rc = write_lists(w, row, err)) < 0) {
        return rc;
    }
    w->rows++;
    return fputs("}\n", w->out) == EOF ? failed_write(err) : 0;
}

static int write_all(struct cli *cli, struct pg *pg, const char *batch, const struct opts *o,
                     struct err *err)
{
    char tmp[CONFIG_STR_MAX];
    cleanup_fclose FILE *file = NULL;
    if (o->out) {
        if (snprintf(tmp, sizeof tmp, "%s.tmp-%d", o->out, (int)getpid()) >= (int)sizeof tmp) {
            return err_set(err, ERR_TOO_LARGE, "--out: path too long");
        }
        file = fopen(tmp, "we");
        if (!file) {
            return err_sys(err, "--out %s", o->out);
        }
    }
    struct writer w = { .cli = cli, .out = file ? file : stdout };
    int rc = store_results(pg, batch, write_row, &w, err);
    pg_close(&w.more);
    if (rc == 0 && w.rows == 0) {
        rc = err_set(err, ERR_NOT_FOUND, "batch %s: no such batch, or it has no jobs", batch);
    }
    if (!file) {
        return rc;
    }
    FILE *closing = TAKE_PTR(file);
    if (fclose(closing) != 0 && rc >= 0) {
        rc = err_sys(err, "--out %s", o->out);
    }
    if (rc >= 0 && rename(tmp, o->out) < 0) {
        rc = err_sys(err, "--out %s", o->out);
    }
    if (rc < 0) {
        (void)unlink(tmp);
        return rc;
    }
    (void)fprintf(stderr, "%d results in %s\n", w.rows, o->out);
    return 0;
}

int cmd_results(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base = { .cli = cli, .takes = &cli_takes_batch } };
    struct err err;
    struct id batch;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, &batch);
    if (rc != 0) {
        return rc;
    }
    if ((rc = write_all(cli, &pg, batch.text, &o, &err)) < 0) {
        return rc == -ERR_CLOSED ? CLI_OTHER
                                 : cli_fail(cli, &err); /* main() ends quietly on EPIPE */
    }
    return CLI_OK;
}
