/* Temporary files. Each is locked (flock) by its maker as long as it lives; the lock goes with the
 * process, also at kill -9, so what can be locked by another has nobody who would finish it. */
#include "common/store/object_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"

#define TMP_PREFIX "put-"
#define SWEEP_MAX 100000 /* names looked at in one sweep; the next open goes on */

static void sweep(const char *tmp)
{
    DIR *d = opendir(tmp);
    if (!d) {
        return; /* the next put says why */
    }
    const struct dirent *e;
    for (int n = 0; n < SWEEP_MAX && (e = readdir(d)); n++) {
        if (strncmp(e->d_name, TMP_PREFIX, sizeof TMP_PREFIX - 1) != 0) {
            continue;
        }
        cleanup_close int fd =
            openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            (void)unlinkat(dirfd(d), e->d_name, 0);
        }
    }
    (void)closedir(d);
}

void object_keep_owner(const char *path, const char *parent)
{
    struct stat st;
    if (stat(parent, &st) < 0) {
        return;
    }
    if (st.st_mode & S_ISGID) {
        (void)!chmod(path, st.st_mode & 02770);
    }
    if (geteuid() == 0 && st.st_uid != 0) {
        (void)!lchown(path, st.st_uid, st.st_gid);
    }
}

int object_tmp_prepare(struct object_store *s, const char *dir, struct err *err)
{
    (void)snprintf(s->tmp, sizeof s->tmp, "%s/tmp", dir);
    const char *const dirs[] = { dir, s->tmp };
    for (int i = 0; i < 2; i++) {
        bool made = mkdir(dirs[i], 0700) == 0;
        if (!made && errno != EEXIST) {
            return err_sys(err, "object store: mkdir %s", dirs[i]);
        }
        if (made && i > 0) {
            object_keep_owner(dirs[i], dirs[i - 1]);
        }
        struct stat st;
        if (stat(dirs[i], &st) < 0) {
            return err_sys(err, "object store: %s", dirs[i]);
        }
        if (!S_ISDIR(st.st_mode)) {
            return err_set(err, ERR_INVALID, "object store: %s is not a folder", dirs[i]);
        }
    }
    sweep(s->tmp);
    return 0;
}

int object_tmp_new(struct object_store *s, struct object_tmp *ret_tmp, struct err *err)
{
    ret_tmp->fd = -1;
    ret_tmp->path[0] = 0;
    /* A sweep of another process can take the file between open and flock: then its link count is 0
     * and the next name is tried. */
    for (int attempt = 0; attempt < 8; attempt++) {
        char path[sizeof ret_tmp->path];
        (void)snprintf(path, sizeof path, "%s/" TMP_PREFIX "%d-%08x%08x", s->tmp, (int)getpid(),
                       randombytes_random(), randombytes_random());
        cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) {
            return err_sys(err, "object store: %s", path);
        }
        struct stat st;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink == 1) {
            (void)snprintf(ret_tmp->path, sizeof ret_tmp->path, "%s", path);
            ret_tmp->fd = TAKE_FD(fd);
            return 0;
        }
    }
    return err_set(err, ERR_UNAVAILABLE, "object store: temporary files in %s are being removed",
                   s->tmp);
}

void object_tmp_done(struct object_tmp *t)
{
    if (t->fd >= 0) {
        if (t->path[0]) {
            (void)unlink(t->path);
        }
        (void)close(t->fd);
    }
    *t = (struct object_tmp){ .fd = -1 };
}
