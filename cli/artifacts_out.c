#include "cli/artifacts_out.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/safe_text.h"
#include "common/archive/pack.h"
#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/path.h"

#define OUT_PATH_BYTES_MAX 4000u /* below PATH_MAX, with room for a temporary name */
#define SHOWN_BYTES 200          /* of a path in an error */

struct entry {
    char *path;
    size_t len;
    struct artifact a; /* path NULL; target owned */
};

struct artifacts_out {
    struct entry *entries;
    size_t n, cap;
};

struct artifacts_out *artifacts_out_new(void)
{
    struct artifacts_out *o = calloc(1, sizeof *o);
    if (!o) {
        abort();
    }
    return o;
}

void artifacts_out_free(struct artifacts_out *o)
{
    for (size_t i = 0; o && i < o->n; i++) {
        free(o->entries[i].path);
        free(o->entries[i].a.target);
    }
    if (o) {
        free(o->entries);
    }
    free(o);
}

/* "db/../x" -> "db/%2E%2E/x/" */
static int add_folder(struct buf *b, const char *branch, struct err *err)
{
    int rc = 0;
    while (*branch && rc == 0) {
        size_t n = strcspn(branch, "/");
        bool dots = (n == 1 || n == 2) && strspn(branch, ".") >= n;
        rc = !dots    ? buf_add(b, branch, n, err)
             : n == 1 ? buf_add_str(b, "%2E", err)
                      : buf_add_str(b, "%2E%2E", err);
        rc = rc < 0 ? rc : buf_add_str(b, "/", err);
        branch += n + (branch[n] == '/');
    }
    return rc;
}

int artifacts_out_add(struct artifacts_out *o, const char *branch, const struct artifact *a,
                      struct err *err)
{
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, OUT_PATH_BYTES_MAX);
    int rc = add_folder(&b, branch, err);
    rc = rc < 0 ? rc : buf_add(&b, a->path, a->path_len, err);
    if (rc < 0 || !path_clean(b.data, b.len)) {
        char shown[SHOWN_BYTES];
        safe_text(shown, sizeof shown, a->path, a->path_len);
        return err_set(err, ERR_INVALID, "artifact %s of branch %.200s: no path to write to", shown,
                       branch);
    }
    if (o->n == o->cap) {
        o->cap = o->cap ? o->cap * 2 : 64;
        o->entries = realloc(o->entries, o->cap * sizeof *o->entries);
        if (!o->entries) {
            abort();
        }
    }
    struct entry *e = &o->entries[o->n++];
    *e = (struct entry){ .a = *a };
    e->path = buf_take(&b, &e->len);
    e->a.path = e->a.target = NULL;
    if (a->target) {
        e->a.target = malloc(a->target_len + 1);
        if (!e->a.target) {
            abort();
        }
        memcpy(e->a.target, a->target, a->target_len);
        e->a.target[a->target_len] = '\0';
    }
    return 0;
}

static int by_path(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return path_order(x->path, x->len, y->path, y->len);
}

static int sort(struct artifacts_out *o, struct err *err)
{
    if (o->n > 1) {
        qsort(o->entries, o->n, sizeof *o->entries, by_path);
    }
    for (size_t i = 1; i < o->n; i++) {
        if (by_path(&o->entries[i - 1], &o->entries[i]) == 0) {
            char shown[SHOWN_BYTES];
            safe_text(shown, sizeof shown, o->entries[i].path, o->entries[i].len);
            return err_set(err, ERR_CONFLICT, "%s: two branches would write it (take --branch)",
                           shown);
        }
    }
    return 0;
}

/* ---- content ---- */

static void tell_missing(struct artifacts_out_sum *sum, const struct entry *e, const char *why)
{
    char shown[4 * SHOWN_BYTES];
    safe_text(shown, sizeof shown, e->path, e->len);
    (void)fprintf(stderr, "brood: missing: %s: %s\n", shown, why);
    sum->missing++;
}

/* Is this trouble of one object, so that the others can still be had? */
static bool only_this(int rc)
{
    return rc == -ERR_NOT_FOUND || rc == -ERR_CORRUPT;
}

/* true: e is to be written; else it was told. */
static bool stored(struct artifacts_out_sum *sum, const struct entry *e)
{
    const struct artifact *a = &e->a;
    bool whole = a->type == ARTIFACT_LINK ? a->target_len > 0 : a->type == ARTIFACT_FILE;
    if (a->stored && whole) {
        return true;
    }
    char why[64];
    const char *word = artifact_reason_word(a->reason);
    (void)snprintf(why, sizeof why, "not stored%s%s", *word ? ": " : "", word);
    tell_missing(sum, e, why);
    return false;
}

static int check_size(const struct entry *e, int64_t size, struct err *err)
{
    return size == (int64_t)e->a.size
               ? 0
               : err_set(err, ERR_CORRUPT, "object %s has %lld bytes and not %llu", e->a.sha256,
                         (long long)size, (unsigned long long)e->a.size);
}

/* ---- into a folder ---- */

static int beneath(int dir_fd, const char *path, int flags)
{
    struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC,
                            .resolve =
                                RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
}

/* The folder that holds path's last part, made as needed; -1 with errno. */
static int open_folder(int dir_fd, const char *path, const char **ret_name)
{
    int up = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    for (const char *slash; up >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        char part[PATH_NAME_BYTES_MAX + 1];
        size_t n = (size_t)(slash - path);
        memcpy(part, path, n); /* path_clean: it fits */
        part[n] = '\0';
        cleanup_close int above = up;
        up = mkdirat(above, part, 0777) < 0 && errno != EEXIST
                 ? -1
                 : beneath(above, part, O_RDONLY | O_DIRECTORY);
    }
    *ret_name = path;
    return up;
}

static int no_path(const struct entry *e, struct err *err)
{
    char shown[SHOWN_BYTES];
    safe_text(shown, sizeof shown, e->path, e->len);
    if (errno == ELOOP || errno == EXDEV) {
        return err_set(err, ERR_INVALID, "%s: a part of the path is a symbolic link there", shown);
    }
    return err_sys(err, "%s", shown);
}

/* tmp gets a file or link that is to be renamed; 1 made, 0 missing. */
static int make(struct object_store *objects, const struct entry *e, int up, const char *tmp,
                struct artifacts_out_sum *sum, struct err *err)
{
    if (e->a.type == ARTIFACT_LINK) {
        return symlinkat(e->a.target, up, tmp) < 0 ? no_path(e, err) : 1;
    }
    struct object_id id;
    int64_t size = 0;
    cleanup_close int fd =
        openat(up, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return no_path(e, err);
    }
    int rc = object_id_parse(&id, e->a.sha256, err);
    rc = rc < 0 ? rc : object_get(objects, &id, fd, &size, err);
    rc = rc < 0 ? rc : check_size(e, size, err);
    if (only_this(rc)) {
        tell_missing(sum, e, err->text);
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    sum->bytes += size;
    return fchmod(fd, e->a.mode & 0777) < 0 ? no_path(e, err) : 1;
}

static int put_one(struct object_store *objects, const struct entry *e, int dir_fd,
                   struct artifacts_out_sum *sum, struct err *err)
{
    const char *name;
    char tmp[32];
    cleanup_close int up = open_folder(dir_fd, e->path, &name);
    if (up < 0) {
        return no_path(e, err);
    }
    (void)snprintf(tmp, sizeof tmp, ".brood-%08x%08x", (unsigned)randombytes_random(),
                   (unsigned)randombytes_random());
    int rc = make(objects, e, up, tmp, sum, err);
    if (rc > 0 && renameat(up, tmp, up, name) == 0) {
        sum->written++;
        return 0;
    }
    rc = rc > 0 ? no_path(e, err) : rc;
    (void)unlinkat(up, tmp, 0);
    return rc;
}

int artifacts_out_dir(struct artifacts_out *o, struct object_store *objects, const char *dir,
                      struct artifacts_out_sum *ret_sum, struct err *err)
{
    struct artifacts_out_sum sum = { 0 };
    int rc = sort(o, err);
    if (rc < 0) {
        return rc;
    }
    if (mkdir(dir, 0777) < 0 && errno != EEXIST) {
        return err_sys(err, "mkdir %s", dir);
    }
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return err_sys(err, "%s", dir);
    }
    for (size_t i = 0; i < o->n && rc == 0; i++) {
        if (stored(&sum, &o->entries[i])) {
            rc = put_one(objects, &o->entries[i], dir_fd, &sum, err);
        }
    }
    *ret_sum = sum;
    return rc;
}

/* ---- as an archive ---- */

static int pack_one(struct pack *p, struct object_store *objects, const struct entry *e,
                    struct artifacts_out_sum *sum, struct err *err)
{
    struct unpack_entry u = { .path = e->path, .path_len = e->len, .mode = e->a.mode & 0777 };
    if (e->a.type == ARTIFACT_LINK) {
        u.type = UNPACK_LINK;
        u.target = e->a.target;
        u.target_len = e->a.target_len;
        sum->written++;
        return pack_entry(p, &u, err);
    }
    struct object_id id;
    struct stat st;
    cleanup_close int fd = -1;
    int rc = object_id_parse(&id, e->a.sha256, err);
    rc = rc < 0 ? rc : object_open(objects, &id, true, &fd, err);
    if (rc == 0) {
        rc = fstat(fd, &st) < 0 ? err_sys(err, "object %s", e->a.sha256)
                                : check_size(e, st.st_size, err);
    }
    if (only_this(rc)) {
        tell_missing(sum, e, err->text);
        return 0;
    }
    u.size = (int64_t)e->a.size;
    rc = rc < 0 ? rc : pack_entry(p, &u, err);
    rc = rc < 0 ? rc : pack_data_fd(p, fd, e->a.size, err);
    sum->bytes += rc < 0 ? 0 : u.size;
    sum->written += rc == 0;
    return rc;
}

int artifacts_out_tar(struct artifacts_out *o, struct object_store *objects, int fd,
                      struct artifacts_out_sum *ret_sum, struct err *err)
{
    struct artifacts_out_sum sum = { 0 };
    struct pack *p = NULL;
    int rc = sort(o, err);
    rc = rc < 0 ? rc : pack_new_fd(&p, fd, err);
    for (size_t i = 0; i < o->n && rc == 0; i++) {
        if (stored(&sum, &o->entries[i])) {
            rc = pack_one(p, objects, &o->entries[i], &sum, err);
        }
    }
    rc = rc < 0 ? rc : pack_finish(p, err);
    pack_free(p);
    *ret_sum = sum;
    return rc;
}

int artifacts_out_tar_file(struct artifacts_out *o, struct object_store *objects, const char *path,
                           struct artifacts_out_sum *ret_sum, struct err *err)
{
    char tmp[OUT_PATH_BYTES_MAX];
    int n = snprintf(tmp, sizeof tmp, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof tmp) {
        return err_set(err, ERR_TOO_LARGE, "%.100s...: too long", path);
    }
    cleanup_close int fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    mode_t mask = umask(0);
    (void)umask(mask);
    int rc = artifacts_out_tar(o, objects, fd, ret_sum, err);
    if (rc == 0 && (fchmod(fd, 0666 & ~mask) < 0 || rename(tmp, path) < 0)) {
        rc = err_sys(err, "%s", path);
    }
    if (rc < 0) {
        (void)unlink(tmp);
    }
    return rc;
}
