#include "cli/pgserver.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/proc.h"
#include "cli/service_env.h"
#include "common/base/cleanup.h"

#define FALLBACK_DIR "/var/lib/brood-pg"
#define ORPHAN_WAIT_MS 10000

bool config_postgres_embedded(const struct config *c)
{
    char start[CONFIG_STR_MAX + 32];
    (void)snprintf(start, sizeof start, "host=%s/pg ", c->run_dir);
    return strncmp(c->postgres_url, start, strlen(start)) == 0;
}

bool config_redis_embedded(const struct config *c)
{
    char own[CONFIG_STR_MAX + 32];
    (void)snprintf(own, sizeof own, "unix://%s/redis.sock", c->run_dir);
    return strcmp(c->redis_url, own) == 0;
}

/* The newest version that Debian's layout has; else initdb's folder in PATH. */
static int find_bin_dir(struct pgserver *s, struct err *err)
{
    glob_t g;
    int best = 0;
    if (glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            int version = 0;
            if (sscanf(g.gl_pathv[i], "/usr/lib/postgresql/%d/", &version) == 1 && version > best) {
                best = version;
                (void)snprintf(s->bin_dir, sizeof s->bin_dir, "/usr/lib/postgresql/%d/bin",
                               version);
            }
        }
        globfree(&g);
    }
    const char *path = getenv("PATH");
    for (const char *p = path; best == 0 && p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
        char probe[PATH_MAX];
        int n = (int)strcspn(p, ":");
        (void)snprintf(probe, sizeof probe, "%.*s/initdb", n, p);
        if (n > 0 && n < 400 && access(probe, X_OK) == 0) {
            (void)snprintf(s->bin_dir, sizeof s->bin_dir, "%.*s", n, p);
            best = 1;
        }
    }
    return best ? 0
                : err_set(err, ERR_NOT_FOUND,
                          "Postgres' programs (initdb, postgres) are not there: apt-get install "
                          "postgresql, or set postgres.url");
}

static int find_user(struct pgserver *s, struct err *err)
{
    static const char *const names[] = { "postgres", "nobody" };
    s->uid = PROC_KEEP_USER;
    if (geteuid() != 0) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        const struct passwd *pw = getpwnam(names[i]);
        if (pw && pw->pw_uid != 0) {
            s->uid = pw->pw_uid;
            s->gid = pw->pw_gid;
            (void)snprintf(s->user, sizeof s->user, "%s", names[i]);
            return 0;
        }
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "Postgres refuses to run as root, and there is no user postgres: apt-get "
                   "install postgresql");
}

/* Can the server's user walk to dir, or to its nearest parent that exists? */
static bool reachable(const struct pgserver *s, const char *path)
{
    char dir[CONFIG_STR_MAX];
    (void)snprintf(dir, sizeof dir, "%s", path);
    while (access(dir, F_OK) != 0 && strrchr(dir, '/') > dir) {
        *strrchr(dir, '/') = 0;
    }
    if (s->uid == PROC_KEEP_USER) {
        return true;
    }
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = setgroups(0, NULL) == 0 && setgid(s->gid) == 0 && setuid(s->uid) == 0 &&
                  access(dir, X_OK) == 0;
        _exit(ok ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int pgserver_find(struct pgserver *s, const struct config *c, struct err *err)
{
    *s = (struct pgserver){ 0 };
    int rc;
    if ((rc = find_bin_dir(s, err)) < 0 || (rc = find_user(s, err)) < 0) {
        return rc;
    }
    const char *hash = strrchr(c->run_dir, '/') + 1;
    char outside[CONFIG_STR_MAX];
    (void)snprintf(outside, sizeof outside, FALLBACK_DIR "/%.64s", hash);
    (void)snprintf(s->data_dir, sizeof s->data_dir, "%.480s/postgres/data", c->home);
    (void)snprintf(s->socket_dir, sizeof s->socket_dir, "%.480s/pg", c->run_dir);
    char version[CONFIG_STR_MAX + 16];
    (void)snprintf(version, sizeof version, "%s/PG_VERSION", outside);
    if (!reachable(s, c->home) || access(version, F_OK) == 0) {
        s->outside_home = true;
        (void)snprintf(s->data_dir, sizeof s->data_dir, "%s", outside);
    }
    return 0;
}

bool pgserver_is_new(const struct pgserver *s)
{
    char path[CONFIG_STR_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/PG_VERSION", s->data_dir);
    return access(path, F_OK) != 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int make_owned_dir(const struct pgserver *s, const char *path, mode_t mode, struct err *err)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST) {
        return err_sys(err, "mkdir %s", path);
    }
    if (s->uid != PROC_KEEP_USER && chown(path, s->uid, s->gid) < 0) {
        return err_sys(err, "chown %s", path);
    }
    return chmod(path, mode) < 0 ? err_sys(err, "chmod %s", path) : 0;
}

static int run_tool(const struct pgserver *s, char *const *argv, const char *input, const char *cwd,
                    const char *log_path, struct err *err)
{
    char *env[SERVICE_ENV_MAX];
    struct spawn_opts o = { .argv = argv,
                            .env = env,
                            .log_path = log_path,
                            .cwd = cwd,
                            .input = input,
                            .uid = s->uid,
                            .gid = s->gid,
                            .death_signal = SIGKILL };
    int status = service_env(SVC_POSTGRES, environ, env, err);
    status = status < 0 ? status : proc_run(&o, err);
    if (status > 0) {
        return err_set(err, ERR_SYS, "%s ended with status %d; see %s", argv[0], status, log_path);
    }
    return status;
}

int pgserver_init(const struct pgserver *s, const char *log_path, struct err *err)
{
    char parent[CONFIG_STR_MAX], fresh[CONFIG_STR_MAX + 8], initdb[CONFIG_STR_MAX + 16],
        postgres[CONFIG_STR_MAX + 16];
    (void)snprintf(parent, sizeof parent, "%s", s->data_dir);
    *strrchr(parent, '/') = 0;
    (void)snprintf(fresh, sizeof fresh, "%s.new", s->data_dir);
    (void)snprintf(initdb, sizeof initdb, "%s/initdb", s->bin_dir);
    (void)snprintf(postgres, sizeof postgres, "%s/postgres", s->bin_dir);
    int rc = make_owned_dir(s, parent, 0711, err);
    if (rc < 0) {
        return rc;
    }
    (void)nftw(fresh, remove_entry, 16, FTW_DEPTH | FTW_PHYS); /* of an init that was killed */
    char *make[] = { initdb,
                     (char *)"-D",
                     fresh,
                     (char *)"-U",
                     (char *)"postgres",
                     (char *)"-A",
                     (char *)"trust",
                     (char *)"-E",
                     (char *)"UTF8",
                     (char *)"--locale=C.UTF-8",
                     (char *)"--no-sync",
                     NULL };
    /* Role and database in single-user mode, before the folder gets its name: a cluster that is
     * there is complete. */
    char *single[] = {
        postgres, (char *)"--single", (char *)"-D", fresh, (char *)"postgres", NULL
    };
    if ((rc = run_tool(s, make, NULL, parent, log_path, err)) < 0 ||
        (rc = run_tool(s, single, "CREATE ROLE brood LOGIN;\nCREATE DATABASE brood OWNER brood;\n",
                       parent, log_path, err)) < 0) {
        return rc;
    }
    /* One flush of the file system instead of initdb's fsync of every file. */
    cleanup_close int dir = open(fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || syncfs(dir) < 0) {
        return err_sys(err, "sync %s", fresh);
    }
    return rename(fresh, s->data_dir) < 0 ? err_sys(err, "rename %s", fresh) : 0;
}

/* postmaster.pid of a server that was killed: its process may live (then it is ended), or its pid
 * may be somebody else's by now (then the server would refuse to start). A postmaster's working
 * folder is its data folder. */
static int clear_stale(const struct pgserver *s, struct err *err)
{
    char path[CONFIG_STR_MAX + 32], link[64], cwd[PATH_MAX];
    int pid = 0;
    (void)snprintf(path, sizeof path, "%s/postmaster.pid", s->data_dir);
    cleanup_fclose FILE *f = fopen(path, "re");
    if (!f) {
        return 0;
    }
    if (fscanf(f, "%d", &pid) == 1 && pid > 1) {
        (void)snprintf(link, sizeof link, "/proc/%d/cwd", pid);
        ssize_t n = readlink(link, cwd, sizeof cwd - 1);
        cwd[n > 0 ? n : 0] = 0;
        struct proc_record r = { .pid = pid, .start = proc_start_time(pid) };
        if (strcmp(cwd, s->data_dir) == 0 && !proc_end(&r, SIGQUIT, ORPHAN_WAIT_MS)) {
            return err_set(err, ERR_CONFLICT,
                           "another Postgres (pid %d) runs on %s and does not end", pid,
                           s->data_dir);
        }
    }
    return unlink(path) < 0 && errno != ENOENT ? err_sys(err, "%s", path) : 0;
}

static void add_setting(struct pgserver *s, int *n, int *argc, const char *text)
{
    (void)snprintf(s->settings[*n], sizeof s->settings[0], "%s", text);
    s->argv[(*argc)++] = (char *)"-c";
    s->argv[(*argc)++] = s->settings[(*n)++];
}

int pgserver_prepare(struct pgserver *s, struct err *err)
{
    static const char *const fixed[] = {
        "listen_addresses=",
        "shared_buffers=128MB",
        "max_connections=100",
        "fsync=on",
        "synchronous_commit=on",
        "wal_compression=on",
        "jit=off",
        "logging_collector=off",
        "log_min_messages=warning",
        "log_checkpoints=off",
        "recovery_init_sync_method=syncfs",
        "max_wal_size=1GB",
    };
    /* the services' group comes in, when they have one */
    int rc = make_owned_dir(s, s->socket_dir, s->socket_gid ? 0710 : 0700, err);
    if (rc == 0 && s->socket_gid && chown(s->socket_dir, s->uid, s->socket_gid) < 0) {
        rc = err_sys(err, "chown %s", s->socket_dir);
    }
    if (rc < 0 || (rc = clear_stale(s, err)) < 0) {
        return rc;
    }
    int n = 0, argc = 0;
    char text[CONFIG_STR_MAX + 32];
    (void)snprintf(s->settings[n], sizeof s->settings[0], "%s/postgres", s->bin_dir);
    s->argv[argc++] = s->settings[n++];
    s->argv[argc++] = (char *)"-D";
    s->argv[argc++] = s->data_dir;
    (void)snprintf(text, sizeof text, "unix_socket_directories=%s", s->socket_dir);
    add_setting(s, &n, &argc, text);
    (void)snprintf(text, sizeof text, "unix_socket_permissions=%s",
                   s->socket_gid ? "0770" : "0700");
    add_setting(s, &n, &argc, text);
    if (s->socket_gid) {
        (void)snprintf(text, sizeof text, "unix_socket_group=%u", (unsigned)s->socket_gid);
        add_setting(s, &n, &argc, text);
    }
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        add_setting(s, &n, &argc, fixed[i]);
    }
    s->argv[argc] = NULL;
    return 0;
}
