/* brood tenant: weights and caps, and whether new work is taken. */
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/cli.h"
#include "common/base/cleanup.h"
#include "common/store/tenants.h"

#define PAGE 200

enum { OPT_WEIGHT = 0x2201, OPT_IN_FLIGHT, OPT_QUEUED, OPT_RATE, OPT_REASON };

struct opts {
    struct cli_opts base;
    const char *words[2]; /* what to do, with whom */
    int n_words;
    const char *reason;
    struct tenant_row set;
    bool sets;
};

static int64_t number(struct argp_state *state, const char *option, const char *text, int64_t min,
                      int64_t max)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    if (!*text || *end || v < min || v > max) {
        argp_error(state, "%s: must be a whole number from %lld to %lld", option, (long long)min,
                   (long long)max);
    }
    return v;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    o->sets = o->sets || (key >= OPT_WEIGHT && key <= OPT_RATE);
    switch (key) {
    case OPT_WEIGHT:
        o->set.weight = number(state, "--weight", arg, 1, TENANT_WEIGHT_MAX);
        return 0;
    case OPT_IN_FLIGHT:
        o->set.in_flight_max = number(state, "--in-flight-max", arg, 0, INT32_MAX);
        return 0;
    case OPT_QUEUED:
        o->set.queued_max = number(state, "--queued-max", arg, 0, INT64_MAX);
        return 0;
    case OPT_RATE:
        o->set.submit_per_minute_max = number(state, "--submit-per-minute-max", arg, 0, INT32_MAX);
        return 0;
    case OPT_REASON:
        o->reason = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->n_words == 2) {
            argp_error(state, "one tenant at a time");
        }
        o->words[o->n_words++] = arg;
        return 0;
    case ARGP_KEY_END: {
        bool list = o->n_words == 1 && strcmp(o->words[0], "list") == 0;
        if (!list && o->n_words < 2) {
            argp_error(state, "list, or: show, set, stop, start and a tenant");
        }
        return 0;
    }
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "weight",
      .key = OPT_WEIGHT,
      .arg = "N",
      .doc = "set: share of slot time against other tenants that have work, 1 to 1000" },
    { .name = "in-flight-max",
      .key = OPT_IN_FLIGHT,
      .arg = "N",
      .doc = "set: most jobs dispatched and not ended; 0: no cap" },
    { .name = "queued-max",
      .key = OPT_QUEUED,
      .arg = "N",
      .doc = "set: most jobs that wait; more are refused until there is room; 0: no cap" },
    { .name = "submit-per-minute-max",
      .key = OPT_RATE,
      .arg = "N",
      .doc = "set: most jobs submitted in a minute; 0: no cap" },
    { .name = "reason", .key = OPT_REASON, .arg = "TEXT", .doc = "stop: what submitters are told" },
    { 0 }
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "list | show TENANT | set TENANT | stop TENANT | start TENANT",
    .doc = "What a tenant gets and may. The tenant '*' has the values of those that have none of "
           "their own. A change is in force within a second.\v"
           "stop: no new work of the tenant is taken in or dispatched; what runs goes on (brood "
           "cancel for more).\n\n"
           "Examples:\n"
           "  brood tenant list\n"
           "  brood tenant set acme --weight 3 --queued-max 100000\n"
           "  brood tenant set '*' --in-flight-max 64\n"
           "  brood tenant stop acme --reason 'invoice 7 is open'\n",
    .children = cli_globals,
};

static json_t *as_json(const struct tenant_row *r)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:s?}", "tenant", r->name, "weight",
                     (json_int_t)r->weight, "in_flight_max", (json_int_t)r->in_flight_max,
                     "queued_max", (json_int_t)r->queued_max, "submit_per_minute_max",
                     (json_int_t)r->submit_per_minute_max, "stopped",
                     r->stopped[0] ? r->stopped : NULL);
}

static void cap_text(int64_t v, char out[24])
{
    (void)(v == 0 ? snprintf(out, 24, "-") : snprintf(out, 24, "%lld", (long long)v));
}

static void print_head(void)
{
    (void)printf("%-24s %6s %12s %12s %14s  %s\n", "tenant", "weight", "in flight", "queued",
                 "submit/minute", "stopped");
}

static void print_row(const struct tenant_row *r)
{
    char fly[24], queued[24], rate[24];
    cap_text(r->in_flight_max, fly);
    cap_text(r->queued_max, queued);
    cap_text(r->submit_per_minute_max, rate);
    (void)printf("%-24s %6lld %12s %12s %14s  %s\n", r->name, (long long)r->weight, fly, queued,
                 rate, r->stopped[0] ? r->stopped : "");
}

static int list(const struct cli *cli, struct pg *pg, struct err *err)
{
    static struct tenant_row rows[PAGE];
    char after[JOB_TENANT_MAX + 1] = "";
    json_t *all = json_array();
    int n = PAGE;
    if (!cli->json) {
        print_head();
    }
    while (n == PAGE && (n = store_tenant_list(pg, false, after, PAGE, rows, err)) > 0) {
        for (int i = 0; i < n; i++) {
            if (cli->json) {
                (void)json_array_append_new(all, as_json(&rows[i]));
            } else {
                print_row(&rows[i]);
            }
        }
        memcpy(after, rows[n - 1].name, sizeof after);
    }
    if (cli->json && n >= 0) {
        (void)json_dumpf(all, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(all);
    return n < 0 ? n : 0;
}

static int show(const struct cli *cli, struct pg *pg, const char *name, struct err *err)
{
    struct tenant_row row;
    int rc = store_tenant_get(pg, name, &row, err);
    if (rc < 0) {
        return rc;
    }
    if (cli->json) {
        json_t *o = as_json(&row);
        (void)json_dumpf(o, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(o);
    } else {
        print_head();
        print_row(&row);
    }
    return 0;
}

static int act(const struct cli *cli, struct opts *o, struct pg *pg, struct err *err)
{
    const char *what = o->words[0], *who = o->words[1];
    if (strcmp(what, "list") == 0) {
        return list(cli, pg, err);
    }
    if (strcmp(who, TENANT_ANY) != 0 && !job_tenant_ok(who)) {
        return err_set(err, ERR_USAGE, "%s: a tenant is [a-z0-9][a-z0-9_-]{0,63}, or '*'", who);
    }
    if (strcmp(what, "show") == 0) {
        return show(cli, pg, who, err);
    }
    int rc;
    if (strcmp(what, "set") == 0) {
        if (!o->sets) {
            return err_set(err, ERR_USAGE, "set what? (brood tenant --help)");
        }
        (void)snprintf(o->set.name, sizeof o->set.name, "%s", who);
        rc = store_tenant_set(pg, &o->set, err);
    } else if (strcmp(what, "stop") == 0) {
        rc = store_tenant_stop(pg, who, o->reason ? o->reason : "stopped by hand", -1, err);
    } else if (strcmp(what, "start") == 0) {
        rc = store_tenant_stop(pg, who, NULL, -1, err);
    } else {
        return err_set(err, ERR_USAGE, "%s: list, show, set, stop or start", what);
    }
    return rc < 0 ? rc : show(cli, pg, who, err);
}

int cmd_tenant(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base = { .cli = cli },
                      .set = { .weight = TENANT_UNSET,
                               .in_flight_max = TENANT_UNSET,
                               .queued_max = TENANT_UNSET,
                               .submit_per_minute_max = TENANT_UNSET } };
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    return act(cli, &o, &pg, &err) < 0 ? cli_fail(cli, &err) : CLI_OK;
}
