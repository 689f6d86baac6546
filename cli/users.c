#include "cli/users.h"

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

#define WALK_FDS 16

/* What a service owns below the home, or in it. */
static const struct {
    enum service_id service;
    const char *name;
    mode_t mode; /* of a folder, which is made; 0: a file, or a folder that another makes */
} owned[] = {
    { SVC_REDIS, "redis", 0700 },    { SVC_VMPOOL, "snapshots", 0711 },
    { SVC_VMPOOL, "kept", 0750 },    { SVC_VMPOOL, "vmpool.lock", 0 },
    { SVC_WORKER, "objects", 0700 }, { SVC_WORKER, "spool", 0 },
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

/* Can this user walk to path? */
static bool reaches(const struct user *u, const char *path)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(setgroups(0, NULL) == 0 && setgid(u->gid) == 0 && setuid(u->uid) == 0 &&
                      access(path, X_OK) == 0
                  ? 0
                  : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int users_find(const struct config *c, struct users *ret_users, struct err *err)
{
    struct users u = { 0 };
    const uid_t first = config_uids(c);
    const struct {
        enum service_id service;
        const char *name, *key;
    } rows[] = { { SVC_REDIS, c->user_redis, "user.redis" },
                 { SVC_SCHEDULER, c->user_scheduler, "user.scheduler" },
                 { SVC_VMPOOL, c->user_vmpool, "user.vmpool" },
                 { SVC_WORKER, c->user_worker, "user.worker" } };
    for (int i = 0; i < SVC_COUNT; i++) {
        u.of[i] = (struct user){ PROC_KEEP_USER, first };
    }
    if (geteuid() != 0) {
        (void)snprintf(u.why_not, sizeof u.why_not, "brood up is not root");
        *ret_users = u;
        return 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct user *one = &u.of[rows[i].service];
        /* the key of jobs' secrets is read by these two, and is its owner's alone */
        bool stays = rows[i].service == SVC_SCHEDULER || rows[i].service == SVC_WORKER;
        int rc =
            find_one(rows[i].name, rows[i].key, stays ? 0 : first + 1 + (uid_t)i, &one->uid, err);
        if (rc < 0) {
            return rc;
        }
        if (one->uid == 0) {
            one->uid = PROC_KEEP_USER;
        } else if (!reaches(one, c->home) || !reaches(one, cli_self_dir())) {
            (void)snprintf(u.why_not, sizeof u.why_not, "user %u cannot reach %.100s",
                           (unsigned)one->uid, reaches(one, c->home) ? cli_self_dir() : c->home);
            one->uid = PROC_KEEP_USER;
        }
        u.own = u.own || one->uid != PROC_KEEP_USER;
    }
    *ret_users = u;
    return 0;
}

static struct user walk_user; /* nftw takes no argument */

static int give(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && st->st_nlink > 1) {
        return 0; /* whoever could put a link here did not own the file for that */
    }
    if (st->st_uid != walk_user.uid || st->st_gid != walk_user.gid) {
        (void)!lchown(path, walk_user.uid, walk_user.gid);
    }
    return 0;
}

static int give_tree(const char *path, const struct user *u, struct err *err)
{
    walk_user = *u;
    if (nftw(path, give, WALK_FDS, FTW_PHYS) < 0 && errno != ENOENT) {
        return err_sys(err, "%s", path);
    }
    return 0;
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
        struct user one = u->of[owned[i].service];
        char path[CONFIG_STR_MAX + 32];
        (void)snprintf(path, sizeof path, "%s/%s", c->home, owned[i].name);
        if (one.uid == PROC_KEEP_USER) {
            one = (struct user){ 0, gid };
        }
        if (owned[i].mode && mkdir(path, owned[i].mode) < 0 && errno != EEXIST) {
            rc = err_sys(err, "mkdir %s", path);
        }
        rc = rc < 0 ? rc : give_tree(path, &one, err);
    }
    return rc;
}
