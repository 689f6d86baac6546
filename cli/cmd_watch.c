/* brood watch: follow a batch until every job has ended. */
#include "cli/batch.h"

static const struct argp argp = {
    .parser = cli_parse_key,
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
    struct cli_opts o = { .cli = cli, .takes = &cli_takes_batch };
    struct id batch;
    cleanup_pg struct pg pg = { 0 };
    int rc = cli_begin(cli, &argp, argc, argv, &o, &pg, &batch);
    return rc != 0 ? rc : batch_follow(cli, &pg, batch.text);
}
