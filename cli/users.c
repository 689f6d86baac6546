#include "cli/users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/proc.h"
#include "common/base/cleanup.h"
#include "common/store/pg.h"
#include "common/store/queue.h"

#define WALK_FDS 16
#define OBJECT_NAMES_MAX 300 /* 256 folders, tmp and a lock are the most that ours holds */
#define SHARED_MODE 02770    /* what is made in it gets its group */

/* Of the home's block: the first id is the group of all services, the next ones are users. */
enum { UID_REDIS = 1, UID_SCHEDULER, UID_VMPOOL, UID_WORKER, GID_STORES = 16, GID_STATES };

/* What a service owns below the home, or in it. */
static const struct {
    enum service_id service;
    const char *name;
    mode_t mode; /* of a folder, which is made; 0: a file, or a folder that another makes */
    int group;   /* of the block; not 0: every folder in it has this group and SHARED_MODE */
} owned[] = {
    { SVC_REDIS, "redis", 0700, 0 },
    { SVC_VMPOOL, "snapshots", 0711, 0 },
    { SVC_VMPOOL, "kept", SHARED_MODE, GID_STATES },
    { SVC_VMPOOL, "vmpool.lock", 0, 0 },
    { SVC_WORKER, "objects", SHARED_MODE, GID_STORES },
    { SVC_WORKER, "spool", 0, 0 },
};

static int find_one(const char *name, const char *key, uid_t own, uid_t *ret_uid, struct err *err)
{
    char *end;
    if (!*name) {
        *ret_uid = own;
        return 0;
    }
    unsigned long number = strtoul(name, &end, 10);
    const struct passwd *pw = *end ? getpwnam(name) : NULL;
    if ((*end && !pw) || (!*end && number >= UINT32_MAX)) {
        return err_set(err, ERR_INVALID, "%s: there is no user %.60s", key, name);
    }
    *ret_uid = pw ? pw->pw_uid : (uid_t)number;
    return 0;
}

/* ---- trying ---- */

enum can {
    CAN,
    CANNOT_BECOME,
    CANNOT_HOME,
    CANNOT_PROGRAMS,
    CANNOT_SETTINGS,
    CANNOT_OBJECTS,
    CANNOT_POSTGRES,
    CANNOT_REDIS
};

static bool reaches_postgres(const struct config *c)
{
    struct err err;
    cleanup_pg struct pg pg = { 0 };
    return pg_open(&pg, c->postgres_url, &err) == 0;
}

static bool reaches_redis(const struct config *c)
{
    struct err err;
    cleanup_queue struct queue q = { 0 };
    return queue_open(&q, c->redis_url, &err) == 0 && queue_ping(&q, &err) == 0;
}

static enum can walks(const struct config *c)
{
    return access(c->home, X_OK) < 0          ? CANNOT_HOME
           : access(cli_self_dir(), X_OK) < 0 ? CANNOT_PROGRAMS
                                              : CAN;
}

/* What scheduler and worker need besides. Files before connections. */
static enum can works(const struct config *c)
{
    const char *file = getenv("BROOD_CONFIG");
    if (file && *file && access(file, R_OK) < 0) {
        return CANNOT_SETTINGS;
    }
    if (access(c->object_dir, R_OK | W_OK | X_OK) < 0) {
        return CANNOT_OBJECTS;
    }
    if (!config_postgres_embedded(c) && !reaches_postgres(c)) {
        return CANNOT_POSTGRES;
    }
    return !config_redis_embedded(c) && !reaches_redis(c) ? CANNOT_REDIS : CAN;
}

/* The answer of a child that has become the user. */
static enum can as_user(const struct user *u, enum can (*ask)(const struct config *),
                        const struct config *c)
{
    int status = 0;
    (void)fflush(NULL);
    (void)
        cli_self_dir(); /* remembered: /proc/self is root's in a child that has changed its user */
    pid_t pid = fork();
    if (pid == 0) {
        _exit(proc_become(u->uid, u->gid, u->extra_gids) < 0 ? CANNOT_BECOME : ask(c));
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
               ? (enum can)WEXITSTATUS(status)
               : CANNOT_BECOME;
}

/* It stays root; the note names all that do, with the reason of the last. */
static void stays(struct users *u, enum service_id id, enum can why, const struct config *c)
{
    const struct {
        const char *what, *name;
    } reasons[] = { [CAN] = { "", "" },
                    [CANNOT_BECOME] = { "cannot be had", "" },
                    [CANNOT_HOME] = { "cannot reach ", c->home },
                    [CANNOT_PROGRAMS] = { "cannot reach ", cli_self_dir() },
                    [CANNOT_SETTINGS] = { "cannot read $BROOD_CONFIG", "" },
                    [CANNOT_OBJECTS] = { "cannot write to ", c->object_dir },
                    [CANNOT_POSTGRES] = { "is not let in by postgres.url", "" },
                    [CANNOT_REDIS] = { "is not let in by redis.url", "" } };
    size_t used = strlen(u->staying);
    (void)snprintf(u->staying + used, sizeof u->staying - used, "%s%s", used ? ", " : "",
                   service_name(id));
    (void)snprintf(u->why_not, sizeof u->why_not, "user %u %s%.160s", (unsigned)u->of[id].uid,
                   reasons[why].what, reasons[why].name);
    u->of[id].uid = PROC_KEEP_USER;
}

static void count_own(struct users *u)
{
    u->own = false;
    for (int i = 0; i < SVC_COUNT; i++) {
        u->own = u->own || u->of[i].uid != PROC_KEEP_USER;
    }
}

void users_try(const struct config *c, struct users *u)
{
    static const enum service_id ids[] = { SVC_SCHEDULER, SVC_WORKER };
    for (size_t i = 0; i < 2; i++) {
        enum can can =
            u->of[ids[i]].uid == PROC_KEEP_USER ? CAN : as_user(&u->of[ids[i]], works, c);
        if ((can == CANNOT_POSTGRES && !reaches_postgres(c)) ||
            (can == CANNOT_REDIS && !reaches_redis(c))) {
            can = CAN; /* not there yet: that is said by others */
        }
        if (can != CAN) {
            stays(u, ids[i], can, c);
        }
    }
    count_own(u);
}

void users_text(const struct user *u, char out[USERS_TEXT_MAX])
{
    int n = snprintf(out, USERS_TEXT_MAX, "--user=%u:%u", (unsigned)u->uid, (unsigned)u->gid);
    if (u->extra_gids[0]) {
        (void)snprintf(out + n, USERS_TEXT_MAX - (size_t)n, ":%u", (unsigned)u->extra_gids[0]);
    }
}

int users_find(const struct config *c, struct users *ret_users, struct err *err)
{
    struct users u = { 0 };
    const uid_t first = config_uids(c);
    const gid_t stores = first + GID_STORES, states = first + GID_STATES;
    const struct {
        enum service_id service;
        const char *name, *key;
        uid_t own;
        gid_t extra_gids[PROC_GIDS_MAX];
    } rows[] = {
        { SVC_REDIS, c->user_redis, "user.redis", UID_REDIS, { 0 } },
        { SVC_SCHEDULER, c->user_scheduler, "user.scheduler", UID_SCHEDULER, { stores } },
        { SVC_VMPOOL, c->user_vmpool, "user.vmpool", UID_VMPOOL, { states } },
        { SVC_WORKER, c->user_worker, "user.worker", UID_WORKER, { stores, states } },
    };
    for (int i = 0; i < SVC_COUNT; i++) {
        u.of[i] = (struct user){ .uid = PROC_KEEP_USER, .gid = first };
    }
    if (geteuid() != 0) {
        (void)snprintf(u.why_not, sizeof u.why_not, "brood up is not root");
        *ret_users = u;
        return 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct user *one = &u.of[rows[i].service];
        int rc = find_one(rows[i].name, rows[i].key, first + rows[i].own, &one->uid, err);
        if (rc < 0) {
            return rc;
        }
        memcpy(one->extra_gids, rows[i].extra_gids, sizeof one->extra_gids);
        enum can can = CAN;
        if (one->uid == 0) {
            one->uid = PROC_KEEP_USER;
        } else if ((can = as_user(one, walks, c)) != CAN) {
            stays(&u, rows[i].service, can, c);
        }
    }
    count_own(&u);
    *ret_users = u;
    return 0;
}

/* ---- owners and modes ---- */

static struct {
    uid_t uid;
    gid_t gid;
    mode_t mode;
} walk; /* nftw takes no argument */

static int give(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && st->st_nlink > 1) {
        return 0; /* whoever could put a link here did not own the file for that */
    }
    if (st->st_uid != walk.uid || st->st_gid != walk.gid) {
        (void)!lchown(path, walk.uid, walk.gid);
    }
    if (type == FTW_D && walk.mode && (st->st_mode & 07777) != walk.mode) {
        cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            (void)!fchmod(fd, walk.mode);
        }
    }
    return 0;
}

/* mode: of every folder; 0: as they are */
static int give_tree(const char *path, uid_t uid, gid_t gid, mode_t mode, struct err *err)
{
    walk.uid = uid;
    walk.gid = gid;
    walk.mode = mode;
    if (nftw(path, give, WALK_FDS, FTW_PHYS) < 0 && errno != ENOENT) {
        return err_sys(err, "%s", path);
    }
    return 0;
}

/* Is a folder that object.dir names, outside of the home, brood's: root's, with nothing in it but
 * what the directory driver makes? Whoever shares it with something else says himself who may. */
static bool is_ours(const char *path)
{
    struct stat st;
    DIR *d = opendir(path);
    const struct dirent *e;
    bool ours = d && fstat(dirfd(d), &st) == 0 && st.st_uid == 0;
    for (int n = 0; ours && n < OBJECT_NAMES_MAX && (e = readdir(d)); n++) {
        ours = e->d_name[0] == '.' || strcmp(e->d_name, "tmp") == 0 ||
               strcmp(e->d_name, "sweep.lock") == 0 ||
               (strlen(e->d_name) == 2 && strspn(e->d_name, "0123456789abcdef") == 2);
    }
    if (d) {
        (void)closedir(d);
    }
    return ours;
}

/* Everybody of the group may make files there, and remove only their own. */
static int share_folder(const char *path, gid_t gid, struct err *err)
{
    if (chown(path, 0, gid) < 0 || chmod(path, 01771) < 0) {
        return err_sys(err, "%s", path);
    }
    return 0;
}

/* HOME/brood.ini may hold passwords: readable for the group, and for nobody else than before. */
static void share_settings(const struct config *c, gid_t gid)
{
    char path[CONFIG_STR_MAX + 16];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/brood.ini", c->home);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0) {
        (void)!fchown(fd, (uid_t)-1, gid);
        (void)!fchmod(fd, (st.st_mode & 07777) | S_IRGRP);
    }
}

int users_prepare(const struct config *c, const struct users *u, struct err *err)
{
    if (!u->own) {
        return 0;
    }
    const gid_t gid = u->of[SVC_POSTGRES].gid;
    int rc = share_folder(c->home, gid, err);
    if (rc == 0 && access(c->run_dir, F_OK) == 0) { /* a template may be built without it */
        rc = share_folder(c->run_dir, gid, err);
    }
    share_settings(c, gid);
    for (size_t i = 0; i < sizeof owned / sizeof owned[0] && rc == 0; i++) {
        uid_t uid = u->of[owned[i].service].uid;
        gid_t group = owned[i].group ? config_uids(c) + (gid_t)owned[i].group : gid;
        char path[CONFIG_STR_MAX + 32];
        (void)snprintf(path, sizeof path, "%s/%s", c->home, owned[i].name);
        uid = uid == PROC_KEEP_USER ? 0 : uid;
        if (owned[i].mode && mkdir(path, owned[i].mode & 0777) < 0 && errno != EEXIST) {
            rc = err_sys(err, "mkdir %s", path);
        }
        mode_t mode = owned[i].group ? owned[i].mode : 0;
        rc = rc < 0 ? rc : give_tree(path, uid, group, mode, err);
        if (rc == 0 && owned[i].group == GID_STORES && strcmp(path, c->object_dir) != 0 &&
            is_ours(c->object_dir)) {
            rc = give_tree(c->object_dir, uid, group, mode, err);
        }
    }
    return rc;
}
