#include "guest/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "guest/boot.h"
#include "guest/path.h"

#define WIPE_DEPTH_MAX 64

static int open_below(int dir_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC,
                            .mode = mode,
                            .resolve =
                                RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
}

static int make_parents(int work_fd, const char *path)
{
    char part[sizeof((guest_File *)0)->path];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        memcpy(part, path, n);
        part[n] = '\0';
        cleanup_close int have = open_below(work_fd, part, O_PATH | O_DIRECTORY, 0);
        if (have >= 0) {
            continue;
        }
        if (errno != ENOENT) {
            return -1;
        }
        char *name = strrchr(part, '/');
        cleanup_close int up = -1;
        if (name) {
            *name++ = '\0';
            up = open_below(work_fd, part, O_PATH | O_DIRECTORY, 0);
        } else {
            name = part;
            up = fcntl(work_fd, F_DUPFD_CLOEXEC, 0);
        }
        if (up < 0 || mkdirat(up, name, 0755) < 0 ||
            fchownat(up, name, BOOT_UID, BOOT_UID, AT_SYMLINK_NOFOLLOW) < 0) {
            return -1;
        }
    }
    return 0;
}

static int file_error(struct err *err, const char *path)
{
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
        return err_set(err, ERR_TOO_LARGE, "%s: no space for the job's files", path);
    }
    if (errno == ELOOP || errno == EXDEV) {
        return err_set(err, ERR_INVALID, "%s: a part of the path is a symbolic link", path);
    }
    if (errno == EISDIR || errno == ENOTDIR || errno == EEXIST || errno == ENXIO) {
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    }
    return err_sys(err, "%s", path);
}

/* An O_PATH fd of the folder that holds path's last part, made as needed. */
static int open_parent(int work_fd, const char *path)
{
    char up[sizeof((guest_File *)0)->path];
    const char *slash = strrchr(path, '/');
    if (!slash) {
        return fcntl(work_fd, F_DUPFD_CLOEXEC, 0);
    }
    memcpy(up, path, (size_t)(slash - path));
    up[slash - path] = '\0';
    int fd = open_below(work_fd, up, O_PATH | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOENT && make_parents(work_fd, path) == 0) {
        fd = open_below(work_fd, up, O_PATH | O_DIRECTORY, 0);
    }
    return fd;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int make_link(int work_fd, const guest_File *msg, struct err *err)
{
    char target[sizeof msg->target.bytes + 1];
    memcpy(target, msg->target.bytes, msg->target.size);
    target[msg->target.size] = '\0';
    if (msg->size > 0 || msg->folder || !path_link_is_below(msg->path, target, msg->target.size)) {
        return err_set(err, ERR_INVALID, "%s: a link out of the work folder", msg->path);
    }
    cleanup_close int up = open_parent(work_fd, msg->path);
    const char *name = last_part(msg->path);
    if (up >= 0) { /* one that an earlier archive left is replaced, as a file is */
        (void)unlinkat(up, name, 0);
    }
    if (up < 0 || symlinkat(target, up, name) < 0 ||
        fchownat(up, name, BOOT_UID, BOOT_UID, AT_SYMLINK_NOFOLLOW) < 0) {
        return file_error(err, msg->path);
    }
    return 0;
}

static int make_folder(int work_fd, const guest_File *msg, struct err *err)
{
    if (msg->size > 0) {
        return err_set(err, ERR_INVALID, "%s: a folder with content", msg->path);
    }
    cleanup_close int up = open_parent(work_fd, msg->path);
    if (up < 0 || (mkdirat(up, last_part(msg->path), 0755) < 0 && errno != EEXIST)) {
        return file_error(err, msg->path);
    }
    cleanup_close int fd = open_below(work_fd, msg->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0 || fchown(fd, BOOT_UID, BOOT_UID) < 0 || fchmod(fd, msg->mode) < 0) {
        return file_error(err, msg->path);
    }
    return 0;
}

int job_file_open(struct job_file *f, int work_fd, const guest_File *msg, struct err *err)
{
    *f = (struct job_file){ .fd = -1, .left = msg->size };
    if (!path_is_below(msg->path) || msg->mode > 0777) {
        return err_set(err, ERR_INVALID, "path or mode of a file");
    }
    if (msg->target.size > 0 || msg->folder) {
        return msg->target.size > 0 ? make_link(work_fd, msg, err) : make_folder(work_fd, msg, err);
    }
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    cleanup_close int fd = open_below(work_fd, msg->path, flags, msg->mode);
    if (fd < 0 && errno == ENOENT && make_parents(work_fd, msg->path) == 0) {
        fd = open_below(work_fd, msg->path, flags, msg->mode);
    }
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return file_error(err, msg->path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(err, ERR_INVALID, "%s: is there and no plain file", msg->path);
    }
    if (fchown(fd, BOOT_UID, BOOT_UID) < 0 ||
        ((st.st_mode & 07777) != msg->mode && fchmod(fd, msg->mode) < 0)) {
        return file_error(err, msg->path);
    }
    if (f->left > 0) {
        f->fd = TAKE_FD(fd);
    }
    return 0;
}

int job_file_data(struct job_file *f, const uint8_t *data, size_t len, struct err *err)
{
    if (len > f->left) {
        job_file_drop(f);
        return err_set(err, ERR_PROTOCOL, "more data than the file's size");
    }
    f->left -= len;
    while (f->fd >= 0 && len > 0) {
        ssize_t n = write(f->fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            int rc = file_error(err, "file");
            (void)close(TAKE_FD(f->fd));
            return rc;
        }
        data += n;
        len -= (size_t)n;
    }
    if (f->left == 0) {
        job_file_drop(f);
    }
    return 0;
}

void job_file_drop(struct job_file *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
    }
    *f = (struct job_file){ .fd = -1 };
}

/* dir_fd is taken over. */
static void wipe(int dir_fd, int depth)
{
    DIR *dir = fdopendir(dir_fd);
    if (!dir) {
        (void)close(dir_fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(dir_fd, e->d_name, 0) == 0 || errno != EISDIR) {
            continue;
        }
        int sub = openat(dir_fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0 && depth < WIPE_DEPTH_MAX) {
            wipe(sub, depth + 1);
        } else if (sub >= 0) {
            (void)close(sub);
        }
        (void)unlinkat(dir_fd, e->d_name, AT_REMOVEDIR);
    }
    (void)closedir(dir);
}

void files_wipe(void)
{
    static const char *const dirs[] = { BOOT_WORK_DIR, "/tmp", "/var/tmp", "/dev/shm" };
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        int fd = open(dirs[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            wipe(fd, 0);
        }
    }
}
