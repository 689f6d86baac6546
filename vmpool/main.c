/* brood-vmpool: wiring of configuration, engine, pool and socket. Exit status: 0; 1 a fault, said
 * on stderr; 2 wrong use. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <jansson.h>
#include <sodium.h>

#include "common/base/cleanup.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/secret_key.h"
#include "vmpool/engine_qemu.h"
#include "vmpool/jail/client.h"
#include "vmpool/jail/jailer.h"
#include "vmpool/jail/protect.h"
#include "vmpool/jail/uids.h"
#include "vmpool/qemu_seed.h"
#include "vmpool/pool.h"
#include "vmpool/server.h"

#define STOP_POLL_MS 5
#define STOP_MS_MAX 3000
#define USAGE_EXIT 2

struct arguments {
    const char *home, *config, *command, *name;
    uid_t uid; /* whom to become; 0: nobody else */
    gid_t gid;
    gid_t states_gid; /* a further group, that of HOME/kept; 0: none */
    bool check, json;
};

enum { OPT_HOME = 256, OPT_CONFIG, OPT_CHECK, OPT_JSON, OPT_USER };

static const struct argp_option options[] = {
    { "home", OPT_HOME, "DIR", 0,
      "brood's home (default: $BROOD_HOME, /var/lib/brood as root, else ~/.brood)", 0 },
    { "config", OPT_CONFIG, "FILE", 0, "a further configuration file", 0 },
    { "check", OPT_CHECK, 0, 0, "check the configuration, print it, and exit", 0 },
    { "json", OPT_JSON, 0, 0, "probe: print JSON", 0 },
    { "user", OPT_USER, "UID:GID[:GID]", 0,
      "become this user once the privileged part is forked, of the second group too; the home must "
      "be his to use",
      0 },
    { 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case OPT_HOME:
        a->home = arg;
        return 0;
    case OPT_CONFIG:
        a->config = arg;
        return 0;
    case OPT_CHECK:
        a->check = true;
        return 0;
    case OPT_JSON:
        a->json = true;
        return 0;
    case OPT_USER: {
        unsigned uid, gid, more = 0;
        char colon, end;
        int n = sscanf(arg, "%u:%u%c%u%c", &uid, &gid, &colon, &more, &end);
        if ((n != 2 && (n != 4 || colon != ':')) || uid == 0) {
            argp_error(state, "--user: must be UID:GID[:GID], as numbers, and not root");
        }
        a->uid = uid;
        a->gid = gid;
        a->states_gid = more;
        return 0;
    }
    case ARGP_KEY_ARG:
        if (state->arg_num == 0) {
            a->command = arg;
        } else if (state->arg_num == 1 && strcmp(a->command, "snapshot") == 0) {
            a->name = arg;
        } else {
            argp_error(state, "one argument too many: %s", arg);
        }
        return 0;
    case ARGP_KEY_END:
        if (!a->command && !a->check) {
            argp_error(state, "a command is missing: serve, snapshot NAME, or probe");
        } else if (a->command && strcmp(a->command, "snapshot") == 0 && !a->name) {
            argp_error(state, "snapshot: the template's name is missing");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "serve | snapshot NAME | probe",
    .doc = "Keeps microVMs: boots templates, snapshots them, and leases copies of them.\v"
           "serve listens on the socket vmpool.socket of the configuration. snapshot NAME makes "
           "the snapshot of a built "
           "template unless a valid one is there. probe says which engine this host gets, and why.",
};

struct app {
    struct event_base *base;
    struct pool *pool;
    struct server *server;
    struct jail *jail;
    int jailer_fd; /* until the jail has it */
    struct event *stop_timer;
    int stop_ms;
    int exit_status;
};

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct app *app = arg;
    (void)fd;
    (void)what;
    app->stop_ms += STOP_POLL_MS;
    if (pool_idle(app->pool) || app->stop_ms >= STOP_MS_MAX) {
        (void)event_base_loopbreak(app->base);
    }
}

static void stop(struct app *app)
{
    if (app->stop_timer) {
        return;
    }
    server_free(TAKE_PTR(app->server));
    pool_stop(app->pool);
    struct timeval tv = { .tv_usec = STOP_POLL_MS * 1000 };
    app->stop_timer = event_new(app->base, -1, EV_PERSIST, on_stop_timer, app);
    if (!app->stop_timer || event_add(app->stop_timer, &tv) < 0) {
        abort();
    }
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
    (void)what;
    log_info("stopping", "signal", sig == SIGTERM ? "SIGTERM" : "SIGINT");
    stop(arg);
}

static void on_built(void *user, const char *why)
{
    struct app *app = user;
    if (why) {
        (void)fprintf(stderr, "brood-vmpool: %s\n", why);
        app->exit_status = 1;
    }
    stop(app);
}

/* The lock lives as long as the process; the file stays, for unlinking it would race with the next
 * one. */
static int lock_home(const struct config *c, struct err *err)
{
    char path[CONFIG_STR_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/vmpool.lock", c->home);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int rc = errno == EWOULDBLOCK ? err_set(err, ERR_CONFLICT,
                                                "another brood-vmpool serves the home %s", c->home)
                                      : err_sys(err, "lock %s", path);
        (void)close(fd);
        return rc;
    }
    return fd;
}

/* Every machine has ended with it: there is nothing to stop in good order. */
static void on_jailer_gone(void *user)
{
    struct app *app = user;
    log_error("the jailer has ended, and every machine with it");
    app->exit_status = 1;
    (void)event_base_loopbreak(app->base);
}

/* Fork the jailer. ret_fd -1: jail.mode is off. */
static int start_jailer(const struct config *c, bool kvm, int *ret_fd, struct jail_hello *ret_hello,
                        struct err *err)
{
    char preload[512] = "";
    const char *binary;
    uint32_t first = c->jail_uid_first ? (uint32_t)c->jail_uid_first : config_uids(c) + JAIL_UIDS;
    bool on = strcmp(c->jail_mode, "on") == 0, off = strcmp(c->jail_mode, "off") == 0;
    *ret_hello = (struct jail_hello){ 0 };
    *ret_fd = -1;
    if (!on && !off && strcmp(c->jail_mode, "try") != 0) {
        return err_set(err, ERR_INVALID, "jail.mode: must be on, try or off");
    }
    if (first % JAIL_UIDS) {
        return err_set(err, ERR_INVALID, "jail.uid_first: must be a multiple of %u", JAIL_UIDS);
    }
    int rc = off ? 0 : qemu_binary(kvm, &binary, err);
    if (off || rc < 0) {
        return rc;
    }
    (void)seed_library_path(preload, sizeof preload);
    const struct jailer_options o = {
        .uid_first = first, .kvm = kvm, .qemu = binary, .preload = preload
    };
    cleanup_close int fd = -1;
    if ((rc = jailer_fork(&o, &fd, ret_hello, err)) < 0) {
        return rc;
    }
    const struct jail_protection *missing = protect_missing(ret_hello);
    if (missing && on) {
        return err_set(err, ERR_UNSUPPORTED,
                       "protection \"%s\" cannot be had: %s (brood doctor shows all; brood up "
                       "--insecure does without)",
                       missing->name, missing->why);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* For good: no capability, no group but those said, nothing to gain by an exec. We still end with
 * whoever started us: prctl(2), a change of user clears the signal of that. */
static int become(const struct arguments *a, struct err *err)
{
    int death_signal = 0;
    pid_t parent = getppid();
    if (prctl(PR_GET_PDEATHSIG, &death_signal) < 0) {
        return err_sys(err, "parent-death signal");
    }
    if (setgroups(a->states_gid ? 1 : 0, &a->states_gid) < 0 ||
        setresgid(a->gid, a->gid, a->gid) < 0 || setresuid(a->uid, a->uid, a->uid) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return err_sys(err, "become user %u", (unsigned)a->uid);
    }
    if (death_signal && prctl(PR_SET_PDEATHSIG, death_signal) < 0) {
        return err_sys(err, "parent-death signal");
    }
    if (death_signal && getppid() != parent) {
        return err_set(err, ERR_CLOSED, "who started it has ended");
    }
    return 0;
}

static void log_protections(const struct jail_hello *h)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (!h->rows[i].holds) {
            log_warn("protection missing", "name", h->rows[i].name, "why", h->rows[i].why);
        }
    }
}

static int run(const struct arguments *a, const struct config *c, struct app *app, struct err *err)
{
    bool serve = strcmp(a->command, "serve") == 0;
    struct engine_host host;
    struct pool_callbacks callbacks = { .built = on_built, .built_user = app };
    int rc = serve ? config_make_dirs(c, err) : config_make_home(c, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_close int lock = -1;
    if (serve && (lock = rc = lock_home(c, err)) < 0) {
        return rc;
    }
    struct jail_hello hello;
    if ((rc = engine_default()->probe(&host, err)) < 0 ||
        (rc = start_jailer(c, host.kvm, &app->jailer_fd, &hello, err)) < 0) {
        return rc;
    }
    if (a->uid && (rc = become(a, err)) < 0) {
        return rc;
    }
    log_protections(&hello);
    app->base = event_base_new();
    if (!app->base) {
        return err_set(err, ERR_SYS, "event loop");
    }
    if (app->jailer_fd >= 0) {
        app->jail = jail_new(app->base, TAKE_FD(app->jailer_fd), on_jailer_gone, app);
        engine_qemu_use_jail(app->jail);
    }
    server_pool_callbacks(&callbacks);
    cleanup_free struct config *mine = malloc(sizeof *mine);
    if (!mine) {
        abort();
    }
    *mine = *c;
    if (!serve) {
        mine->pool_warm_min = mine->pool_warm_max = 0; /* a snapshot is wanted, no clones of it */
    }
    if ((rc = pool_new(app->base, mine, engine_default(), &host, &callbacks, &app->pool, err)) <
        0) {
        return rc;
    }
    struct event *term = evsignal_new(app->base, SIGTERM, on_signal, app);
    struct event *intr = evsignal_new(app->base, SIGINT, on_signal, app);
    if (!term || !intr || event_add(term, NULL) < 0 || event_add(intr, NULL) < 0) {
        abort();
    }
    if (serve) {
        if ((rc = server_new(app->base, c->vmpool_socket, &app->server, err)) < 0) {
            return rc;
        }
        server_attach(app->server, app->pool);
        log_info("serving", "socket", c->vmpool_socket, "engine", host.name, "why", host.reason,
                 "vmm", host.vmm_version);
        pool_preload(app->pool);
    } else if ((rc = pool_build(app->pool, a->name, err)) < 0) {
        return rc;
    }
    (void)event_base_dispatch(app->base);
    event_free(term);
    event_free(intr);
    return app->exit_status;
}

/* The folder that serve made for its socket goes when nothing else is in it: a supervisor's holds
 * the records of its children. */
static void leave_run_dir(const struct arguments *a, const struct config *c)
{
    if (a->command && strcmp(a->command, "serve") == 0) {
        (void)rmdir(c->run_dir);
    }
}

static void app_done(struct app *app)
{
    server_free(app->server);
    if (app->stop_timer) {
        event_free(app->stop_timer);
    }
    bool idle = !app->pool || pool_idle(app->pool);
    if (idle) { /* else a helper thread still works in it; the process ends anyway */
        pool_free(app->pool);
        if (app->jail) {
            jail_free(app->jail); /* the jailer ends */
        }
    }
    if (app->jailer_fd >= 0) {
        (void)close(app->jailer_fd);
    }
    if (app->base) {
        event_base_free(app->base);
    }
}

static json_t *protections_json(const struct jail_hello *h)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < h->n; i++) {
        const struct jail_protection *r = &h->rows[i];
        (void)json_array_append_new(list,
                                    json_pack("{s:s,s:b,s:b,s:s}", "name", r->name, "holds",
                                              r->holds, "required", r->required, "why", r->why));
    }
    return list;
}

static int probe(const struct config *c, bool json, struct err *err)
{
    struct engine_host host;
    struct jail_hello hello = { 0 };
    struct err none;
    cleanup_close int jailer = -1;
    int rc = engine_default()->probe(&host, err);
    if (rc < 0) {
        return rc;
    }
    (void)!start_jailer(c, host.kvm, &jailer, &hello, &none); /* the rows say what is missing */
    if (json) {
        static const char *const freezes[] = {
            [FREEZE_NONE] = "none", [FREEZE_COPY] = "copy", [FREEZE_WRITE] = "write"
        };
        json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:o}", "engine", host.name, "reason",
                              host.reason, "vmm_version", host.vmm_version, "machine", host.machine,
                              "cpu_model", host.cpu_model, "tsc_khz", (int)host.tsc_khz, "freeze",
                              freezes[host.freeze], "protections", protections_json(&hello));
        cleanup_free char *text = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        (void)puts(text ? text : "{}");
        return 0;
    }
    (void)printf("engine: %s (%s)\nQEMU: %s\nmachine: %s, cpu %s\n", host.name, host.reason,
                 host.vmm_version, host.machine, host.cpu_model);
    for (uint32_t i = 0; i < hello.n; i++) {
        const struct jail_protection *r = &hello.rows[i];
        (void)printf("%-18s %-8s %s\n", r->name,
                     r->holds      ? "holds"
                     : r->required ? "MISSING"
                                   : "not here",
                     r->why);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct arguments a = { 0 };
    struct err err;
    struct app app = { .jailer_fd = -1 };
    cleanup_free struct config *c = calloc(1, sizeof *c);
    (void)argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (!c || sodium_init() < 0) {
        abort();
    }
    int rc = config_load(c, a.home, a.config, &err);
    if (rc == 0 && a.check) {
        config_print(c, stdout);
        return 0;
    }
    if (rc == 0) {
        int level = log_level_parse(c->log_level);
        log_init("vmpool", level < 0 ? LOG_INFO : (enum log_level)level, 2);
        secret_no_core_file(); /* QEMU's too: a machine's memory */
        program_files_max();
        (void)signal(SIGPIPE, SIG_IGN);
        if (strcmp(a.command, "probe") == 0) {
            rc = probe(c, a.json, &err);
        } else if (strcmp(a.command, "serve") == 0 || strcmp(a.command, "snapshot") == 0) {
            rc = run(&a, c, &app, &err);
            app_done(&app);
            leave_run_dir(&a, c);
        } else {
            (void)fprintf(stderr, "brood-vmpool: unknown command %s (try --help)\n", a.command);
            return USAGE_EXIT;
        }
    }
    if (rc < 0) {
        (void)fprintf(stderr, "brood-vmpool: %s: %s\n", err_word(err.code), err.text);
        return 1;
    }
    return rc;
}
