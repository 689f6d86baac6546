/* brood snapshot: the states that jobs kept: list, tree, show, rm. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/money.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/snapshots.h"

#define ROWS_MAX 100000 /* of one list or tree */

enum { OPT_CASCADE = 0x2001, OPT_TENANT };
enum action { ACTION_NONE, ACTION_LIST, ACTION_TREE, ACTION_SHOW, ACTION_RM };

struct opts {
    struct cli_opts base;
    enum action action;
    const char *name, *tenant;
    bool cascade;
};

static enum action action_of(const char *word)
{
    static const char *const words[] = { "", "list", "tree", "show", "rm" };
    for (int i = 1; i < (int)(sizeof words / sizeof words[0]); i++) {
        if (strcmp(words[i], word) == 0) {
            return (enum action)i;
        }
    }
    return ACTION_NONE;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    bool named = o->action == ACTION_SHOW || o->action == ACTION_RM;
    switch (key) {
    case OPT_CASCADE:
        o->cascade = true;
        return 0;
    case OPT_TENANT:
        o->tenant = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->action == ACTION_NONE && (o->action = action_of(arg)) != ACTION_NONE) {
            return 0;
        }
        if (!named || o->name) {
            argp_error(state,
                       named ? "one snapshot at a time" : "list, tree, show NAME or rm NAME?");
        }
        o->name = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->action == ACTION_NONE) {
            argp_error(state, "list, tree, show NAME or rm NAME?");
        } else if (named && !o->name) {
            argp_error(state, "which snapshot? (a name or an id of brood snapshot list)");
        } else if (o->cascade && o->action != ACTION_RM) {
            argp_error(state, "--cascade belongs to rm");
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "cascade",
      .key = OPT_CASCADE,
      .doc = "rm: also everything that was started from it" },
    { .name = "tenant",
      .key = OPT_TENANT,
      .arg = "NAME",
      .doc = "whose (default: tenant.default)" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list\ntree\nshow NAME\nrm NAME",
    .doc = "States that jobs have kept (\"keep\"); later jobs start there with \"template\": "
           "\"snapshot:NAME\".\v"
           "A snapshot that others were started from is not deleted without --cascade.\n\n"
           "Examples:\n"
           "  brood snapshot list\n"
           "  brood snapshot tree --json\n"
           "  brood snapshot rm deps --cascade\n",
    .children = cli_globals,
};

static const char *shown(const struct snapshot_row *s)
{
    return s->name[0] ? s->name : s->id.text;
}

static json_t *time_json(int64_t ms)
{
    char text[CLOCK_TEXT_MAX];
    if (ms < 0) {
        return json_null();
    }
    clock_format_ms(ms, text);
    return json_string(text);
}

static json_t *text_or_null(const char *s)
{
    return *s ? json_string(s) : json_null();
}

static json_t *snapshot_json(const struct snapshot_row *s)
{
    json_t *o = json_object(), *layers = json_array();
    for (int i = 0; i < s->n_layers; i++) {
        (void)json_array_append_new(layers, json_string(s->layers[i]));
    }
    (void)json_object_set_new(o, "id", json_string(s->id.text));
    (void)json_object_set_new(o, "name", text_or_null(s->name));
    (void)json_object_set_new(o, "parent", text_or_null(s->parent));
    (void)json_object_set_new(o, "children", json_integer(s->children));
    (void)json_object_set_new(o, "digest", json_string(s->digest));
    (void)json_object_set_new(o, "layers", layers);
    (void)json_object_set_new(o, "template", json_string(s->template_name));
    (void)json_object_set_new(o, "template_digest", json_string(s->template_digest));
    (void)json_object_set_new(o, "engine", json_string(s->engine));
    (void)json_object_set_new(o, "engine_version", json_string(s->engine_version));
    (void)json_object_set_new(o, "cpu_model", json_string(s->cpu_model));
    (void)json_object_set_new(o, "kernel_digest", json_string(s->kernel_digest));
    (void)json_object_set_new(o, "vcpus", json_integer(s->vcpus));
    (void)json_object_set_new(o, "memory_mib", json_integer(s->memory_mib));
    (void)json_object_set_new(o, "ram_bytes", json_integer(s->ram_bytes));
    (void)json_object_set_new(o, "layer_bytes", json_integer(s->layer_bytes));
    (void)json_object_set_new(o, "job", text_or_null(s->job_id));
    (void)json_object_set_new(o, "node", json_integer(s->node));
    (void)json_object_set_new(o, "pinned", json_boolean(s->pinned));
    (void)json_object_set_new(o, "ttl_s", s->pinned ? json_null() : json_integer(s->ttl_s));
    (void)json_object_set_new(o, "created_at", time_json(s->created_ms));
    (void)json_object_set_new(o, "used_at", time_json(s->used_ms));
    (void)json_object_set_new(o, "expires_at", time_json(s->expires_ms));
    return o;
}

static void print_json(json_t *v)
{
    (void)json_dumpf(v, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(v);
}

static void expiry_text(const struct snapshot_row *s, char out[MONEY_TEXT_MAX + 8])
{
    char left[MONEY_TEXT_MAX];
    int64_t ms = s->expires_ms - wall_ms();
    if (s->pinned) {
        (void)snprintf(out, MONEY_TEXT_MAX + 8, "pinned");
    } else if (ms <= 0) {
        (void)snprintf(out, MONEY_TEXT_MAX + 8, "expired");
    } else {
        duration_format(ms, left);
        (void)snprintf(out, MONEY_TEXT_MAX + 8, "in %s", left);
    }
}

/* Everything the tenant has, oldest first. Rows are the caller's. */
static int read_all(struct pg *pg, const char *tenant, struct snapshot_row **ret_rows,
                    struct err *err)
{
    struct snapshot_row *rows = NULL;
    int n = 0, got;
    do {
        struct snapshot_row *more = realloc(rows, sizeof *rows * (size_t)(n + SNAPSHOT_LIST_MAX));
        if (!more) {
            abort();
        }
        rows = more;
        got = store_snapshot_list(pg, tenant, n ? rows[n - 1].id.text : NULL, SNAPSHOT_LIST_MAX,
                                  rows + n, err);
        n += got > 0 ? got : 0;
    } while (got == SNAPSHOT_LIST_MAX && n < ROWS_MAX);
    if (got < 0) {
        free(rows);
        return got;
    }
    *ret_rows = rows;
    return n;
}

static void print_line(const struct snapshot_row *s, int indent)
{
    char expires[MONEY_TEXT_MAX + 8];
    expiry_text(s, expires);
    int width = 32 - indent;
    (void)printf("%*s%-*s  %-16s %10.1f %8d  %s\n", indent, "", width > 1 ? width : 1, shown(s),
                 s->template_name, (double)s->layer_bytes / (1 << 20), s->children, expires);
}

/* above[i]: the index of i's parent, -1: none in the list. Rows come oldest first, so a parent
 * stands before its children, and a child's line of forebears ends. */
static int *links(const struct snapshot_row *rows, int n)
{
    int *above = calloc((size_t)n + 1, sizeof *above);
    if (!above) {
        abort();
    }
    for (int i = 0; i < n; i++) {
        above[i] = -1;
        for (int k = 0; rows[i].parent[0] && k < i; k++) {
            if (strcmp(rows[k].id.text, rows[i].parent) == 0) {
                above[i] = k;
            }
        }
    }
    return above;
}

static int depth_of(const int *above, int i)
{
    int depth = 0;
    for (; above[i] >= 0; i = above[i]) {
        depth++;
    }
    return depth;
}

/* Indices in depth-first order. */
static int order_below(const int *above, int n, int parent, int *order, int used)
{
    for (int i = parent + 1; i < n; i++) {
        if (above[i] == parent) {
            order[used++] = i;
            used = order_below(above, n, i, order, used);
        }
    }
    return used;
}

static void print_tree(const struct snapshot_row *rows, int n)
{
    cleanup_free int *above = links(rows, n), *order = calloc((size_t)n, sizeof *order);
    if (!order) {
        abort();
    }
    (void)order_below(above, n, -1, order, 0);
    for (int i = 0; i < n; i++) {
        print_line(&rows[order[i]], 2 * depth_of(above, order[i]));
    }
}

/* Each object has its children in `below`. */
static json_t *tree_json(const struct snapshot_row *rows, int n)
{
    cleanup_free int *above = links(rows, n);
    cleanup_free json_t **lists = calloc((size_t)n + 1, sizeof *lists);
    if (!lists) {
        abort();
    }
    json_t *top = json_array();
    for (int i = 0; i < n; i++) {
        json_t *o = snapshot_json(&rows[i]);
        lists[i] = json_array();
        (void)json_object_set_new(o, "below", lists[i]);
        (void)json_array_append_new(above[i] >= 0 ? lists[above[i]] : top, o);
    }
    return top;
}

static int list(struct cli *cli, struct pg *pg, const struct opts *o, struct err *err)
{
    cleanup_free struct snapshot_row *rows = NULL;
    int n = read_all(pg, o->tenant, &rows, err);
    if (n < 0) {
        return n;
    }
    if (cli->json && o->action == ACTION_TREE) {
        print_json(tree_json(rows, n));
        return 0;
    }
    if (cli->json) {
        json_t *all = json_array();
        for (int i = 0; i < n; i++) {
            (void)json_array_append_new(all, snapshot_json(&rows[i]));
        }
        print_json(all);
        return 0;
    }
    if (n == 0) {
        (void)fprintf(stderr, "tenant %s has kept no snapshot yet (a job keeps one by \"keep\")\n",
                      o->tenant);
        return 0;
    }
    (void)printf("%-32s  %-16s %10s %8s  %s\n", "NAME", "TEMPLATE", "LAYER MiB", "CHILDREN",
                 "EXPIRES");
    if (o->action == ACTION_TREE) {
        print_tree(rows, n);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        print_line(&rows[i], 0);
    }
    return 0;
}

static int show(struct cli *cli, struct pg *pg, const struct opts *o, struct err *err)
{
    struct snapshot_row s;
    int rc = store_snapshot_get(pg, o->tenant, o->name, &s, err);
    if (rc < 0) {
        return rc;
    }
    if (cli->json) {
        print_json(snapshot_json(&s));
        return 0;
    }
    char expires[MONEY_TEXT_MAX + 8], created[CLOCK_TEXT_MAX], used[CLOCK_TEXT_MAX];
    expiry_text(&s, expires);
    clock_format_ms(s.created_ms, created);
    clock_format_ms(s.used_ms, used);
    (void)printf("name      %s\nid        %s\nparent    %s\nchildren  %d\ntemplate  %s@%s\n",
                 s.name[0] ? s.name : "(another has it now)", s.id.text,
                 s.parent[0] ? s.parent : "-", s.children, s.template_name, s.template_digest);
    (void)printf("engine    %s %s, CPU %s, kernel %s\nmachine   %d vCPU, %d MiB\n", s.engine,
                 s.engine_version, s.cpu_model, s.kernel_digest, s.vcpus, s.memory_mib);
    (void)printf("digest    %s\nlayers    %d, %.1f MiB its own\njob       %s, node %d\n", s.digest,
                 s.n_layers, (double)s.layer_bytes / (1 << 20), s.job_id[0] ? s.job_id : "-",
                 s.node);
    (void)printf("created   %s\nused      %s\nexpires   %s\n", created, used, expires);
    return 0;
}

static int rm(struct cli *cli, struct pg *pg, const struct opts *o, struct err *err)
{
    cleanup_free struct snapshot_row *gone = calloc(SNAPSHOT_LIST_MAX, sizeof *gone);
    if (!gone) {
        abort();
    }
    int n = store_snapshot_remove(pg, o->tenant, o->name, o->cascade, gone, SNAPSHOT_LIST_MAX, err);
    if (n == -ERR_CONFLICT) {
        size_t used = strlen(err->text);
        (void)snprintf(err->text + used, sizeof err->text - used, "; --cascade deletes them too");
    }
    if (n < 0) {
        return n;
    }
    json_t *names = json_array();
    for (int i = 0; i < n && i < SNAPSHOT_LIST_MAX; i++) {
        (void)json_array_append_new(names, json_string(shown(&gone[i])));
        if (!cli->json) {
            (void)printf("deleted %s\n", shown(&gone[i]));
        }
    }
    json_t *root = json_pack("{s:i, s:o}", "deleted", n, "snapshots", names);
    if (cli->json) {
        print_json(json_incref(root));
    }
    json_decref(root);
    return 0;
}

int cmd_snapshot(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base = { .cli = cli } };
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    o.tenant = o.tenant ? o.tenant : cli->config.tenant_default;
    rc = o.action == ACTION_SHOW ? show(cli, &pg, &o, &err)
         : o.action == ACTION_RM ? rm(cli, &pg, &o, &err)
                                 : list(cli, &pg, &o, &err);
    return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}
