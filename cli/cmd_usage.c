/* brood usage: sums of the usage records. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/money.h"
#include "common/base/cleanup.h"
#include "common/store/jobs.h"

#define USAGE_ROWS_MAX 1000

enum { OPT_BY = 0x2001, OPT_LABEL, OPT_TENANT };

struct opts {
    struct cli_opts base;
    enum usage_group by;
    const char *label, *tenant;
};

static const char *const group_words[] = { "day", "label", "template", "tenant" };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_BY:
        for (int i = 0; i < 4; i++) {
            if (strcmp(arg, group_words[i]) == 0) {
                o->by = (enum usage_group)i;
                return 0;
            }
        }
        argp_error(state, "--by %s: must be day, label, template or tenant", arg);
        return 0;
    case OPT_LABEL:
        o->label = arg;
        o->by = USAGE_BY_LABEL;
        return 0;
    case OPT_TENANT:
        o->tenant = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->by == USAGE_BY_LABEL && !o->label) {
            argp_error(state, "--by label needs --label KEY");
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "by",
      .key = OPT_BY,
      .arg = "GROUP",
      .doc = "day (default), label, template or tenant" },
    { .name = "label", .key = OPT_LABEL, .arg = "KEY", .doc = "group by the values of this label" },
    { .name = "tenant", .key = OPT_TENANT, .arg = "NAME", .doc = "only this tenant's" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Who used what, and what it cost. Measured is the sandboxes' time; charged is that "
           "after the rate card's rounding.\v"
           "Examples:\n"
           "  brood usage\n"
           "  brood usage --by template --json\n"
           "  brood usage --label task_id\n",
    .children = cli_globals,
};

static json_t *row_json(const struct usage_sum *r)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "key", r->key, "jobs",
                     (json_int_t)r->jobs, "measured_ms", (json_int_t)r->measured_ms, "charged_ms",
                     (json_int_t)r->charged_ms, "vcpu_charged_ms", (json_int_t)r->vcpu_charged_ms,
                     "mib_charged_ms", (json_int_t)r->mib_charged_ms, "cost_nanousd",
                     (json_int_t)r->cost_nanousd);
}

static void print_row(const struct usage_sum *r, int width)
{
    char measured[MONEY_TEXT_MAX], charged[MONEY_TEXT_MAX], cost[MONEY_TEXT_MAX];
    duration_format(r->measured_ms, measured);
    duration_format(r->charged_ms, charged);
    money_format(r->cost_nanousd, cost);
    (void)printf("%-*s  %10lld  %14s  %14s  %16s\n", width, r->key, (long long)r->jobs, measured,
                 charged, cost);
}

static void print_rows(const struct cli *cli, const struct opts *o, const struct usage_sum *rows,
                       int n)
{
    struct usage_sum total = { .key = "total" };
    json_t *list = json_array();
    int width = 10;
    for (int i = 0; i < n; i++) {
        const struct usage_sum *r = &rows[i];
        total.jobs += r->jobs;
        total.measured_ms += r->measured_ms;
        total.charged_ms += r->charged_ms;
        total.vcpu_charged_ms += r->vcpu_charged_ms;
        total.mib_charged_ms += r->mib_charged_ms;
        total.cost_nanousd += r->cost_nanousd;
        width = (int)strlen(r->key) > width ? (int)strlen(r->key) : width;
        (void)json_array_append_new(list, row_json(r));
    }
    if (cli->json) {
        json_t *root = json_pack("{s:s, s:O, s:o}", "by", group_words[o->by], "rows", list, "total",
                                 row_json(&total));
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(root);
    } else {
        (void)printf("%-*s  %10s  %14s  %14s  %16s\n", width, group_words[o->by], "jobs",
                     "measured", "charged", "cost");
        for (int i = 0; i < n; i++) {
            print_row(&rows[i], width);
        }
        print_row(&total, width);
    }
    json_decref(list);
}

int cmd_usage(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli, .by = USAGE_BY_DAY };
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    cleanup_free struct usage_sum *rows = calloc(USAGE_ROWS_MAX, sizeof *rows);
    if (!rows) {
        abort();
    }
    int n = store_usage(&pg, o.tenant, o.by, o.label, rows, USAGE_ROWS_MAX, &err);
    if (n < 0) {
        return cli_fail(cli, &err);
    }
    print_rows(cli, &o, rows, n);
    if (n == USAGE_ROWS_MAX) {
        (void)fprintf(stderr, "brood: only the first %d rows are shown; the total is of these\n",
                      n);
    }
    return CLI_OK;
}
