/* brood up: the supervisor.
 *
 * Theory: one process starts everything in order and waits for each to answer, then only tends: it
 * sleeps until a signal comes or a restart is due. Nothing has to be cleaned up by a last will:
 * children die with the supervisor (services.h), and what is left in files is recognised as stale
 * by the next `up` (leftovers.h). With --detach the process that was called forks the supervisor,
 * which keeps the terminal's stderr until everything is ready, and ends with its answer. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/checks.h"
#include "cli/cli.h"
#include "cli/leftovers.h"
#include "cli/manifest.h"
#include "cli/poolclient.h"
#include "cli/proc.h"
#include "cli/ratecards.h"
#include "cli/services.h"
#include "cli/users.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/object.h"

#define READY_POLL_MS 20
#define READY_MS_MAX 60000
#define POOL_ANSWER_MS 2000
#define TAIL_LINES 12

enum { OPT_DETACH = 'd', OPT_SLOTS = 0x2001, OPT_INSECURE };

struct opts {
    struct cli_opts base;
    bool detach, insecure;
    const char *slots;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct opts *o = state->input;
    switch (key) {
    case OPT_DETACH:
        o->detach = true;
        return 0;
    case OPT_INSECURE:
        o->insecure = true;
        return 0;
    case OPT_SLOTS:
        o->slots = arg;
        return 0;
    default:
        return cli_parse_key(key, arg, state);
    }
}

static const struct argp_option options[] = {
    { .name = "detach",
      .key = OPT_DETACH,
      .doc = "return when everything is ready, go on in the background" },
    { .name = "insecure",
      .key = OPT_INSECURE,
      .doc = "run machines with those protections that this host gives, even when required ones "
             "are missing (brood doctor shows them)" },
    { .name = "slots",
      .key = OPT_SLOTS,
      .arg = "N",
      .doc = "sandboxes that run at once (default: worker.slots, else the host's processors)" },
    { 0 },
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Start everything on this machine: a private Redis and Postgres (unless redis.url / "
           "postgres.url name others), vmpool, scheduler, worker.\v"
           "Logs are in HOME/log. When it runs already: with --detach that is fine (status 0), "
           "else status 1.\n\n"
           "Examples:\n"
           "  brood up --detach\n"
           "  brood up --home ./here --slots 4\n"
           "  BROOD_POSTGRES_URL='host=db user=brood dbname=brood' brood up\n",
    .children = cli_globals,
};

struct up {
    const struct cli *cli;
    struct services services;
    bool have_template;
};

static volatile sig_atomic_t stop_signals; /* SIGTERM, SIGINT, SIGHUP seen */
static volatile sig_atomic_t hurry_asked;  /* SIGINT behind another */

/* Only a ^C says that somebody is impatient: a second SIGTERM is a second `brood down`. */
static void on_stop(int sig)
{
    hurry_asked = hurry_asked || (sig == SIGINT && stop_signals > 0);
    stop_signals = stop_signals + 1;
}

static bool in_a_hurry(void)
{
    return hurry_asked;
}

static bool at_once(void)
{
    return true;
}

static void say(const char *what, const char *state, int64_t since_ms, const char *more)
{
    (void)fprintf(stderr, "  %-10s %-8s %lld.%02lld s%s%s\n", what, state,
                  (long long)((mono_ms() - since_ms) / 1000),
                  (long long)((mono_ms() - since_ms) % 1000 / 10), *more ? "  " : "", more);
}

/* ask: 0 = it answers; an error = not yet. Waits while the child lives. */
typedef int (*ask_fn)(struct up *up, struct err *err);

static int wait_ready(struct up *up, enum service_id id, ask_fn ask, struct err *err)
{
    int64_t begin = mono_ms();
    struct service *svc = &up->services.all[id];
    for (;;) {
        if (svc->wanted && service_dead(&up->services, id)) {
            char why[64], log[CONFIG_STR_MAX + 64];
            status_text(svc->last_status, why, sizeof why);
            service_log_path(&up->cli->config, service_name(id), log, sizeof log);
            proc_print_tail(log, TAIL_LINES);
            return err_set(err, ERR_UNSUPPORTED, "%s ended with %s while starting",
                           service_name(id), why);
        }
        int rc = ask(up, err);
        if (rc == 0) {
            char more[32] = "";
            if (svc->pid) {
                (void)snprintf(more, sizeof more, "pid %d", (int)svc->pid);
            }
            say(service_name(id), "ready", begin, svc->wanted ? more : "external");
            return 0;
        }
        if (stop_signals) {
            return err_set(err, ERR_CLOSED, "stopped while starting");
        }
        if (mono_ms() - begin > READY_MS_MAX || !svc->wanted) {
            return svc->wanted ? err_prefix(err, "%s did not get ready within %d s",
                                            service_name(id), READY_MS_MAX / 1000)
                               : rc;
        }
        sleep_ms(READY_POLL_MS);
    }
}

static int ask_postgres(struct up *up, struct err *err)
{
    cleanup_pg struct pg pg = { 0 };
    return pg_open(&pg, up->cli->config.postgres_url, err);
}

static int ask_redis(struct up *up, struct err *err)
{
    cleanup_queue struct queue q = { 0 };
    int rc = queue_open(&q, up->cli->config.redis_url, err);
    return rc < 0 ? rc : queue_ping(&q, err);
}

static int ask_vmpool(struct up *up, struct err *err)
{
    static pool_StatusReply reply;
    return poolclient_status(up->cli->config.vmpool_socket, POOL_ANSWER_MS, &reply, err);
}

/* It says so itself, after its first turn with both Redis and Postgres. */
static int ask_scheduler(struct up *up, struct err *err)
{
    cleanup_queue struct queue q = { 0 };
    int rc = queue_open(&q, up->cli->config.redis_url, err);
    rc = rc < 0 ? rc : queue_scheduler_alive(&q, up->services.all[SVC_SCHEDULER].pid, err);
    return rc == 0  ? err_set(err, ERR_UNAVAILABLE, "no sign of life from the scheduler")
           : rc > 0 ? 0
                    : rc;
}

static int ask_worker(struct up *up, struct err *err)
{
    cleanup_queue struct queue q = { 0 };
    char name[QUEUE_WORKER_MAX];
    pid_t pid = up->services.all[SVC_WORKER].pid;
    queue_worker_name(up->cli->config.worker_name, pid, name);
    int rc = queue_open(&q, up->cli->config.redis_url, err);
    rc = rc < 0 ? rc : queue_worker_alive(&q, name, pid, err);
    return rc == 0  ? err_set(err, ERR_UNAVAILABLE, "no sign of life from the worker")
           : rc > 0 ? 0
                    : rc;
}

static int start_and_wait(struct up *up, enum service_id id, ask_fn ask, struct err *err)
{
    int rc = service_start(&up->services, id, err);
    return rc < 0 ? err_prefix(err, "%s", service_name(id)) : wait_ready(up, id, ask, err);
}

static int start_postgres(struct up *up, struct err *err)
{
    const struct config *c = &up->cli->config;
    struct pgserver *s = &up->services.postgres;
    if (!config_postgres_embedded(c)) {
        return wait_ready(up, SVC_POSTGRES, ask_postgres, err);
    }
    int rc = pgserver_find(s, c, err);
    if (rc < 0) {
        return rc;
    }
    if (s->outside_home) {
        (void)fprintf(stderr, "  postgres   note     user %s cannot reach %s; its data is in %s\n",
                      s->user, c->home, s->data_dir);
        if (mkdir("/var/lib/brood-pg", 0711) < 0 && errno != EEXIST) {
            return err_sys(err, "mkdir /var/lib/brood-pg");
        }
    }
    if (pgserver_is_new(s)) {
        char log[CONFIG_STR_MAX + 64];
        int64_t begin = mono_ms();
        service_log_path(c, "postgres", log, sizeof log);
        (void)fprintf(stderr, "  postgres   making the database cluster (once) ...\n");
        if ((rc = pgserver_init(s, log, err)) < 0) {
            proc_print_tail(log, TAIL_LINES);
            return rc;
        }
        say("postgres", "made", begin, s->data_dir);
    }
    return start_and_wait(up, SVC_POSTGRES, ask_postgres, err);
}

static int prepare_database(struct up *up, struct err *err)
{
    cleanup_pg struct pg pg = { 0 };
    int64_t begin = mono_ms();
    int applied, n, rc = pg_open(&pg, up->cli->config.postgres_url, err);
    if (rc < 0 || (applied = rc = pg_migrate(&pg, err)) < 0 ||
        (rc = ratecards_first(&up->cli->config, &pg, err)) < 0 ||
        (n = rc = manifest_register_all(&up->cli->config, &pg, err)) < 0) {
        return rc;
    }
    char more[64];
    (void)snprintf(more, sizeof more, "%d migration%s applied, %d template%s", applied,
                   applied == 1 ? "" : "s", n, n == 1 ? "" : "s");
    up->have_template = n > 0;
    say("database", "ready", begin, more);
    return 0;
}

/* Makes its folder. What is wrong with its settings is said here, and not by the worker's log. */
static int prepare_objects(struct up *up, struct err *err)
{
    struct object_options wanted;
    struct object_store *objects = NULL;
    int64_t begin = mono_ms();
    int rc = object_options_from(&wanted, &up->cli->config, err);
    rc = rc < 0 ? rc : object_store_open(&objects, &wanted, err);
    if (rc == 0) {
        say("objects", "ready", begin, object_store_name(objects));
    }
    object_store_free(objects);
    return rc;
}

/* Tried only once everything is given to them: what they still cannot use is not ours to give. */
static int prepare_users(struct up *up, struct err *err)
{
    const struct config *c = &up->cli->config;
    struct users *u = &up->services.users;
    int rc = users_find(c, u, err);
    rc = rc < 0 ? rc : users_prepare(c, u, err);
    if (rc == 0) {
        users_try(c, u);
    }
    if (rc == 0 && u->staying[0]) {
        (void)fprintf(stderr, "  users      note     as root: %s; %s\n", u->staying, u->why_not);
    } else if (rc == 0 && u->why_not[0]) {
        (void)fprintf(stderr, "  users      note     services stay who you are: %s\n", u->why_not);
    }
    return rc;
}

static int start_all(struct up *up, struct err *err)
{
    const struct config *c = &up->cli->config;
    int rc = prepare_objects(up, err);
    rc = rc < 0 ? rc : prepare_users(up, err);
    rc = rc < 0 ? rc : start_postgres(up, err);
    if (rc < 0) {
        return rc;
    }
    rc = config_redis_embedded(c) ? start_and_wait(up, SVC_REDIS, ask_redis, err)
                                  : wait_ready(up, SVC_REDIS, ask_redis, err);
    if (rc < 0 || (rc = prepare_database(up, err)) < 0 ||
        (rc = start_and_wait(up, SVC_VMPOOL, ask_vmpool, err)) < 0 ||
        (rc = start_and_wait(up, SVC_SCHEDULER, ask_scheduler, err)) < 0 ||
        (rc = start_and_wait(up, SVC_WORKER, ask_worker, err)) < 0) {
        return rc;
    }
    return 0;
}

static int refuse_unfit(const struct cli *cli)
{
    static struct check rows[CHECKS_MAX];
    bool have_template;
    int n = checks_run(&cli->config, false, rows, &have_template), bad = 0;
    for (int i = 0; i < n; i++) {
        if (check_blocks(&rows[i], true, have_template)) {
            (void)fprintf(stderr, "brood: %s: %s\n  -> %s\n", rows[i].name, rows[i].result,
                          rows[i].fix);
            bad++;
        }
    }
    return bad ? cli_fail_text(CLI_NOT_AS_WANTED,
                               "nothing was started (brood doctor shows everything)")
               : 0;
}

static void catch_signals(void)
{
    struct sigaction stop = { .sa_handler = on_stop }, ignore = { .sa_handler = SIG_IGN };
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGHUP, &stop, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    /* Blocked but while waiting: no signal is lost between a look and the sleep. */
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

static void tend(struct up *up)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    while (!stop_signals) {
        int64_t wait_ms = services_tend(&up->services, mono_ms());
        if (wait_ms < 0 || wait_ms > 1000) {
            wait_ms = 1000;
        }
        struct timespec ts = { .tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000 };
        (void)sigtimedwait(&set, NULL, &ts); /* a stop signal ends it with EINTR; one that came just
                                                before is seen within a second */
    }
}

/* The background process lets go of the terminal; from here on stderr is the log. */
static void let_go(const struct config *c, int ready_fd)
{
    char log[CONFIG_STR_MAX + 64];
    service_log_path(c, "brood", log, sizeof log);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd >= 0) {
        (void)dup2(fd, 1);
        (void)dup2(fd, 2);
        (void)close(fd);
    }
    (void)!write(ready_fd, "r", 1);
    (void)close(ready_fd);
}

/* Everything between lock and unlock. ready_fd: -1 in the foreground. */
static int supervise(const struct cli *cli, int lock_fd, int ready_fd)
{
    static struct up up;
    struct err err;
    char text[32];
    const struct config *c = &cli->config;
    up.cli = cli;
    (void)setenv("BROOD_RUN_DIR", c->run_dir,
                 1);  /* the services are other users: theirs were others */
    (void)umask(022); /* who may read what services make is said by the modes they name */
    services_init(&up.services, c);
    catch_signals();
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(lock_fd, 0) < 0 || pwrite(lock_fd, text, (size_t)n, 0) < 0) {
        return cli_fail_text(CLI_OTHER, "up.lock: %s", strerror(errno));
    }
    int64_t begin = mono_ms();
    int rc = proc_record(c->run_dir, SUPERVISOR_NAME, getpid(), &err);
    rc = rc < 0 ? rc : start_all(&up, &err);
    if (rc < 0) {
        int code = cli_fail(cli, &err);
        services_stop(&up.services, at_once);
        (void)leftovers_clean(c);
        return code;
    }
    (void)fprintf(stderr, "brood is up (%lld.%lld s); home %s, logs in %s/log\n",
                  (long long)((mono_ms() - begin) / 1000),
                  (long long)((mono_ms() - begin) % 1000 / 100), c->home, c->home);
    if (!up.have_template) {
        (void)fprintf(
            stderr,
            "  no template is built yet, so nothing can run: brood template build python%s\n",
            cli_home_hint(cli));
    }
    if (ready_fd >= 0) {
        let_go(c, ready_fd);
    } else {
        (void)fprintf(stderr, "  stop it with Ctrl-C, or: brood down%s\n", cli_home_hint(cli));
    }
    tend(&up);
    (void)fprintf(stderr, "brood: stopping\n");
    services_stop(&up.services, in_a_hurry);
    (void)leftovers_clean(c);
    return CLI_OK;
}

static pid_t background;

static void on_caller_signal(int sig)
{
    (void)kill(background, sig);
}

static int detach(const struct cli *cli, int lock_fd)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0) {
        return cli_fail_text(CLI_OTHER, "pipe: %s", strerror(errno));
    }
    background = fork();
    if (background < 0) {
        return cli_fail_text(CLI_OTHER, "fork: %s", strerror(errno));
    }
    if (background == 0) {
        (void)close(p[0]);
        (void)setsid();
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        (void)dup2(null, 0);
        _exit(supervise(cli, lock_fd, p[1]));
    }
    (void)close(p[1]);
    struct sigaction forward = { .sa_handler = on_caller_signal };
    (void)sigaction(SIGINT, &forward, NULL);
    (void)sigaction(SIGTERM, &forward, NULL);
    char ready = 0;
    ssize_t n;
    while ((n = read(p[0], &ready, 1)) < 0 && errno == EINTR) {
    }
    if (n == 1) {
        return CLI_OK;
    }
    int status;
    while (waitpid(background, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : CLI_OTHER;
}

static int use_options(struct cli *cli, const struct opts *o, struct err *err)
{
    /* The children read the same configuration by themselves. */
    if (cli->file) {
        cleanup_free char *path = realpath(cli->file, NULL);
        (void)setenv("BROOD_CONFIG", path ? path : cli->file, 1);
    }
    if (o->insecure) {
        (void)setenv("BROOD_JAIL_MODE", "try", 1);
        (void)fprintf(stderr,
                      "brood: --insecure: protections that this host does not give are done "
                      "without; see brood doctor\n");
    }
    if (o->slots) {
        int rc = config_set(&cli->config, "worker.slots", o->slots, "--slots", err);
        if (rc < 0) {
            return rc;
        }
        (void)setenv("BROOD_WORKER_SLOTS", o->slots, 1);
    }
    return 0;
}

static int is_up(const struct cli *cli, const struct opts *o, pid_t pid)
{
    (void)fprintf(stderr, "brood: is already up for %s (pid %d); see: brood status%s\n",
                  cli->config.home, (int)pid, cli_home_hint(cli));
    return o->detach ? CLI_OK : CLI_NOT_AS_WANTED;
}

int cmd_up(struct cli *cli, int argc, char **argv)
{
    struct opts o = { .base.cli = cli };
    struct err err;
    pid_t pid = 0;
    int lock_fd = -1, rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    /* What a host lacks by now does not matter to what runs; a home that is not there is made only
     * on a host that is fit. */
    if (home_lock(&cli->config, &lock_fd, &pid, &err) == 0) {
        return is_up(cli, &o, pid);
    }
    if ((rc = refuse_unfit(cli)) != 0) {
        return rc;
    }
    char log_dir[CONFIG_STR_MAX + 16];
    (void)snprintf(log_dir, sizeof log_dir, "%s/log", cli->config.home);
    if (use_options(cli, &o, &err) < 0 || config_make_dirs(&cli->config, &err) < 0) {
        return cli_fail(cli, &err);
    }
    if (mkdir(log_dir, 0750) < 0 && errno != EEXIST) {
        return cli_fail_text(CLI_OTHER, "mkdir %s: %s", log_dir, strerror(errno));
    }
    if (lock_fd < 0 && (rc = home_lock(&cli->config, &lock_fd, &pid, &err)) <= 0) {
        return rc < 0 ? cli_fail(cli, &err) : is_up(cli, &o, pid);
    }
    (void)leftovers_clean(&cli->config);
    (void)leftovers_sweep(&cli->config);
    if (config_make_dirs(&cli->config, &err) < 0) {
        return cli_fail(cli, &err);
    }
    return o.detach ? detach(cli, lock_fd) : supervise(cli, lock_fd, -1);
}
