#include "common/archive/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/path.h"

#define COPY_BYTES 65536u

struct pack {
    struct archive *a;
    struct archive_entry *entry;
    pack_write write;
    void *arg;
    int fd;
    struct err write_err; /* what write said: libarchive has no place for it */
    uint64_t left;        /* of the file in hand */
    char *last;           /* path of the entry before; owned */
    size_t last_len;
    bool last_is_dir;
};

static la_ssize_t on_write(struct archive *a, void *arg, const void *data, size_t n)
{
    struct pack *p = arg;
    if (p->write(p->arg, data, n, &p->write_err) < 0) {
        archive_set_error(a, EIO, "%s", p->write_err.text);
        return -1;
    }
    return (la_ssize_t)n;
}

static int write_fd(void *arg, const void *data, size_t n, struct err *err)
{
    const int *fd = arg;
    const char *at = data;
    while (n > 0) {
        ssize_t done = write(*fd, at, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return err_sys(err, "archive: write");
        }
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

static int failed(struct pack *p, struct err *err)
{
    if (p->write_err.code) {
        *err = p->write_err;
        return -err->code;
    }
    const char *why = archive_error_string(p->a);
    return err_set(err, ERR_INTERNAL, "archive: %s", why ? why : "cannot be written");
}

int pack_new(struct pack **ret_pack, pack_write write, void *arg, struct err *err)
{
    struct pack *p = calloc(1, sizeof *p);
    if (!p || !(p->a = archive_write_new()) || !(p->entry = archive_entry_new())) {
        abort();
    }
    p->write = write;
    p->arg = arg;
    p->fd = -1;
    char level[32];
    (void)snprintf(level, sizeof level, "%d", PACK_ZSTD_LEVEL);
    if (archive_write_set_format_gnutar(p->a) != ARCHIVE_OK ||
        archive_write_add_filter_zstd(p->a) != ARCHIVE_OK ||
        archive_write_set_filter_option(p->a, "zstd", "compression-level", level) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(p->a, 1) != ARCHIVE_OK ||
        archive_write_open(p->a, p, NULL, on_write, NULL) != ARCHIVE_OK) {
        int rc = failed(p, err);
        pack_free(p);
        return rc;
    }
    *ret_pack = p;
    return 0;
}

int pack_new_fd(struct pack **ret_pack, int fd, struct err *err)
{
    struct pack *p;
    int rc = pack_new(&p, write_fd, NULL, err);
    if (rc == 0) {
        p->fd = fd;
        p->arg = &p->fd;
        *ret_pack = p;
    }
    return rc;
}

static int swallow(void *arg, const void *data, size_t n, struct err *err)
{
    (void)arg;
    (void)data;
    (void)n;
    (void)err;
    return 0;
}

void pack_free(struct pack *p)
{
    if (!p) {
        return;
    }
    p->write = swallow; /* freeing an archive that is not finished would write its end */
    archive_entry_free(p->entry);
    (void)archive_write_free(p->a);
    free(p->last);
    free(p);
}

static int check_order(struct pack *p, const struct unpack_entry *e, struct err *err)
{
    if (p->left > 0) {
        return err_set(err, ERR_INVALID, "the file before it is not complete");
    }
    if (!path_clean(e->path, e->path_len)) {
        return err_set(err, ERR_INVALID, "must be relative, without \"..\", \".\" or empty parts");
    }
    if (p->last) {
        if (path_order(p->last, p->last_len, e->path, e->path_len) >= 0) {
            return err_set(err, ERR_INVALID, "twice or not in order");
        }
        if (!p->last_is_dir && path_below(e->path, e->path_len, p->last, p->last_len)) {
            return err_set(err, ERR_INVALID, "below another that is no folder");
        }
    }
    return 0;
}

static void remember(struct pack *p, const struct unpack_entry *e)
{
    free(p->last);
    p->last = malloc(e->path_len + 1);
    if (!p->last) {
        abort();
    }
    memcpy(p->last, e->path, e->path_len);
    p->last[e->path_len] = '\0';
    p->last_len = e->path_len;
    p->last_is_dir = e->type == UNPACK_DIR;
}

int pack_entry(struct pack *p, const struct unpack_entry *e, struct err *err)
{
    static const unsigned types[] = {
        [UNPACK_FILE] = AE_IFREG, [UNPACK_DIR] = AE_IFDIR, [UNPACK_LINK] = AE_IFLNK
    };
    assert(e->type == UNPACK_FILE || e->type == UNPACK_DIR || e->type == UNPACK_LINK);
    assert(e->type != UNPACK_FILE || e->size >= 0);
    int rc = check_order(p, e, err);
    if (rc < 0) {
        return err_prefix(err, "archive: %.*s", (int)e->path_len, e->path);
    }
    remember(p, e);
    archive_entry_clear(p->entry);
    archive_entry_set_pathname(p->entry, p->last);
    archive_entry_set_filetype(p->entry, types[e->type]);
    archive_entry_set_perm(p->entry, e->type == UNPACK_LINK ? 0777 : e->mode & 0777);
    archive_entry_set_mtime(p->entry, PACK_MTIME_S, 0);
    archive_entry_set_uid(p->entry, 0);
    archive_entry_set_gid(p->entry, 0);
    if (e->type == UNPACK_LINK) {
        archive_entry_set_symlink(p->entry, e->target);
    }
    p->left = e->type == UNPACK_FILE ? (uint64_t)e->size : 0;
    archive_entry_set_size(p->entry, (la_int64_t)p->left);
    return archive_write_header(p->a, p->entry) == ARCHIVE_OK ? 0 : failed(p, err);
}

int pack_data(struct pack *p, const void *data, size_t n, struct err *err)
{
    if (n > p->left) {
        return err_set(err, ERR_INVALID, "archive: %s: more bytes than its size", p->last);
    }
    const char *at = data;
    while (n > 0) {
        la_ssize_t done = archive_write_data(p->a, at, n);
        if (done <= 0) {
            return failed(p, err);
        }
        at += done;
        n -= (size_t)done;
        p->left -= (uint64_t)done;
    }
    return 0;
}

int pack_data_fd(struct pack *p, int fd, uint64_t n, struct err *err)
{
    cleanup_free char *data = malloc(COPY_BYTES);
    if (!data) {
        abort();
    }
    while (n > 0) {
        ssize_t got = read(fd, data, n < COPY_BYTES ? (size_t)n : COPY_BYTES);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_sys(err, "archive: %s", p->last);
        }
        if (got == 0) {
            return err_set(err, ERR_CONFLICT, "archive: %s: became shorter while it was packed",
                           p->last);
        }
        int rc = pack_data(p, data, (size_t)got, err);
        if (rc < 0) {
            return rc;
        }
        n -= (uint64_t)got;
    }
    return 0;
}

int pack_finish(struct pack *p, struct err *err)
{
    if (p->left > 0) {
        return err_set(err, ERR_INVALID, "archive: %s: is not complete", p->last);
    }
    return archive_write_close(p->a) == ARCHIVE_OK ? 0 : failed(p, err);
}

/* ---- from a folder ---- */

static int by_path(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    return path_order(x, strlen(x), y, strlen(y));
}

static int pack_link(struct pack *p, int dir_fd, struct unpack_entry *e, struct err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir_fd, e->path, target, sizeof target - 1);
    if (n < 0) {
        return err_sys(err, "archive: %s", e->path);
    }
    target[n] = '\0';
    e->target = target;
    e->target_len = (size_t)n;
    return pack_entry(p, e, err);
}

static int pack_file(struct pack *p, int dir_fd, struct unpack_entry *e, struct err *err)
{
    cleanup_close int fd =
        openat(dir_fd, e->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_sys(err, "archive: %s", e->path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(err, ERR_CONFLICT, "archive: %s: became something else", e->path);
    }
    e->mode = st.st_mode & S_IXUSR ? 0755 : 0644;
    e->size = st.st_size;
    int rc = pack_entry(p, e, err);
    return rc < 0 ? rc : pack_data_fd(p, fd, (uint64_t)st.st_size, err);
}

static int pack_path(struct pack *p, int dir_fd, const char *path, struct err *err)
{
    struct unpack_entry e = { .path = path, .path_len = strlen(path) };
    struct stat st;
    if (!path_clean(path, e.path_len)) {
        return err_set(err, ERR_INVALID, "archive: %s: must be relative and clean", path);
    }
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return err_set(err, ERR_NOT_FOUND, "archive: %s: is not there", path);
        }
        return err_sys(err, "archive: %s", path);
    }
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        e.type = UNPACK_FILE;
        return pack_file(p, dir_fd, &e, err);
    case S_IFLNK:
        e.type = UNPACK_LINK;
        return pack_link(p, dir_fd, &e, err);
    case S_IFDIR:
        e.type = UNPACK_DIR;
        e.mode = 0755;
        return pack_entry(p, &e, err);
    default:
        return err_set(err, ERR_INVALID, "archive: %s: is no file, link or folder", path);
    }
}

int pack_files(struct pack *p, int dir_fd, const char *const *paths, size_t n, struct err *err)
{
    cleanup_free const char **sorted = calloc(n ? n : 1, sizeof *sorted);
    if (!sorted) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = paths[i];
    }
    qsort(sorted, n, sizeof *sorted, by_path);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(sorted[i - 1], sorted[i]) == 0) {
            continue;
        }
        int rc = pack_path(p, dir_fd, sorted[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
