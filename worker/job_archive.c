#include "worker/job_archive.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "common/archive/unpack.h"
#include "common/base/cleanup.h"

struct intake {
    struct job_file *files;
    uint64_t *hashes; /* of their paths, keyed: an archive cannot make them collide */
    int n, cap;
    uint64_t bytes;
    size_t room; /* of the last file's content */
    uint8_t key[crypto_shorthash_KEYBYTES];
};

void job_files_free(struct job_file *files, int n)
{
    for (int i = 0; i < n; i++) {
        free(files[i].path);
        free(files[i].content.data);
        free(files[i].target);
    }
    free(files);
}

void job_unpacked_done(struct job_unpacked *u)
{
    job_files_free(u->files, u->n);
    *u = (struct job_unpacked){ .n = 0 };
}

static void *must(void *p)
{
    if (!p) {
        abort();
    }
    return p;
}

static char *copy(const char *data, size_t n)
{
    char *p = must(malloc(n + 1));
    memcpy(p, data, n);
    p[n] = 0;
    return p;
}

static uint64_t hash(const struct intake *in, const char *path, size_t n)
{
    uint64_t h;
    static_assert(sizeof h == crypto_shorthash_BYTES, "64 bits");
    (void)crypto_shorthash((uint8_t *)&h, (const uint8_t *)path, n, in->key);
    return h;
}

static void grow(struct intake *in)
{
    if (in->n == in->cap) {
        in->cap = in->cap ? in->cap * 2 : 64;
        in->files = must(realloc(in->files, (size_t)in->cap * sizeof *in->files));
        in->hashes = must(realloc(in->hashes, (size_t)in->cap * sizeof *in->hashes));
    }
}

/* Room for size bytes in all; a NUL fits behind them. */
static void reserve(struct intake *in, struct bytes *b, size_t size)
{
    if (size > in->room) {
        b->data = must(realloc(b->data, size + 1));
        in->room = size;
    }
}

static int count(struct intake *in, uint64_t n, const char *path, struct err *err)
{
    if (n > JOB_ARCHIVE_BYTES_MAX - in->bytes) {
        return err_set(err, ERR_TOO_LARGE, "archive: %.200s: more than %llu bytes in all", path,
                       (unsigned long long)JOB_ARCHIVE_BYTES_MAX);
    }
    in->bytes += n;
    return 0;
}

/* unpack.h has seen to it that the target is a file that came before. */
static int copy_of(struct intake *in, const struct unpack_entry *e, struct job_file *f,
                   struct err *err)
{
    uint64_t h = hash(in, e->target, e->target_len);
    for (int i = 0; i < in->n; i++) {
        const struct job_file *of = &in->files[i];
        if (in->hashes[i] != h || strcmp(of->path, e->target) != 0) {
            continue;
        }
        int rc = count(in, of->content.len, e->path, err);
        if (rc == 0) {
            f->mode = of->mode;
            f->content.len = of->content.len;
            f->content.data = of->content.len ? copy(of->content.data, of->content.len) : NULL;
        }
        return rc;
    }
    return err_set(err, ERR_INVALID, "archive: %.200s: a hard link to nothing", e->path);
}

static int on_entry(void *arg, const struct unpack_entry *e, struct err *err)
{
    struct intake *in = arg;
    grow(in);
    struct job_file f = { .mode = e->mode & 0777, .folder = e->type == UNPACK_DIR };
    in->room = 0;
    if (e->type == UNPACK_HARDLINK) {
        int rc = copy_of(in, e, &f, err);
        if (rc < 0) {
            return rc;
        }
    } else if (e->type == UNPACK_FILE && e->size > 0) {
        reserve(in, &f.content, (size_t)e->size);
    } else if (e->type == UNPACK_LINK) {
        f.target = copy(e->target, e->target_len);
    }
    f.path = copy(e->path, e->path_len);
    in->hashes[in->n] = hash(in, e->path, e->path_len);
    in->files[in->n++] = f;
    return 0;
}

static int on_data(void *arg, const void *data, size_t n, struct err *err)
{
    struct intake *in = arg;
    assert(in->n > 0);
    struct job_file *f = &in->files[in->n - 1];
    struct bytes *b = &f->content;
    int rc = count(in, n, f->path, err);
    if (rc < 0 || n == 0) {
        return rc;
    }
    if (n > in->room - b->len) { /* the size was not announced */
        size_t twice = in->room * 2;
        reserve(in, b, b->len + n > twice ? b->len + n : twice);
    }
    memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
    return 0;
}

/* What the job names was there when it was submitted, and a sweep keeps it: whatever the store says
 * against it now is no fault of the user's. */
static int open_object(const struct job_archive *a, struct object_store *objects, int *ret_fd,
                       struct err *err)
{
    struct object_id id;
    if (!objects) {
        return err_set(err, ERR_UNAVAILABLE, "archive: no object store is open");
    }
    int rc = object_id_parse(&id, a->object, err);
    rc = rc < 0 ? rc : object_open(objects, &id, true, ret_fd, err);
    if (rc < 0 && err_fault(-rc) == FAULT_USER) {
        err->code = ERR_UNAVAILABLE;
    }
    return rc < 0 ? err_prefix(err, "archive") : 0;
}

int job_archive_files(const struct job_archive *a, struct object_store *objects,
                      struct job_file **ret_files, int *ret_n, struct err *err)
{
    assert(a->present);
    const struct unpack_limits limits = { .entries_max = JOB_ARCHIVE_ENTRIES_MAX,
                                          .file_bytes_max = JOB_ARCHIVE_BYTES_MAX,
                                          .total_bytes_max = JOB_ARCHIVE_BYTES_MAX,
                                          .path_bytes_max = JOB_ARCHIVE_PATH_BYTES_MAX };
    struct intake in = { 0 };
    struct unpack_sink sink = { .entry = on_entry, .data = on_data, .arg = &in };
    randombytes_buf(in.key, sizeof in.key);
    cleanup_close int fd = -1;
    int rc;
    if (a->object[0]) {
        rc = open_object(a, objects, &fd, err);
        rc = rc < 0 ? rc : unpack_fd(fd, &limits, &sink, err);
    } else {
        rc = unpack_memory(a->content.data, a->content.len, &limits, &sink, err);
    }
    free(in.hashes);
    if (rc < 0) {
        job_files_free(in.files, in.n);
        return rc;
    }
    *ret_files = in.files;
    *ret_n = in.n;
    return 0;
}
