/* brood results: the batch as JSONL in submission order, streamed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/batch.h"
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
           "stdout_bytes (the total). docs/cli.md describes every field.\n\n"
           "Examples:\n"
           "  brood results latest --out results.jsonl\n"
           "  brood results latest | jq -r 'select(.verdict != \"accepted\") | .name'\n",
    .children = cli_globals,
};

struct writer {
    FILE *out;
    int rows;
};

static int write_row(void *ctx, const struct result_row *row, struct err *err)
{
    struct writer *w = ctx;
    json_t *obj = result_to_json(row);
    int bad = json_dumpf(obj, w->out, JSON_COMPACT);
    json_decref(obj);
    if (fputc('\n', w->out) == EOF || bad) {
        return errno == EPIPE ? err_set(err, ERR_CLOSED, "the reader of the output has gone")
                              : err_sys(err, "write");
    }
    w->rows++;
    return 0;
}

static int write_all(struct pg *pg, const char *batch, const struct opts *o, struct err *err)
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
    struct writer w = { .out = file ? file : stdout };
    int rc = store_results(pg, batch, write_row, &w, err);
    if (rc == 0 && w.rows == 0) {
        rc = err_set(err, ERR_NOT_FOUND, "batch %s: no such batch, or it has no jobs", batch);
    }
    if (!file) {
        return rc;
    }
    FILE *closing = TAKE_PTR(file);
    if (fclose(closing) != 0 && rc == 0) {
        rc = err_sys(err, "--out %s", o->out);
    }
    if (rc == 0 && rename(tmp, o->out) < 0) {
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
    if ((rc = write_all(&pg, batch.text, &o, &err)) < 0) {
        return rc == -ERR_CLOSED ? CLI_OTHER
                                 : cli_fail(cli, &err); /* main() ends quietly on EPIPE */
    }
    return CLI_OK;
}
