/* brood migrate: bring the schema up to date; safe to run twice and by two at once. */
#include <jansson.h>

#include "cli/cli.h"
#include "cli/ratecards.h"

static const struct argp argp = {
    .parser = cli_parse_key,
    .doc = "Apply the database migrations that are missing (brood up does it by itself).\v"
           "Examples:\n"
           "  brood migrate\n"
           "  BROOD_POSTGRES_URL='host=db user=brood dbname=brood' brood migrate\n",
    .children = cli_globals,
};

int cmd_migrate(struct cli *cli, int argc, char **argv)
{
    struct cli_opts o = { .cli = cli };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    if (pg_open(&pg, cli->config.postgres_url, &err) < 0) {
        return cli_fail(cli, &err);
    }
    int applied = pg_migrate(&pg, &err);
    int version = applied < 0 ? applied : pg_schema_version(&pg, &err);
    version =
        version < 0 || ratecards_first(&cli->config, &pg, &err) >= 0 ? version : -(int)err.code;
    if (version < 0) {
        return cli_fail(cli, &err);
    }
    if (cli->json) {
        (void)printf("{\"applied\":%d,\"version\":%d}\n", applied, version);
    } else {
        (void)printf("%d migration%s applied; the schema is at version %d\n", applied,
                     applied == 1 ? "" : "s", version);
    }
    return CLI_OK;
}
