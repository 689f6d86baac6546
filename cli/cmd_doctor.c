/* brood doctor: what is here, what is missing, what to do. */
#include <string.h>
#include <jansson.h>

#include "cli/checks.h"
#include "cli/cli.h"

enum { OPT_PRINT_CONFIG = 0x2001 };

struct opts {
    struct cli_opts base;
    bool print_config;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_PRINT_CONFIG: /* hides the global --config FILE here: --config=FILE still names a file
                            */
        if (arg) {
            o->base.cli->file = arg;
        }
        o->print_config = true;
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "config",
      .key = OPT_PRINT_CONFIG,
      .arg = "FILE",
      .flags = OPTION_ARG_OPTIONAL,
      .doc = "print the configuration in force as an INI file, and nothing else" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Check whether this host is fit for brood. Exit status 1 when something required is "
           "missing.\v"
           "Examples:\n"
           "  brood doctor\n"
           "  brood doctor --json | jq '.checks[] | select(.ok | not)'\n"
           "  brood doctor --config > brood.ini\n",
    .children = cli_globals,
};

static void print_json(const struct check *rows, int n, bool have_template, int bad)
{
    static const char *const needs[] = { "up", "build", "none" };
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s, s:s, s:b}", "check",
                                                    rows[i].name, "ok", rows[i].ok, "result",
                                                    rows[i].result, "fix", rows[i].fix,
                                                    "needed_for", needs[rows[i].need], "blocks",
                                                    check_blocks(&rows[i], false, have_template)));
    }
    json_t *root = json_pack("{s:b, s:o}", "fit", bad == 0, "checks", list);
    (void)json_dumpf(root, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(root);
}

int cmd_doctor(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    if (o.print_config) {
        config_print(&cli->config, stdout);
        return CLI_OK;
    }
    static struct check rows[CHECKS_MAX];
    bool have_template;
    int n = checks_run(&cli->config, true, rows, &have_template), bad = 0;
    for (int i = 0; i < n; i++) {
        bad += check_blocks(&rows[i], false, have_template);
    }
    if (cli->json) {
        print_json(rows, n, have_template, bad);
    } else {
        for (int i = 0; i < n; i++) {
            const char *mark = rows[i].ok                                     ? "ok"
                               : check_blocks(&rows[i], false, have_template) ? "MISSING"
                                                                              : "note";
            (void)printf("%-23s %-8s %s\n", rows[i].name, mark, rows[i].result);
            if (rows[i].fix[0]) {
                (void)printf("%-23s %-8s -> %s\n", "", "", rows[i].fix);
            }
        }
        (void)printf("\n%s\n", bad ? "not fit yet: see the lines with MISSING"
                                   : "this host is fit for brood");
    }
    return bad ? CLI_NOT_AS_WANTED : CLI_OK;
}
