#include "tests/support/fixture.h"
#include "common/store/tenants.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <jansson.h>

#include "common/base/clock.h"

#define START_MS_MAX 30000
#define ENV_REDIS "BROOD_TEST_FIXTURE_REDIS"
#define ENV_PG "BROOD_TEST_FIXTURE_PG"
#define TEMPLATE_DB "brood_template"

static int complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "fixture: ");
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
    return -1;
}

/* ---- processes ---- */

/* Postgres refuses to run as root. */
static const struct passwd *postgres_user(void)
{
    return geteuid() == 0 ? getpwnam("postgres") : NULL;
}

/* In the child. The signal is set after the change of user, which clears it. */
static void become(const struct passwd *user, pid_t parent, int death_signal)
{
    if (user && (setgroups(0, NULL) < 0 || setgid(user->pw_gid) < 0 || setuid(user->pw_uid) < 0)) {
        _exit(126);
    }
    (void)prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent) {
        _exit(126);
    }
}

static pid_t spawn(const char *const *argv, const struct passwd *user, int death_signal,
                   const char *log)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) {
        return pid;
    }
    if (log && !freopen(log, "a", stdout)) {
        _exit(126);
    }
    (void)dup2(STDOUT_FILENO, STDERR_FILENO);
    if (!freopen("/dev/null", "r", stdin)) {
        _exit(126);
    }
    become(user, parent, death_signal);
    (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int run(const char *const *argv, const struct passwd *user)
{
    pid_t pid = spawn(argv, user, SIGKILL, "/dev/null");
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        return complain("%s failed (status %d)", argv[0], status);
    }
    return 0;
}

static int mount_own(const struct server *s)
{
    char size[32];
    (void)snprintf(size, sizeof size, "size=%dm", s->size_mib);
    return mount("tmpfs", s->dir, "tmpfs", MS_NOSUID | MS_NODEV, size);
}

static int make_dir(struct server *s, const struct passwd *user)
{
    if (s->dir[0]) {
        return 0;
    }
    (void)snprintf(s->dir, sizeof s->dir, "/tmp/brood-t-XXXXXX");
    if (!mkdtemp(s->dir) || (s->size_mib && mount_own(s) < 0) || chmod(s->dir, 0755) < 0 ||
        (user && chown(s->dir, user->pw_uid, user->pw_gid) < 0)) {
        return complain("cannot make %s", s->dir);
    }
    return 0;
}

void server_end(struct server *s, int sig)
{
    if (s->pid > 0) {
        (void)kill(s->pid, sig);
        (void)waitpid(s->pid, NULL, 0);
        s->pid = 0;
    }
}

void server_remove(struct server *s)
{
    server_end(s, SIGQUIT);
    if (s->dir[0] && s->size_mib) {
        (void)umount2(s->dir, MNT_DETACH);
    }
    if (s->dir[0]) {
        const char *argv[] = { "rm", "-rf", "--", s->dir, NULL };
        (void)run(argv, NULL);
        s->dir[0] = 0;
    }
}

/* ---- redis ---- */

int redis_start(struct server *s)
{
    if (make_dir(s, NULL) < 0) {
        return -1;
    }
    char sock[128], log[128];
    (void)snprintf(sock, sizeof sock, "%s/redis.sock", s->dir);
    (void)snprintf(log, sizeof log, "%s/redis.log", s->dir);
    (void)snprintf(s->url, sizeof s->url, "unix://%s", sock);
    const char *argv[] = { "redis-server", "--port", "0", "--unixsocket", sock,  "--dir",
                           s->dir,         "--save", "",  "--appendonly", "yes", "--appendfsync",
                           "everysec",     NULL };
    s->pid = spawn(argv, NULL, SIGKILL, log);
    for (int64_t until = mono_ms() + START_MS_MAX; s->pid > 0 && mono_ms() < until; sleep_ms(5)) {
        struct queue q;
        struct err err;
        int rc = queue_open(&q, s->url, &err);
        queue_close(&q);
        if (rc == 0) {
            return 0;
        }
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
        }
    }
    return complain("redis-server did not start, see %s", log);
}

/* ---- postgres ---- */

static int find_bin(const char *name, char *out, size_t room)
{
    glob_t g;
    char pattern[128];
    (void)snprintf(pattern, sizeof pattern, "/usr/lib/postgresql/*/bin/%s", name);
    int rc = -1;
    if (glob(pattern, 0, NULL, &g) == 0) {
        (void)snprintf(out, room, "%s", g.gl_pathv[g.gl_pathc - 1]);
        rc = 0;
    }
    globfree(&g);
    return rc < 0 ? complain("no %s: install postgresql", pattern) : 0;
}

/* initdb takes seconds, a copy of its result does not: one is kept for the user under /tmp, put in
 * place by rename. */
static int cached_cluster(const struct passwd *user, char *out, size_t room)
{
    char initdb[128];
    if (find_bin("initdb", initdb, sizeof initdb) < 0) {
        return -1;
    }
    unsigned version = (unsigned)strtoul(initdb + strlen("/usr/lib/postgresql/"), NULL, 10);
    (void)snprintf(out, room, "/tmp/brood-test-pg%u-%u", version, (unsigned)geteuid());
    char whole[160];
    (void)snprintf(whole, sizeof whole, "%s/global/pg_control", out);
    if (access(whole, F_OK) == 0) {
        return 0;
    }
    struct server tmp = { .pid = 0 };
    if (make_dir(&tmp, user) < 0) {
        return -1;
    }
    char data[128];
    (void)snprintf(data, sizeof data, "%s/data", tmp.dir);
    const char *argv[] = { initdb,
                           "-D",
                           data,
                           "-U",
                           "brood",
                           "-A",
                           "trust",
                           "-E",
                           "UTF8",
                           "--locale=C.UTF-8",
                           "--wal-segsize=4",
                           NULL };
    int rc = run(argv, user);
    if (rc == 0 && rename(data, out) < 0 && access(whole, F_OK) < 0) {
        rc = complain("cannot put %s in place", out);
    }
    server_remove(&tmp);
    return rc;
}

static int pg_ready(const struct server *s)
{
    char url[300];
    (void)snprintf(url, sizeof url, "%s dbname=postgres", s->url);
    return PQping(url) == PQPING_OK;
}

int postgres_start(struct server *s)
{
    const struct passwd *user = postgres_user();
    char data[128], log[128], bin[128], cache[128];
    bool first = !s->dir[0];
    if (find_bin("postgres", bin, sizeof bin) < 0 || make_dir(s, user) < 0) {
        return -1;
    }
    (void)snprintf(data, sizeof data, "%s/data", s->dir);
    (void)snprintf(log, sizeof log, "%s/postgres.log", s->dir);
    (void)snprintf(s->url, sizeof s->url, "host=%s user=brood", s->dir);
    if (first) {
        if (cached_cluster(user, cache, sizeof cache) < 0) {
            return -1;
        }
        const char *copy[] = { "cp", "-a", cache, data, NULL };
        if (run(copy, NULL) < 0) {
            return -1;
        }
    }
    const char *argv[] = { bin,
                           "-D",
                           data,
                           "-k",
                           s->dir,
                           "-c",
                           "listen_addresses=",
                           "-c",
                           "shared_buffers=32MB",
                           "-c",
                           "max_connections=50",
                           "-c",
                           "fsync=on",
                           NULL };
    s->pid = spawn(argv, user, SIGQUIT, log);
    for (int64_t until = mono_ms() + START_MS_MAX; s->pid > 0 && mono_ms() < until; sleep_ms(10)) {
        if (pg_ready(s)) {
            return 0;
        }
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
        }
    }
    return complain("postgres did not start, see %s", log);
}

/* ---- the program ---- */

static void sql_or_die(const char *url, const char *sql)
{
    PGconn *c = PQconnectdb(url);
    PGresult *r = PQexec(c, sql);
    ExecStatusType s = PQresultStatus(r);
    if (s != PGRES_COMMAND_OK && s != PGRES_TUPLES_OK) {
        (void)complain("%s: %s", sql, PQerrorMessage(c));
        abort();
    }
    PQclear(r);
    PQfinish(c);
}

static int make_template(const struct server *pg)
{
    char url[320];
    (void)snprintf(url, sizeof url, "%s dbname=postgres", pg->url);
    sql_or_die(url, "CREATE DATABASE " TEMPLATE_DB);
    (void)snprintf(url, sizeof url, "%s dbname=" TEMPLATE_DB, pg->url);
    struct pg db;
    struct err err;
    const struct template_info t = {
        .name = "python", .digest = "d1", .memory_mib = 512, .vcpus = 1
    };
    int rc = pg_open(&db, url, &err);
    rc = rc < 0 ? rc : pg_migrate(&db, &err);
    rc = rc < 0 ? rc : store_template_put(&db, &t, &err);
    pg_close(&db);
    return rc < 0 ? complain("%s", err.text) : 0;
}

int fixture_main(int argc, char **argv)
{
    struct server redis = { .pid = 0 }, pg = { .pid = 0 };
    struct criterion_test_set *tests = criterion_initialize();
    int result = 1;
    if (!criterion_handle_args(argc, argv, true)) {
        result = 0; /* --help and the like */
    } else if (redis_start(&redis) == 0 && postgres_start(&pg) == 0 && make_template(&pg) == 0) {
        (void)setenv(ENV_REDIS, redis.url, 1);
        (void)setenv(ENV_PG, pg.url, 1);
        result = !criterion_run_all_tests(tests);
    }
    criterion_finalize(tests);
    server_remove(&redis);
    server_remove(&pg);
    return result;
}

/* ---- in a test ---- */

#define MUST(call)                                                                                 \
    do {                                                                                           \
        struct err err_;                                                                           \
        err_.text[0] = 0;                                                                          \
        int rc_ = (call);                                                                          \
        cr_assert_geq(rc_, 0, "%s: %s", #call, err_.text);                                         \
    } while (0)

void fixture_open(struct fixture *f)
{
    static int count;
    const char *redis = getenv(ENV_REDIS), *pg = getenv(ENV_PG);
    cr_assert(redis && pg, "the program's main is not FIXTURE_MAIN");
    char url[320], sql[128], name[48];
    (void)snprintf(url, sizeof url, "%s dbname=postgres", pg);
    (void)snprintf(name, sizeof name, "t%d_%d", (int)getpid(), count++);
    (void)snprintf(sql, sizeof sql, "CREATE DATABASE %s TEMPLATE " TEMPLATE_DB, name);
    sql_or_die(url, sql);
    (void)snprintf(f->pg_url, sizeof f->pg_url, "%s dbname=%s", pg, name);
    (void)snprintf(f->redis_url, sizeof f->redis_url, "%s", redis);
    MUST(pg_open(&f->pg, f->pg_url, &err_));
    MUST(queue_open(&f->queue, f->redis_url, &err_));
    redisReply *r = redisCommand(f->queue.ctx, "FLUSHALL");
    cr_assert(r && r->type == REDIS_REPLY_STATUS, "FLUSHALL");
    freeReplyObject(r);
    MUST(queue_setup(&f->queue, &err_));
}

static struct job_spec *specs[1024]; /* handed out in this test */
static int n_specs;

void fixture_close(struct fixture *f)
{
    while (n_specs > 0) {
        job_spec_free(specs[--n_specs]);
    }
    pg_close(&f->pg);
    queue_close(&f->queue);
}

void fixture_value(struct fixture *f, const char *sql, char *out, size_t room)
{
    PGconn *c = PQconnectdb(f->pg_url);
    PGresult *r = PQexec(c, sql);
    cr_assert_eq(PQresultStatus(r), PGRES_TUPLES_OK, "%s: %s", sql, PQerrorMessage(c));
    (void)snprintf(out, room, "%s", PQntuples(r) ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    PQfinish(c);
}

long fixture_number(struct fixture *f, const char *sql)
{
    char text[64];
    fixture_value(f, sql, text, sizeof text);
    return strtol(text, NULL, 10);
}

const struct job_spec *fixture_job(const char *command, const char *key)
{
    json_t *o = json_pack("{s:s, s:s, s:s*}", "template", "python", "command", command,
                          "idempotency_key", key);
    char *text = json_dumps(o, 0);
    json_decref(o);
    struct job_spec *spec = NULL;
    MUST(job_parse(text, strlen(text), &spec, &err_));
    free(text);
    cr_assert_lt(n_specs, (int)(sizeof specs / sizeof specs[0]));
    specs[n_specs++] = spec;
    return spec;
}

struct dispatch_all {
    struct dispatch_want wants[DISPATCH_WANTS_MAX];
    char names[DISPATCH_WANTS_MAX][JOB_TENANT_MAX + 1];
    int n, max;
};

static int add_want(void *ctx, const char *tenant, enum job_priority priority, int64_t n,
                    int64_t run_us)
{
    struct dispatch_all *d = ctx;
    (void)n;
    (void)run_us;
    if (d->n < DISPATCH_WANTS_MAX) {
        (void)snprintf(d->names[d->n], sizeof d->names[d->n], "%s", tenant);
        d->wants[d->n] =
            (struct dispatch_want){ .tenant = d->names[d->n], .priority = priority, .n = d->max };
        d->n++;
    }
    return 0;
}

int fixture_dispatch(struct pg *pg, int max, struct dispatch_row *ret_rows, struct err *err)
{
    static struct dispatch_all d;
    d.n = 0;
    d.max = max;
    int rc = store_waiting(pg, add_want, &d, err), got = 0;
    for (int i = 0; i < d.n && rc >= 0 && got < max; i++) {
        d.wants[i].n = max - got;
        rc = store_dispatch(pg, &d.wants[i], 1, ret_rows + got, max - got, err);
        got += rc > 0 ? rc : 0;
    }
    return rc < 0 ? rc : got;
}
