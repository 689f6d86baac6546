/* brood events: the log of job.finished, from any position on. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/base/clock.h"
#include "common/store/events.h"

#define OPT_FROM 'f'
#define OPT_FOLLOW 'F'
#define OPT_TENANT 't'
#define PAGE 500
#define POLL_MS 200
#define WAIT_MS 5000 /* for transactions that are older than what is read */

struct opts {
    struct cli_opts base;
    int64_t from;
    bool follow;
    const char *tenant;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    char *end;
    switch (key) {
    case OPT_FROM:
        o->from = strtoll(arg, &end, 10);
        if (*end || end == arg || o->from < 0) {
            argp_error(state, "--from %s: must be a position, 0 or more", arg);
        }
        return 0;
    case OPT_FOLLOW:
        o->follow = true;
        return 0;
    case OPT_TENANT:
        o->tenant = arg;
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "from",
      .key = OPT_FROM,
      .arg = "POSITION",
      .doc = "begin behind this position (default: 0, from the first)" },
    { .name = "follow", .key = OPT_FOLLOW, .doc = "go on as jobs end, until interrupted" },
    { .name = "tenant", .key = OPT_TENANT, .arg = "NAME", .doc = "only this tenant's" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "The ends of jobs, each once, in the order of their positions; they are kept as long as "
           "the results. Whoever keeps the last position misses nothing, whatever was restarted "
           "meanwhile.\v"
           "With --json one object a line, and at the end {\"next\": POSITION}, to be given to "
           "--from.\n\n"
           "Examples:\n"
           "  brood events --from 0 --json\n"
           "  brood events --follow --tenant acme\n",
    .children = cli_globals,
};

static void show(const struct cli *cli, const struct event_row *r)
{
    char at[CLOCK_TEXT_MAX];
    clock_format_ms(r->finished_ms, at);
    if (!cli->json) {
        (void)printf("%10" PRId64 "  %s  %s  %-10s %-18s %s\n", r->position, at, r->job_id,
                     r->state, r->verdict, r->tenant);
        return;
    }
    json_t *o = json_pack("{s:I, s:s, s:s, s:s*, s:s, s:s, s:s, s:s}", "position",
                          (json_int_t)r->position, "type", "job.finished", "job", r->job_id,
                          "batch", r->batch_id[0] ? r->batch_id : NULL, "tenant", r->tenant,
                          "state", r->state, "verdict", r->verdict, "at", at);
    (void)json_dumpf(o, stdout, JSON_COMPACT);
    (void)fputc('\n', stdout);
    json_decref(o);
}

int cmd_events(struct cli *cli, int argc, char **argv)
{
    static struct event_row rows[PAGE];
    struct opts o = { .base.cli = cli };
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o.base, &pg, NULL);
    if (rc != 0) {
        return rc;
    }
    int64_t position = o.from;
    for (int n = 1; cli_out_ok() && (n > 0 || o.follow);) {
        n = store_events(&pg, o.tenant, position, PAGE, WAIT_MS, rows, &position, &err);
        if (n < 0 && !(o.follow && (n == -ERR_UNAVAILABLE || n == -ERR_TIMEOUT))) {
            return cli_fail(cli, &err);
        }
        for (int i = 0; i < n; i++) {
            show(cli, &rows[i]);
        }
        (void)fflush(stdout);
        if (n <= 0 && o.follow) {
            sleep_ms(POLL_MS);
        }
    }
    if (cli->json) {
        (void)printf("{\"next\":%" PRId64 "}\n", position);
    }
    return CLI_OK;
}
