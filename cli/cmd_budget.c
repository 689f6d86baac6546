/* brood budget: what a tenant may spend: list, set, rm. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/money.h"
#include "cli/usage_args.h"
#include "common/base/cleanup.h"
#include "common/store/budgets.h"

#define ROWS_MAX 10000

enum { OPT_LIMIT = 0x2001, OPT_PERIOD, OPT_WARN, OPT_CANCEL, OPT_LONG };
enum action { ACTION_NONE, ACTION_LIST, ACTION_SET, ACTION_RM };

struct opts {
    struct cli_opts base;
    enum action action;
    const char *tenant;
    bool have_limit;
    struct budget b;
};

static void take_word(struct opts *o, const char *arg, struct argp_state *state)
{
    static const char *const words[] = { "", "list", "set", "rm" };
    if (o->action != ACTION_NONE) {
        if (o->action == ACTION_LIST || o->tenant) {
            argp_error(state, "%s: not expected here", arg);
        }
        o->tenant = arg;
        return;
    }
    for (int i = 1; i < 4; i++) {
        if (strcmp(words[i], arg) == 0) {
            o->action = (enum action)i;
            return;
        }
    }
    argp_error(state, "list, set TENANT or rm TENANT?");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    struct err err = { 0 };
    int rc = 0;
    switch (key) {
    case OPT_LIMIT:
        rc = money_parse(arg, &o->b.limit_nanousd, &err);
        o->have_limit = true;
        break;
    case OPT_PERIOD:
        rc = budget_period_parse(arg);
        if (rc < 0) {
            argp_error(state, "--period %s: must be day, month or total", arg);
        } else {
            o->b.period = (enum budget_period)rc;
            rc = 0;
        }
        break;
    case OPT_WARN: {
        char *end;
        long percent = strtol(arg, &end, 10);
        if (*end || percent < 1 || percent > 100) {
            argp_error(state, "--warn %s: percent, from 1 to 100", arg);
        }
        o->b.warn_percent = (int)percent;
        break;
    }
    case OPT_CANCEL:
        o->b.cancel_running = true;
        break;
    case OPT_LONG:
        rc = duration_parse(arg, &o->b.long_running_ms, &err);
        break;
    case ARGP_KEY_ARG:
        take_word(o, arg, state);
        break;
    case ARGP_KEY_END:
        if (o->action == ACTION_NONE || (o->action != ACTION_LIST && !o->tenant)) {
            argp_error(state, "list, set TENANT or rm TENANT?");
        } else if (o->action == ACTION_SET && !o->have_limit) {
            argp_error(state, "set TENANT --limit DOLLARS");
        }
        break;
    default:
        return cli_parse_key(key, arg, state);
    }
    if (rc < 0 && err.code) {
        argp_error(state, "%s", err.text);
    }
    return 0;
}

static const struct argp_option options[] = {
    { .name = "limit",
      .key = OPT_LIMIT,
      .arg = "DOLLARS",
      .doc = "at which no new work is started" },
    { .name = "period",
      .key = OPT_PERIOD,
      .arg = "P",
      .doc = "day, month (default) or total; UTC" },
    { .name = "warn", .key = OPT_WARN, .arg = "PERCENT", .doc = "share that warns (default 80)" },
    { .name = "cancel-running",
      .key = OPT_CANCEL,
      .doc = "at the limit also end what runs, billed to that moment" },
    { .name = "long-running",
      .key = OPT_LONG,
      .arg = "TIME",
      .doc = "tell of each attempt that runs longer" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list\nset TENANT\nrm TENANT",
    .doc = "What a tenant may spend. Warnings, stops and long runners are events (brood:events).\v"
           "Examples:\n"
           "  brood budget set acme --limit 250 --period month --warn 80\n"
           "  brood budget list --json\n",
    .children = cli_globals,
};

static int list(struct cli *cli, struct pg *pg, struct err *err)
{
    cleanup_free struct budget *rows = calloc(ROWS_MAX, sizeof *rows);
    if (!rows) {
        abort();
    }
    int n = store_budgets(pg, rows, ROWS_MAX, err);
    if (n < 0) {
        return n;
    }
    json_t *all = json_array();
    if (!cli->json) {
        (void)printf("%-16s  %-6s  %14s  %14s  %5s  %-8s\n", "tenant", "period", "limit", "spent",
                     "warn", "state");
    }
    for (int i = 0; i < n; i++) {
        const struct budget *b = &rows[i];
        char limit[MONEY_TEXT_MAX], spent[MONEY_TEXT_MAX];
        money_format(b->limit_nanousd, limit);
        money_format(b->spent_nanousd, spent);
        if (cli->json) {
            (void)json_array_append_new(
                all,
                json_pack("{s:s, s:s, s:I, s:I, s:i, s:b, s:I, s:s}", "tenant", b->tenant, "period",
                          budget_period_word(b->period), "limit_nanousd",
                          (json_int_t)b->limit_nanousd, "spent_nanousd",
                          (json_int_t)b->spent_nanousd, "warn_percent", b->warn_percent,
                          "cancel_running", b->cancel_running, "long_running_ms",
                          (json_int_t)b->long_running_ms, "state", budget_state_word(b->state)));
        } else {
            (void)printf("%-16s  %-6s  %14s  %14s  %4d%%  %-8s\n", b->tenant,
                         budget_period_word(b->period), limit, spent, b->warn_percent,
                         budget_state_word(b->state));
        }
    }
    if (cli->json) {
        (void)json_dumpf(all, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(all);
    return 0;
}

static int set(struct pg *pg, struct opts *o, struct err *err)
{
    size_t n = strlen(o->tenant);
    if (n > JOB_TENANT_MAX) {
        return err_set(err, ERR_INVALID, "tenant: at most %d bytes", JOB_TENANT_MAX);
    }
    memcpy(o->b.tenant, o->tenant, n + 1);
    return store_budget_put(pg, &o->b, err);
}

int cmd_budget(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli, .b = { .period = BUDGET_MONTH, .warn_percent = 80 } };
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    rc = o.action == ACTION_SET  ? set(&pg, &o, &err)
         : o.action == ACTION_RM ? store_budget_remove(&pg, o.tenant, &err)
                                 : list(cli, &pg, &err);
    return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}
