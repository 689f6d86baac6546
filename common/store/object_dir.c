/* The directory driver. ROOT/aa/bb/<digest>, files of mode 0444, and ROOT/tmp.
 *
 * A put writes a temporary file on the same file system, syncs it, renames it into place and syncs
 * the folder: there is no moment at which half an object has its name. An object that is there is
 * not written again, unless its size is wrong (a disk that lost the end of a file): then it is
 * replaced. Deleting does not take away a folder, so a put never finds its folder gone.
 *
 * A sweep looks at an object's age and removes it while it holds ROOT/sweep.lock alone; whoever
 * gives an object its name, or makes an old one young, holds it with others. So between the look
 * and the removal nobody can begin to count on the object. */
#include "common/store/object_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/store/object_dir.h"

#define ROOT_MAX 512

struct object_dir {
    struct object_store base;
    char root[ROOT_MAX];
};
#define DIR_PATH_MAX (ROOT_MAX + OBJECT_PATH + 2)

static const struct object_dir *dir_of(struct object_store *s)
{
    return (const struct object_dir *)(void *)s;
}

static void path_of(struct object_store *s, const struct object_id *id, char out[DIR_PATH_MAX])
{
    char part[OBJECT_PATH + 1];
    object_id_path(id, part);
    (void)snprintf(out, DIR_PATH_MAX, "%s/%s", dir_of(s)->root, part);
}

static int fail(const struct object_id *id, const char *path, struct err *err)
{
    if (errno == ENOENT) {
        return err_set(err, ERR_NOT_FOUND, "object %s: not in the store (%s)", id->hex, path);
    }
    return err_sys(err, "object store: %s", path);
}

static int dir_open(struct object_store *s, const struct object_id *id, int *ret_fd,
                    struct err *err)
{
    char path[DIR_PATH_MAX];
    path_of(s, id, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return fail(id, path, err);
    }
    *ret_fd = fd;
    return 0;
}

static int dir_size(struct object_store *s, const struct object_id *id, int stop_fd,
                    int64_t *ret_size, struct err *err)
{
    (void)stop_fd;
    char path[DIR_PATH_MAX];
    path_of(s, id, path);
    struct stat st;
    if (lstat(path, &st) < 0) {
        return fail(id, path, err);
    }
    *ret_size = st.st_size;
    return 0;
}

/* ---- the lock ---- */

/* how: LOCK_SH or LOCK_EX. Held until the descriptor is closed, so also by a process that is
 * killed no longer than it lives. */
static int lock_sweeps(struct object_store *s, int how, int *ret_fd, struct err *err)
{
    char path[DIR_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/sweep.lock", dir_of(s)->root);
    cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0660);
        (void)!fchmod(fd, 0660); /* for the group whatever the umask; no matter who was first */
    }
    int rc = fd < 0 ? -1 : flock(fd, how);
    while (rc < 0 && fd >= 0 && errno == EINTR) {
        rc = flock(fd, how);
    }
    if (rc < 0) {
        return err_sys(err, "object store: lock %s", path);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int64_t modified_ms(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

/* ---- put ---- */

/* Is all of it there? Then it is young: 1. 0: it is to be put, also where it is old and another
 * user's, whose times are not ours to change. */
static int found(struct object_store *s, const struct object_id *id, int64_t size, struct err *err)
{
    char path[DIR_PATH_MAX];
    struct stat st;
    path_of(s, id, path);
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != size) {
        return 0;
    }
    if (!object_is_old(s, modified_ms(&st))) {
        return 1;
    }
    cleanup_close int lock = -1;
    int rc = lock_sweeps(s, LOCK_SH, &lock, err);
    return rc < 0 ? rc : utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

static int sync_folder(const char *path, struct err *err)
{
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0) {
        return err_sys(err, "object store: sync %s", path);
    }
    return 0;
}

/* Make aa and aa/bb of path, each durable before something is put into it. Leaves the folder's path
 * in folder. */
static int make_folders(struct object_store *s, const struct object_id *id,
                        char folder[DIR_PATH_MAX], struct err *err)
{
    const char *root = dir_of(s)->root;
    char parent[DIR_PATH_MAX];
    (void)snprintf(parent, sizeof parent, "%s", root);
    for (int depth = 1; depth <= 2; depth++) {
        (void)snprintf(folder, DIR_PATH_MAX, depth == 1 ? "%s/%.2s" : "%s/%.2s/%.2s", root, id->hex,
                       id->hex + 2);
        if (mkdir(folder, 0700) == 0) {
            object_keep_owner(folder, parent);
            int rc = sync_folder(parent, err);
            if (rc < 0) {
                return rc;
            }
        } else if (errno != EEXIST) {
            return err_sys(err, "object store: mkdir %s", folder);
        }
        (void)snprintf(parent, sizeof parent, "%s", folder);
    }
    return 0;
}

static int place(struct object_store *s, struct object_put *put, struct object_tmp *tmp,
                 struct err *err)
{
    char path[DIR_PATH_MAX], folder[DIR_PATH_MAX];
    path_of(s, &put->ret_id, path);
    int rc = found(s, &put->ret_id, put->ret_size_bytes, err);
    if (rc != 0) {
        put->ret_existed = rc > 0;
        return rc < 0 ? rc : 0;
    }
    if (fchmod(tmp->fd, 0444) < 0 || fsync(tmp->fd) < 0) {
        return err_sys(err, "object store: sync %s", tmp->path);
    }
    cleanup_close int lock = -1;
    if ((rc = make_folders(s, &put->ret_id, folder, err)) < 0 ||
        (rc = lock_sweeps(s, LOCK_SH, &lock, err)) < 0) {
        return rc;
    }
    if (rename(tmp->path, path) < 0) {
        return err_sys(err, "object store: rename to %s", path);
    }
    tmp->path[0] = 0; /* it is the object now */
    return sync_folder(folder, err);
}

static int dir_put(struct object_store *s, struct object_put *put, struct err *err)
{
    struct object_source src;
    int rc = object_source_init(&src, put, err);
    if (rc < 0) {
        return rc;
    }
    int64_t announced = put->size_bytes >= 0 ? put->size_bytes : src.size;
    if (put->want && announced >= 0 && (rc = found(s, put->want, announced, err)) != 0) {
        put->ret_existed = rc > 0;
        put->ret_id = *put->want;
        put->ret_size_bytes = announced;
        return rc < 0 ? rc : 0;
    }
    struct object_tmp tmp;
    rc = object_tmp_new(s, &tmp, err);
    if (rc < 0) {
        return rc;
    }
    rc = object_source_drain(&src, put, tmp.fd, tmp.path, err);
    if (rc == 0) {
        rc = place(s, put, &tmp, err);
    }
    object_tmp_done(&tmp);
    return rc;
}

/* ---- get ---- */

static int copy_checked(const struct object_id *id, int fd, struct object_sink *sink,
                        int64_t *ret_size, struct err *err)
{
    cleanup_free uint8_t *chunk = malloc(OBJECT_CHUNK_BYTES);
    if (!chunk) {
        abort();
    }
    struct object_source src = { .fd = fd, .regular = true };
    struct object_hash h;
    object_hash_init(&h);
    int64_t at = 0;
    ssize_t n;
    while ((n = object_source_read(&src, at, chunk, OBJECT_CHUNK_BYTES)) > 0) {
        object_hash_add(&h, chunk, (size_t)n);
        int rc = object_sink_write(sink, chunk, (size_t)n, err);
        if (rc < 0) {
            return rc;
        }
        at += n;
    }
    if (n < 0) {
        return err_sys(err, "object %s: read", id->hex);
    }
    struct object_id is;
    object_id_from(&is, &h);
    *ret_size = at;
    return strcmp(is.hex, id->hex) == 0 ? 0 : object_corrupt(id, &is, "the stored file", err);
}

static int dir_get(struct object_store *s, const struct object_id *id, int fd, int64_t *ret_size,
                   struct err *err)
{
    cleanup_close int from = -1;
    int rc = dir_open(s, id, &from, err);
    if (rc < 0) {
        return rc;
    }
    struct object_sink sink;
    if ((rc = object_sink_init(&sink, fd, err)) < 0) {
        return rc;
    }
    rc = copy_checked(id, from, &sink, ret_size, err);
    if (rc < 0) {
        object_sink_undo(&sink);
        return rc;
    }
    return object_sink_keep(&sink, err);
}

static int dir_get_range(struct object_store *s, const struct object_id *id, int64_t offset,
                         int64_t length, int fd, int64_t fd_offset, int stop_fd, struct err *err)
{
    cleanup_close int from = -1;
    int rc = dir_open(s, id, &from, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_free uint8_t *chunk = malloc(OBJECT_CHUNK_BYTES);
    if (!chunk) {
        abort();
    }
    struct object_source src = { .fd = from, .regular = true };
    struct object_sink sink = { .fd = fd, .positioned = true, .at = fd_offset };
    for (int64_t done = 0; done < length;) {
        int64_t want = length - done < OBJECT_CHUNK_BYTES ? length - done : OBJECT_CHUNK_BYTES;
        ssize_t n = object_source_read(&src, offset + done, chunk, (size_t)want);
        if (n < 0) {
            return err_sys(err, "object %s: read", id->hex);
        }
        if (n == 0) {
            return err_set(err, ERR_INVALID,
                           "object %s: range %" PRId64 "+%" PRId64 " goes beyond its end, %" PRId64,
                           id->hex, offset, length, offset + done);
        }
        if ((rc = object_sink_write(&sink, chunk, (size_t)n, err)) < 0) {
            return rc;
        }
        done += n;
        if (object_stopped(s, stop_fd)) {
            return err_set(err, ERR_STALE, "object %s: given up", id->hex);
        }
    }
    return 0;
}

static int dir_remove(struct object_store *s, const struct object_id *id, struct err *err)
{
    char path[DIR_PATH_MAX];
    path_of(s, id, path);
    if (unlink(path) < 0 && errno != ENOENT) {
        return err_sys(err, "object store: remove %s", path);
    }
    return 0;
}

static int dir_sweep(struct object_store *s, const struct object_id *id, int64_t before_ms,
                     struct err *err)
{
    char path[DIR_PATH_MAX];
    struct stat st;
    cleanup_close int lock = -1;
    path_of(s, id, path);
    int rc = lock_sweeps(s, LOCK_EX, &lock, err);
    if (rc < 0) {
        return rc;
    }
    if (lstat(path, &st) < 0) {
        return errno == ENOENT ? 0 : err_sys(err, "object store: %s", path);
    }
    if (modified_ms(&st) >= before_ms) {
        return 0;
    }
    return unlink(path) < 0 ? err_sys(err, "object store: remove %s", path) : 1;
}

static int dir_list(struct object_store *s, const struct object_id *after, struct object_info *rows,
                    int max, struct err *err)
{
    return object_dir_walk(dir_of(s)->root, after, rows, max, err);
}

static void dir_free(struct object_store *s)
{
    free(s);
}

static const struct object_ops dir_ops = {
    .free = dir_free,
    .put = dir_put,
    .get = dir_get,
    .get_range = dir_get_range,
    .open = dir_open,
    .size = dir_size,
    .remove = dir_remove,
    .sweep = dir_sweep,
    .list = dir_list,
};

int object_dir_open(struct object_store **ret_store, const struct object_options *options,
                    struct err *err)
{
    if (options->dir[0] != '/') {
        return err_set(err, ERR_INVALID, "object.dir = \"%s\": must be an absolute path",
                       options->dir);
    }
    cleanup_free struct object_dir *d = calloc(1, sizeof *d);
    if (!d) {
        abort();
    }
    d->base.ops = &dir_ops;
    (void)snprintf(d->root, sizeof d->root, "%s", options->dir);
    (void)snprintf(d->base.name, sizeof d->base.name, "dir %s", d->root);
    int rc = object_tmp_prepare(&d->base, d->root, err);
    if (rc < 0) {
        return rc;
    }
    *ret_store = &TAKE_PTR(d)->base;
    return 0;
}
