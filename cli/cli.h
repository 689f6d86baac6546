/* The `brood` command: what every subcommand shares.
 *
 * main.c reads the options before the command and picks a row of commands.def; each cmd_*.c is one
 * subcommand, `int cmd_x(struct cli *, argc, argv)`, that parses its own options with argp (the
 * global ones are accepted there too), loads the configuration through cli_parse() and returns an
 * exit code. What the heads have in common is in cli_parse_key() and cli_begin(). Results go to
 * stdout, everything else (progress, hints, errors) to stderr. */
#pragma once
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include "common/base/config.h"
#include "common/base/err.h"
#include "common/base/id.h"
#include "common/store/pg.h"
#include "common/store/queue.h"

/* Exit codes; docs/cli.md. `brood run` has its own (cmd_run.c). */
enum cli_exit {
    CLI_OK = 0,
    CLI_NOT_AS_WANTED = 1, /* a verdict, a check or a state is not what was asked for */
    CLI_USAGE = 2,         /* command line or input is wrong */
    CLI_UNREACHABLE = 3,   /* Redis, Postgres or vmpool is not there */
    CLI_OTHER = 4,         /* anything else that failed */
    CLI_COME_BACK = 5, /* a cap of the tenant's: nothing is wrong, it can be tried again later */
};

struct cli {
    struct config config; /* valid after cli_parse() */
    const char *home;     /* --home or NULL */
    const char *file;     /* --config or NULL */
    bool json;
};

struct command {
    const char *name;
    int (*run)(struct cli *cli, int argc, char **argv);
    const char *group, *help;
};

#define COMMAND(name, fn, group, help) int fn(struct cli *cli, int argc, char **argv);
#include "cli/commands.def"
#undef COMMAND

/* Parse argv with argp (children = cli_globals are added by the caller's argp), then load the
 * configuration. 0, or an exit code after the error was printed. Usage errors exit the process with
 * argp_err_exit_status. opts->cli must be the first member: the globals' parser gets the cli. */
MUST_CHECK int cli_parse(struct cli *cli, const struct argp *argp, int argc, char **argv,
                         void *opts);
/* The same, where everything from the first word on is an argument (brood run CMD
 * --its-own-option). */
MUST_CHECK int cli_parse_in_order(struct cli *cli, const struct argp *argp, int argc, char **argv,
                                  void *opts);

/* The one argument that a command takes: its usage errors. */
struct cli_argument {
    const char *one_only; /* a second one was given */
    const char *missing;  /* NULL: it may be absent */
};
extern const struct cli_argument cli_takes_batch; /* BATCH|latest */

/* First member of every command's options. */
struct cli_opts {
    struct cli *cli;
    const struct cli_argument *takes; /* NULL: takes no arguments */
    const char *arg;                  /* what was given, as `takes` wants it; else NULL */
};
/* For `.children` of each command's argp. */
extern const struct argp_child cli_globals[];
/* The parser of a command without options of its own, and what every other parser falls back to
 * for the keys that it does not know: hands the global options on, takes base.arg by base.takes. */
error_t cli_parse_key(int key, char *arg, struct argp_state *state);

/* The head of a command that needs Postgres: cli_parse(), then cli_open_pg(), then, when ret_batch
 * is not NULL, the batch that base.arg names. 0, or an exit code after the error was printed. The
 * caller closes *ret_pg in both cases (cleanup_pg, initialised to zero). */
MUST_CHECK int cli_begin(struct cli *cli, const struct argp *argp, int argc, char **argv,
                         struct cli_opts *opts, struct pg *ret_pg, struct id *ret_batch);

/* Print "brood: text" and a hint of what to do; returns the exit code for err. */
int cli_fail(const struct cli *cli, const struct err *err);
/* When the home's disk is full: say so on stderr, true. The servers' own words seldom do. */
bool cli_say_full_disk(const struct cli *cli);
/* As cli_fail for a text of our own. */
int cli_fail_text(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* " --home DIR" when it has to be said in a hint, else "". */
const char *cli_home_hint(const struct cli *cli);
/* false once stdout's reader has gone (EPIPE): stop quietly. main() then ends by SIGPIPE. */
bool cli_out_ok(void);
int cli_exit_code(const struct err *err);

/* Connect, with the schema's version checked: an older one is an error that names `brood migrate`.
 */
/* Seal the job's secrets with the home's key, for tenant.default; before every store_submit. */
struct job_spec;
MUST_CHECK int cli_seal(const struct cli *cli, struct job_spec *spec, struct err *err);
MUST_CHECK int cli_open_pg(const struct cli *cli, struct pg *ret_pg, struct err *err);
/* "latest" or a UUID -> *ret_id. */
MUST_CHECK int cli_batch_id(const struct cli *cli, struct pg *pg, const char *text,
                            struct id *ret_id, struct err *err);
/* The folder of this executable, without a slash at the end. */
const char *cli_self_dir(void);
/* The folder of template recipes: $BROOD_TEMPLATES, the source tree, or ../share/brood/templates.
 */
MUST_CHECK int cli_templates_dir(char ret_path[CONFIG_STR_MAX], struct err *err);

static inline void cleanup_pg_fn(struct pg *pg)
{
    pg_close(pg);
}
#define cleanup_pg __attribute__((cleanup(cleanup_pg_fn)))
static inline void cleanup_queue_fn(struct queue *q)
{
    queue_close(q);
}
#define cleanup_queue __attribute__((cleanup(cleanup_queue_fn)))
