/* brood artifacts: what a job's artifact patterns found, and what of it is stored. Listing needs
 * only the database; the bytes are in the object store under sha256, and are written out by
 * artifacts_out.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/artifacts_out.h"
#include "cli/cli.h"
#include "cli/pages.h"
#include "cli/safe_text.h"
#include "common/base/cleanup.h"

static const struct cli_argument takes_job = { "one job at a time",
                                               "which job? (an id, the key job of brood results)" };

enum { OPT_NODE = 0x2001, OPT_GET, OPT_TAR };

struct opts {
    struct cli_opts base;
    const char *node;      /* path or name path; NULL: all */
    const char *get, *tar; /* folder, file or "-"; both NULL: list */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_NODE:
        o->node = arg;
        return 0;
    case OPT_GET:
        o->get = arg;
        return 0;
    case OPT_TAR:
        o->tar = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->get && o->tar) {
            argp_error(state, "--get or --tar, not both");
        }
        if ((o->get || o->tar) && o->base.cli->json) {
            argp_error(state, "--json is for the list, not with --get or --tar");
        }
        return cli_parse_key(key, arg, state);
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "branch",
      .key = OPT_NODE,
      .arg = "NAME",
      .doc = "only of this branch: its name (db/read) or path (root/0/1); \"root\" is the job" },
    { .name = "get",
      .key = OPT_GET,
      .arg = "DIR",
      .doc = "write what is stored below DIR; without --branch, each branch's below its name" },
    { .name = "tar", .key = OPT_TAR, .arg = "FILE", .doc = "the same as a tar.zst; - is stdout" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "JOB",
    .doc = "What the artifact patterns of a job found: path, size, and whether it is stored; "
           "with --get or --tar, the files themselves.\v"
           "Names that are not UTF-8 or hold control characters are shown with \\xNN; --json has "
           "them as path_base64.\n\n"
           "With --get and --tar, status 1 when something that is listed could not be had: each "
           "is named on stderr, the rest is written.\n\n"
           "Examples:\n"
           "  brood artifacts 0190b3a4-...\n"
           "  brood artifacts 0190b3a4-... --get ./out\n"
           "  brood artifacts 0190b3a4-... --branch db/read --json\n",
    .children = cli_globals,
};

struct lister {
    const struct cli *cli;
    char **names; /* of node i, from 0; NULL where not read */
    int n_names;
    const char *wanted;
    int found, rows, stored;
    int64_t stored_bytes;
    struct artifacts_out *out; /* NULL: list */
};

static int take_name(void *ctx, const struct branch_result *b, struct err *err)
{
    struct lister *l = ctx;
    (void)err;
    if (b->node >= JOB_TREE_NODES_MAX) {
        return 0; /* no job of ours */
    }
    l->names[b->node] = strdup(b->name_path);
    l->n_names = b->node + 1;
    if (l->wanted && (strcmp(l->wanted, b->path) == 0 || strcmp(l->wanted, b->name_path) == 0)) {
        l->found = b->node;
    }
    return 0;
}

static const char *node_name(const struct lister *l, int node)
{
    return node > 0 && node < l->n_names && l->names[node] ? l->names[node] : "";
}

static void print_row(const struct lister *l, const struct artifact_row *row)
{
    const struct artifact *a = &row->artifact;
    char path[4 * MANIFEST_PATH_BYTES_MAX + 1], target[4 * MANIFEST_PATH_BYTES_MAX + 1];
    safe_text(path, sizeof path, a->path, a->path_len);
    safe_text(target, sizeof target, a->target ? a->target : "", a->target_len);
    if (l->n_names > 0) {
        (void)printf("%-24s ", row->node ? node_name(l, row->node) : "(job)");
    }
    (void)printf("%04o %12llu  %-12.12s  %s%s%s", a->mode & 0777, (unsigned long long)a->size,
                 a->sha256[0] ? a->sha256 : "-", path, a->target_len ? " -> " : "", target);
    if (!a->stored) {
        (void)printf("  (not stored: %s)", artifact_reason_word(a->reason));
    }
    (void)putchar('\n');
}

static int list_row(void *ctx, const struct artifact_row *row, struct err *err)
{
    struct lister *l = ctx;
    const struct artifact *a = &row->artifact;
    if (l->out) {
        return artifacts_out_add(l->out, l->wanted ? "" : node_name(l, row->node), a, err);
    }
    if (l->cli->json) {
        json_t *obj = artifact_to_json(a);
        (void)json_object_set_new(obj, "node", json_integer(row->node));
        (void)json_object_set_new(obj, "branch", json_string(node_name(l, row->node)));
        (void)(l->rows && putchar(','));
        (void)json_dumpf(obj, stdout, JSON_COMPACT);
        json_decref(obj);
    } else {
        print_row(l, row);
    }
    l->rows++;
    l->stored += a->stored;
    l->stored_bytes += a->stored && a->type == ARTIFACT_FILE ? (int64_t)a->size : 0;
    return cli_out_ok() ? 0 : err_set(err, ERR_CLOSED, "the reader of the output has gone");
}

static int list_all(struct lister *l, struct pg *pg, const char *job_id, const char *wanted,
                    struct err *err)
{
    l->wanted = wanted;
    l->found = wanted && strcmp(wanted, "root") != 0 ? -1 : 0;
    int rc = pages_branches(pg, job_id, false, take_name, l, err);
    if (rc < 0) {
        return rc;
    }
    if (l->found < 0) {
        return err_set(err, ERR_NOT_FOUND, "job %s has no branch \"%.200s\" (brood report %s)",
                       job_id, wanted, job_id);
    }
    if (l->cli->json) {
        (void)putchar('[');
    }
    rc = pages_artifacts(pg, job_id, wanted ? l->found : -1, list_row, l, err);
    if (rc >= 0 && l->cli->json) {
        (void)printf("]\n");
    }
    return rc;
}

/* Write out what was noted; an exit code. */
static int write_out(const struct cli *cli, const struct opts *o, struct artifacts_out *out)
{
    struct object_options wanted;
    struct object_store *objects = NULL;
    struct artifacts_out_sum sum = { 0 };
    struct err err;
    int rc = object_options_from(&wanted, &cli->config, &err);
    rc = rc < 0 ? rc : object_store_open(&objects, &wanted, &err);
    if (rc == 0) {
        rc = o->get                     ? artifacts_out_dir(out, objects, o->get, &sum, &err)
             : strcmp(o->tar, "-") == 0 ? artifacts_out_tar(out, objects, STDOUT_FILENO, &sum, &err)
                                        : artifacts_out_tar_file(out, objects, o->tar, &sum, &err);
    }
    object_store_free(objects);
    if (rc < 0) {
        return cli_fail(cli, &err);
    }
    (void)fprintf(stderr, "%d written, %lld bytes; %d missing\n", sum.written, (long long)sum.bytes,
                  sum.missing);
    return sum.missing ? CLI_NOT_AS_WANTED : CLI_OK;
}

static void print_sum(const struct lister *l, bool ended)
{
    (void)fprintf(stderr, "%d listed, %d stored, %lld bytes%s\n", l->rows, l->stored,
                  (long long)l->stored_bytes, ended ? "" : " (the job has not ended)");
}

static int list_or_write(struct cli *cli, const struct opts *o, struct pg *pg)
{
    struct err err;
    struct result_row job;
    if (store_job(pg, o->base.arg, &job, &err) < 0) {
        return cli_fail(cli, &err);
    }
    bool ended = job.has_result, writes = o->get || o->tar;
    result_row_done(&job);
    if (writes && !ended) {
        return cli_fail_text(CLI_NOT_AS_WANTED,
                             "job %s has not ended: its artifacts come with its result",
                             o->base.arg);
    }
    struct lister l = { .cli = cli, .names = calloc(JOB_TREE_NODES_MAX, sizeof *l.names) };
    if (!l.names) {
        abort();
    }
    l.out = writes ? artifacts_out_new() : NULL;
    int rc = list_all(&l, pg, o->base.arg, o->node, &err);
    int code = rc >= 0 ? CLI_OK : rc == -ERR_CLOSED ? CLI_OTHER : cli_fail(cli, &err);
    if (rc >= 0 && writes) {
        code = write_out(cli, o, l.out);
    } else if (rc >= 0 && !cli->json) {
        print_sum(&l, ended);
    }
    artifacts_out_free(l.out);
    for (int i = 0; i < l.n_names; i++) {
        free(l.names[i]);
    }
    free(l.names);
    return code;
}

int cmd_artifacts(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base = { .cli = cli, .takes = &takes_job } };
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    if (o.tar && strcmp(o.tar, "-") == 0 && isatty(STDOUT_FILENO)) {
        return cli_fail_text(CLI_USAGE, "--tar -: stdout is a terminal");
    }
    return list_or_write(cli, &o, &pg);
}
