#include "cli/services.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/proc.h"
#include "cli/service_env.h"
#include "cli/users.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/secret_key.h"

struct service_row {
    const char *name;
    int death_signal, stop_signal;
    int64_t stop_ms;
};

/* Redis and Postgres end in good order when the supervisor dies; the others have nothing to lose:
 * what a worker ran is run again. */
static const struct service_row table[SVC_COUNT] = {
    [SVC_POSTGRES] = { "postgres", SIGINT, SIGINT, 30000 },
    [SVC_REDIS] = { "redis", SIGTERM, SIGTERM, 20000 },
    [SVC_VMPOOL] = { "vmpool", SIGTERM, SIGTERM, 10000 },
    [SVC_SCHEDULER] = { "scheduler", SIGKILL, SIGTERM, 10000 },
    /* What is left when its drain is over: giving back and committing (worker/main.c). */
    [SVC_WORKER] = { "worker", SIGKILL, SIGTERM, 20000 },
};

static int64_t stop_ms(const struct services *s, int id)
{
    return table[id].stop_ms + (id == SVC_WORKER ? s->config->worker_drain_ms : 0);
}

void services_init(struct services *s, const struct config *c)
{
    *s = (struct services){ .config = c };
    for (int i = 0; i < SVC_COUNT; i++) {
        s->all[i].id = (enum service_id)i;
        s->users.of[i].uid = PROC_KEEP_USER;
    }
}

const char *service_name(enum service_id id)
{
    assert(id >= 0 && id < SVC_COUNT);
    return table[id].name;
}

void service_log_path(const struct config *c, const char *name, char *out, size_t room)
{
    (void)snprintf(out, room, "%s/log/%s.log", c->home, name);
}

static int redis_args(const struct config *c, bool own, char **argv, struct err *err)
{
    static char dir[CONFIG_STR_MAX + 16], sock[CONFIG_STR_MAX + 16];
    (void)snprintf(dir, sizeof dir, "%s/redis", c->home);
    (void)snprintf(sock, sizeof sock, "%s/redis.sock", c->run_dir);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
        return err_sys(err, "mkdir %s", dir);
    }
    (void)unlink(sock);
    const char *const args[] = { "redis-server",
                                 "--port",
                                 "0",
                                 "--unixsocket",
                                 sock,
                                 "--unixsocketperm",
                                 own ? "770" : "700", /* its group is the services' */
                                 "--dir",
                                 dir,
                                 "--appendonly",
                                 "yes",
                                 "--save",
                                 "",
                                 "--daemonize",
                                 "no",
                                 "--logfile",
                                 "",
                                 "--loglevel",
                                 "notice",
                                 NULL };
    static_assert(sizeof args / sizeof args[0] <= SERVICE_ARGS_MAX, "redis arguments");
    memcpy(argv, args, sizeof args);
    return 0;
}

static void own_args(const struct services *s, const char *name, char **argv)
{
    static char exe[PATH_MAX];
    (void)snprintf(exe, sizeof exe, "%s/brood-%s", cli_self_dir(), name);
    argv[0] = exe;
    argv[1] = (char *)"--home";
    argv[2] = (char *)(uintptr_t)s->config->home;
    argv[3] = NULL;
}

/* The file is root's alone. Without a good one the service says so to who needs it. */
static void pass_key(const struct services *s, enum service_id id, int *ret_fd,
                     struct spawn_opts *o)
{
    struct err err;
    if (id != SVC_SCHEDULER && id != SVC_WORKER) {
        return;
    }
    if (secret_key_open(s->config, true, ret_fd, &err) < 0) {
        (void)fprintf(stderr, "brood: %s: no job with secrets can run: %s\n", table[id].name,
                      err.text);
        return;
    }
    o->fd_env = SECRET_KEY_FD_ENV;
    o->pass_fd = *ret_fd;
}

int service_start(struct services *s, enum service_id id, struct err *err)
{
    const struct service_row *row = &table[id];
    struct service *svc = &s->all[id];
    char *args[SERVICE_ARGS_MAX], *env[SERVICE_ENV_MAX], log[PATH_MAX], who[USERS_TEXT_MAX];
    struct spawn_opts o = { .argv = args,
                            .env = env,
                            .log_path = log,
                            .uid = PROC_KEEP_USER,
                            .death_signal = row->death_signal,
                            .cwd = "/",
                            .own_group = true };
    assert(svc->pid == 0);
    int rc = service_env(id, environ, env, err);
    if (rc < 0) {
        return rc;
    }
    service_log_path(s->config, row->name, log, sizeof log);
    proc_rotate(log, LOG_BYTES_MAX);
    if (id == SVC_POSTGRES) {
        s->postgres.socket_gid = s->users.own ? s->users.of[id].gid : 0;
        rc = pgserver_prepare(&s->postgres, err);
        o.argv = s->postgres.argv;
        o.uid = s->postgres.uid;
        o.gid = s->postgres.gid;
    } else if (id == SVC_REDIS) {
        rc = redis_args(s->config, s->users.own, args, err);
    } else {
        own_args(s, row->name, args);
        if (id == SVC_VMPOOL) {
            args[3] = (char *)"serve";
            args[4] = NULL;
        }
    }
    const struct user *user = &s->users.of[id];
    cleanup_close int key = -1;
    if (id == SVC_VMPOOL && user->uid != PROC_KEEP_USER) {
        /* it starts as root, forks its privileged part, and becomes that user itself */
        users_text(user, who);
        args[4] = who;
        args[5] = NULL;
    } else if (id == SVC_POSTGRES) {
        o.extra_gids[0] = s->users.own ? user->gid : 0;
    } else if (user->uid != PROC_KEEP_USER) {
        o.uid = user->uid;
        o.gid = user->gid;
        memcpy(o.extra_gids, user->extra_gids, sizeof o.extra_gids);
        pass_key(s, id, &key, &o);
    }
    svc->wanted = true;
    svc->started_ms = mono_ms();
    if (rc < 0 || (rc = proc_spawn(&o, &svc->pid, err)) < 0) {
        svc->pid = 0;
        return rc;
    }
    return proc_record(s->config->run_dir, row->name, svc->pid, err);
}

void status_text(int status, char *out, size_t room)
{
    if (WIFSIGNALED(status)) {
        (void)snprintf(out, room, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else {
        (void)snprintf(out, room, "status %d", WEXITSTATUS(status));
    }
}

int64_t backoff_next(int64_t previous_ms)
{
    int64_t next = previous_ms < BACKOFF_MS_MIN ? BACKOFF_MS_MIN : previous_ms * 2;
    return next < BACKOFF_MS_MAX ? next : BACKOFF_MS_MAX;
}

bool service_dead(struct services *s, enum service_id id)
{
    struct service *svc = &s->all[id];
    if (svc->pid > 0 && waitpid(svc->pid, &svc->last_status, WNOHANG) == svc->pid) {
        svc->pid = 0;
        proc_forget(s->config->run_dir, table[id].name);
    }
    return svc->pid == 0;
}

/* Said once for each run of deaths: the first, and when the back-off has reached its maximum. */
static void plan_restart(struct services *s, struct service *svc, int64_t now_ms)
{
    char why[64];
    if (now_ms - svc->started_ms >= BACKOFF_RESET_MS) {
        svc->backoff_ms = 0;
    }
    bool first = svc->backoff_ms == 0, quiet = svc->backoff_ms >= BACKOFF_MS_MAX;
    svc->backoff_ms = backoff_next(svc->backoff_ms);
    svc->restart_at_ms = now_ms + svc->backoff_ms;
    svc->restarts++;
    status_text(svc->last_status, why, sizeof why);
    if (first) {
        (void)fprintf(stderr, "brood: %s ended with %s; starting it again\n", table[svc->id].name,
                      why);
    } else if (!quiet && svc->backoff_ms >= BACKOFF_MS_MAX) {
        (void)fprintf(stderr, "brood: %s keeps ending (%s); trying every %d s, see %s/log/%s.log\n",
                      table[svc->id].name, why, BACKOFF_MS_MAX / 1000, s->config->home,
                      table[svc->id].name);
    }
}

int64_t services_tend(struct services *s, int64_t now_ms)
{
    int64_t next = -1;
    for (int i = 0; i < SVC_COUNT; i++) {
        struct service *svc = &s->all[i];
        if (!svc->wanted) {
            continue;
        }
        bool ran = svc->pid > 0;
        if (!service_dead(s, svc->id)) {
            continue;
        }
        if (ran) {
            plan_restart(s, svc, now_ms);
        }
        if (now_ms >= svc->restart_at_ms) {
            struct err err;
            if (service_start(s, svc->id, &err) < 0) {
                (void)fprintf(stderr, "brood: %s: %s\n", table[i].name, err.text);
                svc->last_status = 127 << 8;
                if (svc->pid == 0) {
                    plan_restart(s, svc, now_ms);
                }
            }
        }
        if (svc->pid == 0 && (next < 0 || svc->restart_at_ms - now_ms < next)) {
            next = svc->restart_at_ms > now_ms ? svc->restart_at_ms - now_ms : 0;
        }
    }
    return next;
}

void services_stop(struct services *s, bool (*hurry)(void))
{
    for (int i = SVC_COUNT - 1; i >= 0; i--) {
        struct service *svc = &s->all[i];
        svc->wanted = false;
        if (svc->pid == 0) {
            continue;
        }
        struct proc_record r = { .pid = svc->pid, .start = proc_start_time(svc->pid) };
        int64_t begin = mono_ms();
        bool has_jobs = i == SVC_WORKER || i == SVC_SCHEDULER;
        if (!proc_end_or_hurry(&r, table[i].stop_signal, stop_ms(s, i), has_jobs ? hurry : NULL)) {
            (void)fprintf(stderr, "brood: %s (pid %d) does not end\n", table[i].name,
                          (int)svc->pid);
            continue;
        }
        (void)waitpid(svc->pid, NULL, WNOHANG);
        (void)fprintf(stderr, "  %-10s stopped  %lld ms\n", table[i].name,
                      (long long)(mono_ms() - begin));
        svc->pid = 0;
        proc_forget(s->config->run_dir, table[i].name);
    }
}
