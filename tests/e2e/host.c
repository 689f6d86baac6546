/* What only an operator sees: the home's database, its processes, its Redis; see cli.h. */
#include "tests/e2e/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define E2E_SQL_MAX 4096
#define E2E_CONNECT_MS 120000 /* Postgres may just be coming back after a kill */

static PGconn *connect_pg(void)
{
    int64_t deadline_ms = mono_ms() + E2E_CONNECT_MS;
    for (;;) {
        PGconn *c = PQconnectdb(e2e_config()->postgres_url);
        if (PQstatus(c) == CONNECTION_OK) {
            return c;
        }
        if (mono_ms() > deadline_ms) {
            (void)fprintf(stderr, "e2e: Postgres: %s\n", PQerrorMessage(c));
            abort();
        }
        PQfinish(c);
        sleep_ms(200);
    }
}

/* false: the connection broke under the query (a test killed the server) */
static bool query(const char *sql, int64_t *ret_value)
{
    PGconn *c = connect_pg();
    PGresult *res = PQexec(c, sql);
    bool ok = PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1;
    if (ok) {
        *ret_value = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
    } else if (PQstatus(c) == CONNECTION_OK) {
        (void)fprintf(stderr, "e2e: %s: %s\n", sql, PQerrorMessage(c));
        abort();
    }
    PQclear(res);
    PQfinish(c);
    return ok;
}

static int64_t query_retried(const char *sql)
{
    int64_t value = 0;
    for (int tries = 0; !query(sql, &value); tries++) {
        if (tries == 100) {
            (void)fprintf(stderr, "e2e: %s: no answer\n", sql);
            abort();
        }
        sleep_ms(200);
    }
    return value;
}

int64_t e2e_sql(const char *fmt, ...)
{
    char sql[E2E_SQL_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(sql, sizeof sql, fmt, ap);
    va_end(ap);
    return query_retried(sql);
}

bool e2e_sql_becomes(int64_t want, int64_t timeout_ms, const char *fmt, ...)
{
    char sql[E2E_SQL_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(sql, sizeof sql, fmt, ap);
    va_end(ap);
    int64_t deadline_ms = mono_ms() + timeout_ms;
    for (;;) {
        if (query_retried(sql) == want) {
            return true;
        }
        if (mono_ms() > deadline_ms) {
            return false;
        }
        sleep_ms(50);
    }
}

/* Content of /proc/PID/what, NULs kept; "" when the process is gone. */
static void read_proc(const char *pid, const char *what, struct buf *b)
{
    char path[300];
    struct err err;
    (void)snprintf(path, sizeof path, "/proc/%s/%s", pid, what);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || buf_read_fd(b, fd, &err) < 0) {
        buf_reset(b);
    }
}

static bool holds(const struct buf *b, const char *text)
{
    return b->len && memmem(b->data, b->len, text, strlen(text)) != NULL;
}

/* A clone's command line is bare, but its disk is a file of the home's. */
static bool has_open_below(const char *pid, const char *dir)
{
    char path[300], target[4096];
    (void)snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *fds = opendir(path);
    bool yes = false;
    for (struct dirent *e; fds && !yes && (e = readdir(fds));) {
        (void)snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        yes = strncmp(target, dir, strlen(dir)) == 0;
    }
    if (fds) {
        (void)closedir(fds);
    }
    return yes;
}

/* Of this home: its path or its run folder stands in the command line, the environment or the
 * current folder. */
static bool is_ours(const char *pid)
{
    const struct config *c = e2e_config();
    cleanup_buf struct buf line = { 0 }, env = { 0 };
    buf_init(&line, 1u << 20);
    buf_init(&env, 1u << 20);
    read_proc(pid, "cmdline", &line);
    read_proc(pid, "environ", &env);
    char path[300], cwd[4096] = "";
    (void)snprintf(path, sizeof path, "/proc/%s/cwd", pid);
    ssize_t n = readlink(path, cwd, sizeof cwd - 1);
    cwd[n > 0 ? n : 0] = 0;
    return holds(&line, c->home) || holds(&line, c->run_dir) || holds(&env, c->home) ||
           holds(&env, c->run_dir) || strncmp(cwd, c->home, strlen(c->home)) == 0 ||
           strncmp(cwd, c->run_dir, strlen(c->run_dir)) == 0 || has_open_below(pid, c->home);
}

/* comm is cut at 15 bytes and can be changed; the program's file name is tried as well. */
static bool is_named(const char *pid, const char *name)
{
    cleanup_buf struct buf comm = { 0 };
    buf_init(&comm, 4096);
    read_proc(pid, "comm", &comm);
    char path[300], exe[4096] = "";
    (void)snprintf(path, sizeof path, "/proc/%s/exe", pid);
    ssize_t n = readlink(path, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    const char *base = strrchr(exe, '/');
    return (comm.len && strncmp(comm.data, name, strlen(name)) == 0) ||
           (base && strncmp(base + 1, name, strlen(name)) == 0) ||
           (base && strncmp(base + 1, "brood-", 6) == 0 &&
            strncmp(base + 7, name, strlen(name)) == 0);
}

static bool is_zombie(const char *pid)
{
    cleanup_buf struct buf stat = { 0 };
    buf_init(&stat, 65536);
    read_proc(pid, "stat", &stat);
    const char *end = stat.len ? strrchr(stat.data, ')') : NULL;
    return !end || end[1] == 0 || end[2] == 'Z' || end[2] == 'X';
}

int e2e_pids(const char *name, pid_t *ret_pids, int max)
{
    DIR *proc = opendir("/proc");
    int n = 0;
    for (struct dirent *e; proc && (e = readdir(proc));) {
        if (!isdigit((unsigned char)e->d_name[0])) {
            continue;
        }
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid != getpid() && n < max && is_named(e->d_name, name) && !is_zombie(e->d_name) &&
            is_ours(e->d_name)) {
            ret_pids[n++] = pid;
        }
    }
    if (proc) {
        (void)closedir(proc);
    }
    return n;
}

int e2e_kill9(const char *name)
{
    pid_t pids[E2E_PIDS_MAX];
    int n = e2e_pids(name, pids, E2E_PIDS_MAX);
    for (int i = 0; i < n; i++) {
        (void)kill(pids[i], SIGKILL);
    }
    return n;
}

const char *e2e_redis_socket(void)
{
    static char path[CONFIG_STR_MAX];
    const char *url = e2e_config()->redis_url;
    (void)snprintf(path, sizeof path, "%s", strncmp(url, "unix://", 7) == 0 ? url + 7 : url);
    return path;
}
