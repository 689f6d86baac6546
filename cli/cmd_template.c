/* brood template: build recipes into root file systems and snapshots; list them. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/manifest.h"
#include "cli/poolclient.h"
#include "cli/proc.h"
#include "cli/users.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/jobs.h"

#define RECIPES_MAX 64
#define POOL_TIMEOUT_MS 1000

enum { OPT_ALL = 'a' };

struct opts {
    struct cli_opts base;
    const char *action;
    const char *names[RECIPES_MAX];
    int n_names;
    bool all;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_ALL:
        o->all = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!o->action) {
            o->action = arg;
        } else if (o->n_names < RECIPES_MAX) {
            o->names[o->n_names++] = arg;
        }
        return 0;
    case ARGP_KEY_END:
        if (!o->action || (strcmp(o->action, "build") != 0 && strcmp(o->action, "list") != 0)) {
            argp_error(state, "build or list?");
        } else if (strcmp(o->action, "build") == 0 && !o->all && o->n_names == 0) {
            argp_error(state, "which template? (a name, or --all)");
        } else if (strcmp(o->action, "list") == 0 && o->n_names > 0) {
            argp_error(state, "list takes no arguments");
        }
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "all", .key = OPT_ALL, .doc = "build: every recipe there is" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "build NAME...|--all\nlist",
    .doc = "Build templates from their recipes (unchanged ones are not built again), boot and "
           "snapshot them; list them.\v"
           "Recipes are in $BROOD_TEMPLATES, else where brood was built or installed.\n\n"
           "Examples:\n"
           "  brood template build python c\n"
           "  brood template build --all\n"
           "  brood template list --json\n",
    .children = cli_globals,
};

/* Run one step; its output is progress. */
static int step(const char *what, char *const *argv, struct err *err)
{
    int64_t begin = mono_ms();
    (void)fprintf(stderr, "%s ...\n", what);
    struct spawn_opts o = {
        .argv = argv, .uid = PROC_KEEP_USER, .death_signal = SIGTERM, .out_to_err = true
    };
    int status = proc_run(&o, err);
    if (status < 0) {
        return status;
    }
    if (status != 0) {
        return err_set(err, ERR_SYS, "%s: %s ended with status %d (its words are above)", what,
                       argv[0], status);
    }
    (void)fprintf(stderr, "%s: done in %lld.%lld s\n", what,
                  (long long)((mono_ms() - begin) / 1000),
                  (long long)((mono_ms() - begin) % 1000 / 100));
    return 0;
}

static bool recipe_exists(const char *dir, const char *name)
{
    char path[CONFIG_STR_MAX + 300];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%.255s", dir, name);
    return name[0] != '.' && !strchr(name, '/') && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The names of the recipes: folders below dir. Strings are the caller's. */
static int recipes(const char *dir, char **ret_names, int max)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && n < max && (e = readdir(d));) {
        if (e->d_name[0] != '_' && recipe_exists(dir, e->d_name)) {
            ret_names[n++] = strdup(e->d_name);
        }
    }
    if (d) {
        (void)closedir(d);
    }
    return n;
}

static int build_one(const struct cli *cli, const char *dir, const char *name, struct err *err)
{
    char build[CONFIG_STR_MAX + 16], pool[PATH_MAX], what[200];
    char *home = (char *)(uintptr_t)cli->config.home, *arg = (char *)(uintptr_t)name;
    (void)snprintf(build, sizeof build, "%s/build", dir);
    (void)snprintf(pool, sizeof pool, "%s/brood-vmpool", cli_self_dir());
    char *rootfs[] = { build, (char *)"--home", home, arg, NULL };
    char who[USERS_TEXT_MAX];
    struct users users;
    char *snapshot[] = { pool, (char *)"--home", home, (char *)"snapshot", arg, NULL, NULL };
    int rc = config_make_home(&cli->config, err);
    rc = rc < 0 ? rc : users_find(&cli->config, &users, err);
    rc = rc < 0 ? rc : users_prepare(&cli->config, &users, err);
    if (rc < 0) {
        return rc;
    }
    if (users.of[SVC_VMPOOL].uid != PROC_KEEP_USER) { /* whose the snapshots are */
        users_text(&users.of[SVC_VMPOOL], who);
        snapshot[5] = who;
    }
    (void)snprintf(what, sizeof what, "template %.100s: root file system", name);
    if ((rc = step(what, rootfs, err)) < 0) {
        return rc;
    }
    (void)snprintf(what, sizeof what, "template %.100s: boot and snapshot", name);
    return step(what, snapshot, err);
}

/* In Postgres when it is up; else brood up does it. */
static int register_built(const struct cli *cli, struct err *err)
{
    struct err quiet;
    cleanup_pg struct pg pg = { 0 };
    if (cli_open_pg(cli, &pg, &quiet) < 0) {
        (void)fprintf(stderr,
                      "Postgres is not up: the templates are registered by the next brood up\n");
        return 0;
    }
    int n = manifest_register_all(&cli->config, &pg, err);
    if (n >= 0) {
        (void)fprintf(stderr, "registered: %d template%s\n", n, n == 1 ? "" : "s");
    }
    return n < 0 ? n : 0;
}

static int build(const struct cli *cli, const struct opts *o)
{
    struct err err;
    char dir[CONFIG_STR_MAX], kernel[CONFIG_STR_MAX + 32], guest[PATH_MAX];
    char *all[RECIPES_MAX];
    int n_all, rc;
    if (cli_templates_dir(dir, &err) < 0 || config_make_home(&cli->config, &err) < 0) {
        return cli_fail(cli, &err);
    }
    n_all = recipes(dir, all, RECIPES_MAX);
    const char *const *names = o->all ? (const char *const *)all : o->names;
    int n = o->all ? n_all : o->n_names;
    for (int i = 0; i < n; i++) {
        if (!recipe_exists(dir, names[i])) {
            (void)cli_fail_text(CLI_USAGE, "no recipe \"%s\" in %s; there are:", names[i], dir);
            for (int k = 0; k < n_all; k++) {
                (void)fprintf(stderr, "  %s\n", all[k]);
            }
            return CLI_USAGE;
        }
    }
    (void)snprintf(kernel, sizeof kernel, "%s/build-kernel", dir);
    (void)snprintf(guest, sizeof guest, "%s/brood-guest", cli_self_dir());
    char *argv[] = {
        kernel, (char *)"--home", (char *)(uintptr_t)cli->config.home, (char *)"--guest", guest,
        NULL
    };
    rc = step("kernel and initramfs", argv, &err);
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = build_one(cli, dir, names[i], &err);
        if (rc == 0) {
            rc = register_built(cli,
                                &err); /* after each: it can be used while the next one is built */
        }
    }
    for (int i = 0; i < n_all; i++) {
        free(all[i]);
    }
    return rc < 0 ? cli_fail(cli, &err) : CLI_OK;
}

/* What vmpool says of a template: "ready", "refused: why", "not running". */
static void pool_state(const pool_StatusReply *p, const char *name, char *out, size_t room)
{
    (void)snprintf(out, room, "%s", p ? "not loaded" : "vmpool is not running");
    for (pb_size_t i = 0; p && i < p->snapshots_count; i++) {
        const pool_SnapshotStatus *s = &p->snapshots[i];
        size_t n = strcspn(s->template, "@");
        if (strlen(name) == n && strncmp(name, s->template, n) == 0) {
            (void)snprintf(out, room, "%s%s%s, %u warm", s->state, *s->reason ? ": " : "",
                           s->reason, (unsigned)s->warm);
        }
    }
}

static int list(const struct cli *cli)
{
    static struct template_info rows[MANIFESTS_MAX];
    static pool_StatusReply reply;
    struct err err;
    int n = manifest_list(&cli->config, rows, MANIFESTS_MAX);
    const pool_StatusReply *p =
        poolclient_status(cli->config.vmpool_socket, POOL_TIMEOUT_MS, &reply, &err) == 0 ? &reply
                                                                                         : NULL;
    json_t *array = json_array();
    if (!cli->json && n > 0) {
        (void)printf("%-16s %8s %6s  %-14s %s\n", "name", "MiB", "vCPUs", "digest", "snapshot");
    }
    for (int i = 0; i < n; i++) {
        char state[300];
        pool_state(p, rows[i].name, state, sizeof state);
        if (cli->json) {
            (void)json_array_append_new(array, json_pack("{s:s, s:s, s:i, s:i, s:s}", "name",
                                                         rows[i].name, "digest", rows[i].digest,
                                                         "memory_mib", rows[i].memory_mib, "vcpus",
                                                         rows[i].vcpus, "snapshot", state));
        } else {
            (void)printf("%-16s %8d %6d  %-14.12s %s\n", rows[i].name, rows[i].memory_mib,
                         rows[i].vcpus, rows[i].digest, state);
        }
    }
    if (cli->json) {
        (void)json_dumpf(array, stdout, JSON_COMPACT);
        (void)putchar('\n');
    } else if (n == 0) {
        (void)fprintf(stderr, "no template is built yet in %s: brood template build python%s\n",
                      cli->config.home, cli_home_hint(cli));
    }
    json_decref(array);
    return CLI_OK;
}

int cmd_template(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli };
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    return strcmp(o.action, "build") == 0 ? build(cli, &o) : list(cli);
}
