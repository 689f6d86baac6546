/* brood usage: who used what and what it cost; corrections, closing a month, the check. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/money.h"
#include "cli/usage_args.h"
#include "cli/usage_report.h"
#include "common/base/cleanup.h"
#include "common/store/ledger.h"

enum {
    OPT_BY = 0x2001,
    OPT_LABEL,
    OPT_TENANT,
    OPT_FROM,
    OPT_TO,
    OPT_MONTH,
    OPT_FORMAT,
    OPT_TOP,
    OPT_OVERHEAD,
    OPT_CHECK,
    OPT_AMOUNT,
    OPT_REASON
};
enum action { ACTION_REPORT, ACTION_OVERHEAD, ACTION_CHECK, ACTION_ADJUST, ACTION_CLOSE };

struct opts {
    struct cli_opts base;
    struct usage_query q;
    enum action action;
    enum usage_format format;
    bool by_given;
    const char *arg, *reason; /* LINE of adjust, MONTH of close */
    int64_t amount;
};

static const char *const format_words[] = { "table", "csv", "json", "focus" };

static void fail(struct argp_state *state, int rc, const struct err *err)
{
    if (rc < 0) {
        argp_error(state, "%s", err->text);
    }
}

static void set_by(struct opts *o, const char *word, struct argp_state *state)
{
    int g = usage_group_parse(word);
    if (g < 0) {
        argp_error(state,
                   "--by %s: must be day, hour, month, tenant, template, batch, job or label",
                   word);
        return;
    }
    o->q.by = (enum usage_group)g;
    o->by_given = true;
}

static void set_format(struct opts *o, const char *word, struct argp_state *state)
{
    for (int i = 0; i < (int)(sizeof format_words / sizeof format_words[0]); i++) {
        if (strcmp(format_words[i], word) == 0) {
            o->format = (enum usage_format)i;
            return;
        }
    }
    argp_error(state, "--format %s: must be table, csv, json or focus", word);
}

static void set_top(struct opts *o, const char *word, struct argp_state *state)
{
    char *end;
    long n = strtol(word, &end, 10);
    if (*end || n < 1 || n > 1000000) {
        argp_error(state, "--top %s: a number from 1 to 1000000", word);
    }
    o->q.top = (int)n;
}

static void take_word(struct opts *o, const char *arg, struct argp_state *state)
{
    if (o->action == ACTION_REPORT && strcmp(arg, "adjust") == 0) {
        o->action = ACTION_ADJUST;
    } else if (o->action == ACTION_REPORT && strcmp(arg, "close") == 0) {
        o->action = ACTION_CLOSE;
    } else if ((o->action == ACTION_ADJUST || o->action == ACTION_CLOSE) && !o->arg) {
        o->arg = arg;
    } else {
        argp_error(state, "%s: not expected here (adjust LINE, close MONTH, or only options)", arg);
    }
}

static void check_end(const struct opts *o, struct argp_state *state)
{
    if (o->q.by == USAGE_BY_LABEL && !o->q.label) {
        argp_error(state, "--by label needs --label KEY");
    }
    if (o->action == ACTION_ADJUST && (!o->arg || !o->reason || o->amount == 0)) {
        argp_error(state, "adjust LINE --amount DOLLARS --reason TEXT");
    }
    if (o->action == ACTION_CLOSE && !o->arg) {
        argp_error(state, "close which month? (YYYY-MM)");
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    struct err err;
    switch (key) {
    case OPT_BY:
        set_by(o, arg, state);
        return 0;
    case OPT_LABEL:
        o->q.label = arg;
        o->q.by = o->by_given ? o->q.by : USAGE_BY_LABEL;
        return 0;
    case OPT_TENANT:
        o->q.tenant = arg;
        return 0;
    case OPT_FROM:
        fail(state, moment_parse(arg, &o->q.from_ms, &err), &err);
        return 0;
    case OPT_TO:
        fail(state, moment_parse(arg, &o->q.to_ms, &err), &err);
        return 0;
    case OPT_MONTH:
        fail(state, month_parse(arg, &o->q.period, &err), &err);
        return 0;
    case OPT_FORMAT:
        set_format(o, arg, state);
        return 0;
    case OPT_TOP:
        set_top(o, arg, state);
        return 0;
    case OPT_OVERHEAD:
        o->action = ACTION_OVERHEAD;
        return 0;
    case OPT_CHECK:
        o->action = ACTION_CHECK;
        return 0;
    case OPT_AMOUNT:
        fail(state, money_parse(arg, &o->amount, &err), &err);
        return 0;
    case OPT_REASON:
        o->reason = arg;
        return 0;
    case ARGP_KEY_ARG:
        take_word(o, arg, state);
        return 0;
    case ARGP_KEY_END:
        check_end(o, state);
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "by",
      .key = OPT_BY,
      .arg = "GROUP",
      .doc = "day (default), hour, month, tenant, template, batch, job or label" },
    { .name = "label", .key = OPT_LABEL, .arg = "KEY", .doc = "group by the values of this label" },
    { .name = "tenant", .key = OPT_TENANT, .arg = "NAME", .doc = "only this tenant's" },
    { .name = "from",
      .key = OPT_FROM,
      .arg = "TIME",
      .doc = "only what began at or after this (UTC)" },
    { .name = "to", .key = OPT_TO, .arg = "TIME", .doc = "only what began before this (UTC)" },
    { .name = "month", .key = OPT_MONTH, .arg = "YYYY-MM", .doc = "only what is billed in it" },
    { .name = "format", .key = OPT_FORMAT, .arg = "F", .doc = "table, csv, json or focus" },
    { .name = "top", .key = OPT_TOP, .arg = "N", .doc = "only the N dearest" },
    { .name = "overhead",
      .key = OPT_OVERHEAD,
      .doc = "what was not billed: attempts that we broke, sandboxes of judge errors" },
    { .name = "check",
      .key = OPT_CHECK,
      .doc = "compare the ledger with its chain, jobs, storage, closed months and these reports" },
    { .name = "amount",
      .key = OPT_AMOUNT,
      .arg = "DOLLARS",
      .doc = "adjust: what is given back, such as -0.0025" },
    { .name = "reason", .key = OPT_REASON, .arg = "TEXT", .doc = "adjust: why" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "\nadjust LINE\nclose YYYY-MM",
    .doc = "Who used what, and what it cost. Measured is the sandboxes' time; charged is that "
           "after the rate card's rounding.\v"
           "Exit status 1 when --check finds a disagreement.\n\n"
           "Examples:\n"
           "  brood usage\n"
           "  brood usage --by tenant --month 2026-11 --top 10\n"
           "  brood usage --label task_id --format csv\n"
           "  brood usage --format focus --month 2026-11 > charges.csv\n"
           "  brood usage --check\n"
           "  brood usage adjust LINE --amount -0.0025 --reason 'our fault'\n"
           "  brood usage close 2026-11\n",
    .children = cli_globals,
};

static int adjust(struct cli *cli, struct pg *pg, const struct opts *o)
{
    struct id id;
    struct err err;
    int64_t amount = o->amount;
    if (store_adjust(pg, o->arg, amount, o->reason, &id, &err) < 0) {
        return cli_fail(cli, &err);
    }
    char text[MONEY_TEXT_MAX];
    money_format(amount, text);
    if (cli->json) {
        (void)printf("{\"line\":\"%s\",\"corrects\":\"%s\",\"cost_nanousd\":%lld}\n", id.text,
                     o->arg, (long long)amount);
    } else {
        (void)printf("%s corrects %s by %s\n", id.text, o->arg, text);
    }
    return CLI_OK;
}

static int close_month(struct cli *cli, struct pg *pg, const struct opts *o)
{
    struct closed_month m;
    struct err err;
    int month = 0, rc = month_parse(o->arg, &month, &err);
    if (rc < 0) {
        return cli_fail_text(CLI_USAGE, "%s", err.text);
    }
    if (store_close_month(pg, month, &m, &err) < 0) {
        return cli_fail(cli, &err);
    }
    char text[MONEY_TEXT_MAX];
    money_format(m.cost_nanousd, text);
    if (cli->json) {
        (void)printf("{\"month\":\"%s\",\"tenants\":%d,\"lines\":%lld,\"cost_nanousd\":%lld,"
                     "\"digest\":\"%s\"}\n",
                     o->arg, m.tenants, (long long)m.lines, (long long)m.cost_nanousd, m.digest);
    } else {
        (void)printf("%s is closed: %lld lines of %d tenant%s, %s\ndigest %s\n", o->arg,
                     (long long)m.lines, m.tenants, m.tenants == 1 ? "" : "s", text, m.digest);
    }
    return CLI_OK;
}

int cmd_usage(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli, .q.by = USAGE_BY_DAY };
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    o.format = cli->json ? FORMAT_JSON : o.format;
    cli->json = o.format == FORMAT_JSON;
    switch (o.action) {
    case ACTION_ADJUST:
        return adjust(cli, &pg, &o);
    case ACTION_CLOSE:
        return close_month(cli, &pg, &o);
    case ACTION_CHECK:
        return usage_check(cli, &pg);
    case ACTION_OVERHEAD:
        return usage_overhead(cli, &pg, &o.q, o.format);
    case ACTION_REPORT:
        break;
    }
    return o.format == FORMAT_FOCUS ? usage_focus(cli, &pg, &o.q)
                                    : usage_report(cli, &pg, &o.q, o.format);
}
