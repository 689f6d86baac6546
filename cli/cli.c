#include "cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/secret_key.h"
#include "common/model/secrets.h"
#include "common/base/cleanup.h"
#include "common/store/jobs.h"

#define DISK_FULL_MIB 16 /* Postgres writes its log ahead in pieces of that size */

enum { OPT_CONFIG = 0x1001, OPT_JSON };

static const struct argp_option global_options[] = {
    { .name = "home",
      .key = 'H',
      .arg = "DIR",
      .doc = "where brood keeps everything (default: $BROOD_HOME, /var/lib/brood, ~/.brood)",
      .group = 90 },
    { .name = "config",
      .key = OPT_CONFIG,
      .arg = "FILE",
      .doc = "an INI file read after HOME/brood.ini",
      .group = 90 },
    { .name = "json", .key = OPT_JSON, .doc = "machine-readable output", .group = 90 },
    { 0 },
};

static error_t parse_global(int key, char *arg, struct argp_state *state)
{
    struct cli *cli = state->input;
    switch (key) {
    case 'H':
        cli->home = arg;
        return 0;
    case OPT_CONFIG:
        cli->file = arg;
        return 0;
    case OPT_JSON:
        cli->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp global_argp = { .options = global_options, .parser = parse_global };
const struct argp_child cli_globals[] = { { .argp = &global_argp }, { 0 } };

const struct cli_argument cli_takes_batch = {
    .one_only = "one batch at a time",
    .missing = "which batch? (an id as printed by brood submit, or latest)",
};

error_t cli_parse_key(int key, char *arg, struct argp_state *state)
{
    struct cli_opts *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = o->cli;
        return 0;
    case ARGP_KEY_ARG:
        if (!o->takes) {
            argp_error(state, "takes no arguments");
        } else if (o->arg) {
            argp_error(state, "%s", o->takes->one_only);
        }
        o->arg = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        if (o->takes && o->takes->missing) {
            argp_error(state, "%s", o->takes->missing);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_and_load(struct cli *cli, const struct argp *argp, int argc, char **argv,
                          unsigned flags, void *opts)
{
    assert(cli && argp && argp->children == cli_globals);
    if (argp_parse(argp, argc, argv, flags, NULL, opts) != 0) {
        return argp_err_exit_status;
    }
    struct err err;
    if (cli->file && access(cli->file, R_OK) != 0) {
        (void)err_set(&err, ERR_INVALID, "--config %s: %s", cli->file, strerror(errno));
        return cli_fail(cli, &err);
    }
    int rc = config_load(&cli->config, cli->home, cli->file, &err);
    return rc < 0 ? cli_fail(cli, &err) : 0;
}

int cli_parse(struct cli *cli, const struct argp *argp, int argc, char **argv, void *opts)
{
    return parse_and_load(cli, argp, argc, argv, 0, opts);
}

int cli_parse_in_order(struct cli *cli, const struct argp *argp, int argc, char **argv, void *opts)
{
    return parse_and_load(cli, argp, argc, argv, ARGP_IN_ORDER, opts);
}

int cli_exit_code(const struct err *err)
{
    switch (err->code) {
    case ERR_INVALID:
    case ERR_NOT_FOUND:
    case ERR_CONFLICT:
    case ERR_TOO_LARGE:
    case ERR_USAGE:
        return CLI_USAGE;
    case ERR_LIMIT:
        return CLI_COME_BACK;
    case ERR_UNAVAILABLE:
        return CLI_UNREACHABLE;
    default:
        return CLI_OTHER;
    }
}

const char *cli_home_hint(const struct cli *cli)
{
    static char text[CONFIG_STR_MAX + 16];
    if (!cli->home) {
        return "";
    }
    (void)snprintf(text, sizeof text, " --home %s", cli->home);
    return text;
}

bool cli_say_full_disk(const struct cli *cli)
{
    struct statvfs v;
    if (statvfs(cli->config.home, &v) < 0) {
        return false;
    }
    unsigned long long free_mib = (unsigned long long)v.f_bavail * v.f_frsize >> 20;
    if (free_mib >= DISK_FULL_MIB) {
        return false;
    }
    (void)fprintf(
        stderr,
        "  the disk is full: %llu MiB free at %s; what was accepted goes on when there is "
        "room again\n",
        free_mib, cli->config.home);
    return true;
}

int cli_fail(const struct cli *cli, const struct err *err)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "brood: %s\n", err->text);
    if (cli->json && err->code == ERR_LIMIT) { /* for whoever tries again by itself */
        (void)printf("{\"error\":\"%s\",\"retry_after_ms\":%ld}\n", err_word(err->code),
                     err->retry_after_ms);
    }
    if (err->code == ERR_UNAVAILABLE && !cli_say_full_disk(cli)) {
        (void)fprintf(
            stderr,
            "  start everything with: brood up --detach%s   (what is running: brood status%s)\n",
            cli_home_hint(cli), cli_home_hint(cli));
    }
    return cli_exit_code(err);
}

int cli_fail_text(int code, const char *fmt, ...)
{
    va_list ap;
    (void)fflush(stdout);
    (void)fputs("brood: ", stderr);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    return code;
}

bool cli_out_ok(void)
{
    return !ferror(stdout);
}

int cli_seal(const struct cli *cli, struct job_spec *spec, struct err *err)
{
    uint8_t key[SECRET_KEY_BYTES];
    if (spec->n_secrets == 0) {
        return 0;
    }
    int rc = secret_key_load(&cli->config, true, key, err);
    rc = rc < 0 ? rc : secrets_seal(spec, key, cli->config.tenant_default, err);
    explicit_bzero(key, sizeof key);
    return rc;
}

int cli_open_pg(const struct cli *cli, struct pg *ret_pg, struct err *err)
{
    struct pg pg = { 0 };
    int rc = pg_open(&pg, cli->config.postgres_url, err);
    if (rc < 0) {
        return rc;
    }
    rc = pg_schema_version(&pg, err);
    if (rc == 0) {
        rc = err_set(err, ERR_MISMATCH,
                     "the database has no schema yet; make it with: brood migrate%s",
                     cli_home_hint(cli));
    }
    if (rc < 0) {
        pg_close(&pg);
        return rc;
    }
    pg.viewer = cli->config.tenant_default;
    *ret_pg = pg;
    return 0;
}

int cli_batch_id(const struct cli *cli, struct pg *pg, const char *text, struct id *ret_id,
                 struct err *err)
{
    if (strcmp(text, "latest") == 0) {
        int rc = store_latest_batch(pg, cli->config.tenant_default, ret_id, err);
        if (rc == -ERR_NOT_FOUND) {
            return err_set(err, ERR_NOT_FOUND,
                           "no batch was submitted yet (brood submit FILE.jsonl)");
        }
        return rc;
    }
    if (!id_valid(text)) {
        return err_set(err, ERR_USAGE,
                       "batch \"%.40s\": must be \"latest\" or an id as printed by brood submit",
                       text);
    }
    memcpy(ret_id->text, text, ID_TEXT_BYTES);
    return 0;
}

int cli_begin(struct cli *cli, const struct argp *argp, int argc, char **argv,
              struct cli_opts *opts, struct pg *ret_pg, struct id *ret_batch)
{
    struct err err;
    int rc = cli_parse(cli, argp, argc, argv, opts);
    if (rc != 0) {
        return rc;
    }
    assert(!ret_batch || opts->arg); /* its cli_argument says that it must be there */
    if (cli_open_pg(cli, ret_pg, &err) < 0 ||
        (ret_batch && cli_batch_id(cli, ret_pg, opts->arg, ret_batch, &err) < 0)) {
        return cli_fail(cli, &err);
    }
    return 0;
}

const char *cli_self_dir(void)
{
    static char dir[PATH_MAX];
    if (!dir[0]) {
        char exe[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
        if (n <= 0) {
            return ".";
        }
        exe[n] = 0;
        (void)snprintf(dir, sizeof dir, "%s", dirname(exe));
    }
    return dir;
}

int cli_templates_dir(char ret_path[CONFIG_STR_MAX], struct err *err)
{
    const char *env = getenv("BROOD_TEMPLATES");
    char share[CONFIG_STR_MAX];
    (void)snprintf(share, sizeof share, "%.400s/../share/brood/templates", cli_self_dir());
    const char *const places[] = { env && *env ? env : NULL, BROOD_SOURCE_DIR "/templates", share };
    for (int i = 0; i < 3; i++) {
        char probe[CONFIG_STR_MAX + 16];
        if (!places[i]) {
            continue;
        }
        (void)snprintf(probe, sizeof probe, "%s/build", places[i]);
        if (access(probe, X_OK) == 0) {
            (void)snprintf(ret_path, CONFIG_STR_MAX, "%s", places[i]);
            return 0;
        }
        if (i == 0) {
            break; /* an explicit wish is not silently replaced */
        }
    }
    return err_set(err, ERR_NOT_FOUND,
                   "no template recipes: no executable `build` in %s; set BROOD_TEMPLATES to the "
                   "folder that has it",
                   places[0] ? places[0] : BROOD_SOURCE_DIR "/templates");
}
