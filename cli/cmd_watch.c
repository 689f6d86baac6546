/* brood watch: follow a batch until every job has ended. */
#include "cli/batch.h"

struct opts {
    struct cli_opts base;
    const char *batch;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        CLI_ARGP_INIT(state, o);
        return 0;
    case ARGP_KEY_ARG:
        if (o->batch) {
            argp_error(state, "one batch at a time");
        }
        o->batch = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which batch? (an id as printed by brood submit, or latest)");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "BATCH|latest",
    .doc = "Follow a batch until every job has ended, then sum it up: a bar on a terminal, else at "
           "most one line a second.\v"
           "When jobs carry the label expected_verdict (alternatives divided by |), says how many "
           "are as expected and "
           "lists the others; exit status 1 when not all are.\n\n"
           "Examples:\n"
           "  brood watch latest\n"
           "  brood watch 0193f6a2-4c1e-7b57-9d3c-0d5be1f0c1aa --json\n",
    .children = cli_globals,
};

int cmd_watch(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    struct err err;
    struct id batch;
    cleanup_pg struct pg pg = { 0 };
    if (cli_open_pg(cli, &pg, &err) < 0 || cli_batch_id(cli, &pg, o.batch, &batch, &err) < 0) {
        return cli_fail(cli, &err);
    }
    return batch_follow(cli, &pg, batch.text);
}
