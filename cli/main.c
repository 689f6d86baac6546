/* brood: reads the options in front of the command, picks it from commands.def, and turns its
 * result into the exit status. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>

#include "cli/cli.h"
#include "common/base/log.h"

const char *argp_program_version = "brood " BROOD_VERSION;

static const struct command commands[] = {
#define COMMAND(n, fn, g, h) { .name = n, .run = fn, .group = g, .help = h },
#include "cli/commands.def"
#undef COMMAND
};
#define N_COMMANDS ((int)(sizeof commands / sizeof commands[0]))

struct opts {
    struct cli_opts base;
    const char *command;
    int command_at; /* index in argv of the command */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        o->command = arg;
        o->command_at = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_state_help(state, stderr, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
        exit(CLI_USAGE);
    default:
        return cli_parse_key(key, arg, state);
    }
}

static char *help_filter(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_PRE_DOC) {
        return (char *)(uintptr_t)text;
    }
    char *out = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&out, &len);
    if (!f) {
        return (char *)(uintptr_t)text;
    }
    (void)fputs(
        "Run code that nobody trusts, in bulk: every run in a microVM of its own.\n\nCommands:\n",
        f);
    for (int i = 0; i < N_COMMANDS; i++) {
        if (i > 0 && strcmp(commands[i].group, commands[i - 1].group) != 0) {
            (void)fputs("\n", f);
        }
        (void)fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
    }
    (void)fputs("\nOptions:", f);
    (void)fclose(f);
    return out;
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = "commands\v"
           "Examples:\n"
           "  brood doctor\n"
           "  brood up --detach\n"
           "  brood template build python\n"
           "  brood run -- python3 -c 'print(6 * 7)'\n"
           "  brood submit jobs.jsonl --wait\n"
           "  brood results latest --out results.jsonl\n"
           "  brood usage --by template\n"
           "  brood down\n\n"
           "Exit status: 0 done; 1 a verdict or check is not as wanted; 2 wrong usage or input; "
           "3 a service is not reachable; 4 anything else. `brood run` exits as the program did "
           "(brood run --help).\n",
    .children = cli_globals,
    .help_filter = help_filter,
};

static int run_command(struct cli *cli, const char *name, int argc, char **argv)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return commands[i].run(cli, argc, argv);
        }
    }
    return cli_fail_text(CLI_USAGE, "unknown command \"%s\" (brood --help lists them)", name);
}

int main(int argc, char **argv)
{
    /* A reader of our stdout that goes away is seen as EPIPE and ends us below; a Redis or Postgres
     * that goes away must not. */
    (void)signal(SIGPIPE, SIG_IGN);
    log_init("brood", LOG_WARN, 2);
    if (sodium_init() < 0) {
        return cli_fail_text(CLI_OTHER, "libsodium does not start");
    }
    argp_err_exit_status = CLI_USAGE;
    static struct cli cli;
    struct opts o = { .base.cli = &cli };
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o) != 0 || !o.command) {
        return CLI_USAGE;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "brood %s", o.command);
    int at = o.command_at;
    argv[at] = name; /* what argp shows as the program in the command's messages */
    int rc = run_command(&cli, o.command, argc - at, argv + at);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno == EPIPE || !cli_out_ok()) {
            (void)signal(SIGPIPE, SIG_DFL);
            (void)raise(SIGPIPE);
        }
        return cli_fail_text(CLI_OTHER, "stdout: %s", strerror(errno));
    }
    return rc;
}
