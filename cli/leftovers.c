#include "cli/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/proc.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define GRACE_MS 3000 /* the kernel has told them already; this is for the stubborn */
#define SWEEP_AGE_S 60
#define SWEEP_ENTRIES_MAX 10000
#define RUN_NAME_CHARS 8        /* config.c: the home's hash */
#define GRACE_POSTGRES_MS 15000 /* its last checkpoint saves the next start a recovery */

int home_lock(const struct config *c, int *ret_fd, pid_t *ret_pid, struct err *err)
{
    char path[CONFIG_STR_MAX + 16], text[32] = "";
    (void)snprintf(path, sizeof path, "%s/up.lock", c->home);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK) {
            return err_sys(err, "lock %s", path);
        }
        (void)!pread(fd, text, sizeof text - 1, 0);
        *ret_pid = (pid_t)strtol(text, NULL, 10);
        return 0;
    }
    *ret_fd = TAKE_FD(fd);
    return 1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path);
    return 0;
}

static bool is_postgres(const struct proc_record *r)
{
    return strcmp(r->name, "postgres") == 0;
}

static int end_signal(const struct proc_record *r)
{
    return is_postgres(r) ? SIGINT : SIGTERM; /* SIGTERM would make Postgres wait for its clients */
}

int leftovers_clean(const struct config *c)
{
    static struct proc_record rows[PROC_RECORDS_MAX];
    int n = proc_records(c->run_dir, rows, PROC_RECORDS_MAX), ended = 0;
    /* First the ones that start others, all at once; Postgres its own way. */
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].name, SUPERVISOR_NAME) != 0) {
            (void)kill(rows[i].pid, end_signal(&rows[i]));
        }
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].name, SUPERVISOR_NAME) == 0) {
            continue;
        }
        if (proc_end(&rows[i], end_signal(&rows[i]),
                     is_postgres(&rows[i]) ? GRACE_POSTGRES_MS : GRACE_MS)) {
            (void)fprintf(stderr, "  %-10s ended    pid %d, left by a supervisor that was killed\n",
                          rows[i].name, (int)rows[i].pid);
            ended++;
        } else {
            (void)fprintf(stderr, "brood: %s (pid %d) of a killed supervisor does not end\n",
                          rows[i].name, (int)rows[i].pid);
        }
    }
    (void)nftw(c->run_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return ended;
}

static bool is_stale_name(int dir_fd, const char *name, const char *own)
{
    struct stat st;
    return strlen(name) == RUN_NAME_CHARS && strspn(name, "0123456789abcdef") == RUN_NAME_CHARS &&
           strcmp(name, own) != 0 && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == geteuid() && st.st_mtime + SWEEP_AGE_S < time(NULL);
}

int leftovers_sweep(const struct config *c)
{
    char parent[CONFIG_STR_MAX];
    (void)snprintf(parent, sizeof parent, "%s", c->run_dir);
    char *slash = strrchr(parent, '/');
    if (!slash || slash == parent) {
        return 0;
    }
    *slash = 0;
    DIR *d = opendir(parent);
    if (!d) {
        return 0;
    }
    int removed = 0, seen = 0;
    for (struct dirent *e; seen < SWEEP_ENTRIES_MAX && (e = readdir(d)); seen++) {
        /* unlinkat removes only what is empty at that very moment. */
        if (is_stale_name(dirfd(d), e->d_name, slash + 1) &&
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) == 0) {
            removed++;
        }
    }
    (void)closedir(d);
    return removed;
}
