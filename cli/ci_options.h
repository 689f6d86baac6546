/* What `brood ci` was asked for: the command line over brood.json.
 *
 * The command line is read into the same structure as the file, so that "the command line wins" is
 * one rule a field: a list, a command or a number that was given replaces the file's, variables and
 * limits are replaced one by one. */
#pragma once
#include "cli/brood_json.h"
#include "cli/cli.h"

#define CI_TEMPLATE_DEFAULT "python"
#define CI_SHARDS_DEFAULT 1u

struct ci_options {
    struct cli_opts base;
    struct brood_json plan;             /* of the command line, then of both; owned */
    const char *junit, *ctrf, *timings; /* paths; NULL: not wanted */
};

/* Parse argv (usage errors end the process with CLI_USAGE). 0, or an exit code after the error was
 * printed. ci_options_done in both cases; o is zeroed before. */
MUST_CHECK int ci_options_parse(struct cli *cli, int argc, char **argv, struct ci_options *o);
void ci_options_done(struct ci_options *o);

/* Fill what `plan` does not say from file, whose parts are moved out of it, then the defaults.
 * -ERR_USAGE: there is no test command. */
MUST_CHECK int ci_plan_merge(struct brood_json *plan, struct brood_json *file, struct err *err);
/* Append a copy of text. */
void string_list_add(struct string_list *l, const char *text);
