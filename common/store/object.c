/* The interface: checks of arguments and what needs no driver. */
#include "common/store/object.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/object_internal.h"

static_assert(sizeof(struct object_id) == OBJECT_HEX + 1, "an id is its text");

int object_id_parse(struct object_id *ret_id, const char *text, struct err *err)
{
    size_t n = strnlen(text, OBJECT_HEX + 1);
    if (n != OBJECT_HEX || strspn(text, "0123456789abcdef") != OBJECT_HEX) {
        return err_set(err, ERR_INVALID, "object id: must be %d lower-case hex digits", OBJECT_HEX);
    }
    memcpy(ret_id->hex, text, OBJECT_HEX + 1);
    return 0;
}

void object_id_path(const struct object_id *id, char out[OBJECT_PATH + 1])
{
    (void)snprintf(out, OBJECT_PATH + 1, "%.2s/%.2s/%s", id->hex, id->hex + 2, id->hex);
}

void object_id_from(struct object_id *ret_id, struct object_hash *h)
{
    uint8_t digest[crypto_hash_sha256_BYTES];
    (void)SHA256_Final(digest, &h->state);
    (void)sodium_bin2hex(ret_id->hex, sizeof ret_id->hex, digest, sizeof digest);
}

int object_corrupt(const struct object_id *id, const struct object_id *is, const char *where,
                   struct err *err)
{
    return err_set(err, ERR_CORRUPT, "object %s: corrupt: %s has the digest %s", id->hex, where,
                   is->hex);
}

int object_store_open(struct object_store **ret_store, const struct object_options *options,
                      struct err *err)
{
    if (sodium_init() < 0) {
        return err_set(err, ERR_INTERNAL, "libsodium does not start");
    }
    int rc = options->driver == OBJECT_S3 ? object_s3_open(ret_store, options, err)
                                          : object_dir_open(ret_store, options, err);
    if (rc == 0) {
        (*ret_store)->renew_after_ms = options->renew_after_s * 1000;
    }
    return rc;
}

void object_store_free(struct object_store *s)
{
    if (s) {
        s->ops->free(s);
    }
}

void object_store_give_up(struct object_store *s)
{
    atomic_store(&s->given_up, true);
}

const char *object_store_name(const struct object_store *s)
{
    return s->name;
}

int object_put(struct object_store *s, struct object_put *put, struct err *err)
{
    assert(put->fd >= 0 && put->max_bytes >= 0 && put->size_bytes >= -1);
    int64_t max = put->max_bytes > 0 ? put->max_bytes : OBJECT_SIZE_MAX;
    if (put->size_bytes > max) {
        return err_set(err, ERR_TOO_LARGE, "object of %" PRId64 " bytes; at most %" PRId64,
                       put->size_bytes, max);
    }
    put->ret_existed = false;
    return s->ops->put(s, put, err);
}

int object_put_bytes(struct object_store *s, const void *data, size_t n, struct object_id *ret_id,
                     struct err *err)
{
    cleanup_close int fd = memfd_create("brood-object", MFD_CLOEXEC);
    if (fd < 0) {
        return err_sys(err, "object store: memfd");
    }
    if (object_write_all(fd, data, n) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
        return err_sys(err, "object store: memfd of %zu bytes", n);
    }
    struct object_put put = { .fd = fd, .size_bytes = (int64_t)n };
    int rc = object_put(s, &put, err);
    if (rc == 0 && ret_id) {
        *ret_id = put.ret_id;
    }
    return rc;
}

int object_get(struct object_store *s, const struct object_id *id, int fd, int64_t *ret_size_bytes,
               struct err *err)
{
    int64_t size;
    int rc = s->ops->get(s, id, fd, &size, err);
    if (rc == 0 && ret_size_bytes) {
        *ret_size_bytes = size;
    }
    return rc;
}

int object_get_range(struct object_store *s, const struct object_id *id, int64_t offset,
                     int64_t length, int fd, int64_t fd_offset, struct err *err)
{
    assert(fd_offset >= 0);
    if (offset < 0 || length < 0 || offset > OBJECT_SIZE_MAX || length > OBJECT_SIZE_MAX) {
        return err_set(err, ERR_INVALID, "object %s: range %" PRId64 "+%" PRId64, id->hex, offset,
                       length);
    }
    return length == 0 ? 0 : s->ops->get_range(s, id, offset, length, fd, fd_offset, -1, err);
}

static int stale(const struct object_id *id, struct err *err)
{
    return err_set(err, ERR_STALE, "object %s: given up", id->hex);
}

/* s NULL: nothing stops it. */
static int verify(const struct object_store *s, const struct object_id *id, int fd, int stop_fd,
                  struct err *err)
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
        at += n;
        if (s && object_stopped(s, stop_fd)) {
            return stale(id, err);
        }
    }
    if (n < 0) {
        return err_sys(err, "object %s: read", id->hex);
    }
    struct object_id is;
    object_id_from(&is, &h);
    return strcmp(is.hex, id->hex) == 0 ? 0 : object_corrupt(id, &is, "what was read", err);
}

int object_verify(const struct object_id *id, int fd, struct err *err)
{
    return verify(NULL, id, fd, -1, err);
}

struct parallel {
    struct object_store *s;
    const struct object_id *id;
    int fd, stop_fd;
    int64_t size, step;
    atomic_llong next;
    atomic_bool failed;
    pthread_mutex_t lock;
    int rc; /* of the first that failed */
    struct err err;
};

static void *fetch_ranges(void *arg)
{
    struct parallel *p = arg;
    while (!atomic_load(&p->failed)) {
        int64_t at = atomic_fetch_add(&p->next, p->step);
        if (at >= p->size) {
            break;
        }
        int64_t n = p->size - at < p->step ? p->size - at : p->step;
        struct err err;
        int rc = p->s->ops->get_range(p->s, p->id, at, n, p->fd, at, p->stop_fd, &err);
        if (rc < 0 && !atomic_exchange(&p->failed, true)) {
            p->rc = rc; /* read after the join */
            p->err = err;
        }
    }
    return NULL;
}

/* Ranges are a little smaller than size / threads, so that a slow one does not hold up the rest. */
static int64_t range_step(int64_t size, int ranges, int64_t min_range)
{
    int64_t step = size / (ranges * 4) + 1;
    return step < min_range ? min_range : step;
}

static int get_parallel(struct parallel *p, int ranges, struct err *err)
{
    pthread_t threads[OBJECT_RANGES_MAX];
    int started = 0;
    int64_t pieces = (p->size + p->step - 1) / p->step;
    /* this thread is one of them; a thread that cannot be started is one less */
    while (started < ranges - 1 && started < pieces - 1 &&
           pthread_create(&threads[started], NULL, fetch_ranges, p) == 0) {
        started++;
    }
    (void)fetch_ranges(p);
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    if (p->rc < 0) {
        if (err) {
            *err = p->err;
        }
        return p->rc;
    }
    return verify(p->s, p->id, p->fd, p->stop_fd, err);
}

int object_get_parallel(struct object_store *s, const struct object_id *id, int fd, int ranges,
                        int64_t min_range_bytes, int stop_fd, int64_t *ret_size_bytes,
                        struct err *err)
{
    assert(ranges >= 1 && ranges <= OBJECT_RANGES_MAX && min_range_bytes >= 1);
    int64_t size;
    int rc = s->ops->size(s, id, stop_fd, &size, err);
    if (rc < 0) {
        return rc;
    }
    if (ftruncate(fd, 0) < 0 || ftruncate(fd, size) < 0) {
        return err_sys(err, "object %s: output of %" PRId64 " bytes", id->hex, size);
    }
    struct parallel p = { .s = s,
                          .id = id,
                          .fd = fd,
                          .stop_fd = stop_fd,
                          .size = size,
                          .step = range_step(size, ranges, min_range_bytes) };
    rc = get_parallel(&p, ranges, err);
    if (rc < 0) {
        (void)!ftruncate(fd, 0);
        return rc;
    }
    if (ret_size_bytes) {
        *ret_size_bytes = size;
    }
    return 0;
}

static int open_copy(struct object_store *s, const struct object_id *id, int *ret_fd,
                     struct err *err)
{
    struct object_tmp tmp;
    int rc = object_tmp_new(s, &tmp, err);
    if (rc < 0) {
        return rc;
    }
    rc = object_get(s, id, tmp.fd, NULL, err);
    if (rc == 0) {
        *ret_fd = open(tmp.path, O_RDONLY | O_CLOEXEC);
        rc = *ret_fd < 0 ? err_sys(err, "object store: open %s", tmp.path) : 0;
    }
    object_tmp_done(&tmp);
    return rc;
}

int object_open(struct object_store *s, const struct object_id *id, bool verify, int *ret_fd,
                struct err *err)
{
    if (!s->ops->open) {
        return open_copy(s, id, ret_fd, err);
    }
    cleanup_close int fd = -1;
    int rc = s->ops->open(s, id, &fd, err);
    if (rc < 0 || (verify && (rc = object_verify(id, fd, err)) < 0)) {
        return rc;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int object_size(struct object_store *s, const struct object_id *id, int64_t *ret_size_bytes,
                struct err *err)
{
    return s->ops->size(s, id, -1, ret_size_bytes, err);
}

int object_exists(struct object_store *s, const struct object_id *id, struct err *err)
{
    int64_t size;
    int rc = s->ops->size(s, id, -1, &size, err);
    return rc == 0 ? 1 : rc == -ERR_NOT_FOUND ? 0 : rc;
}

int object_delete(struct object_store *s, const struct object_id *id, struct err *err)
{
    return s->ops->remove(s, id, err);
}

int object_sweep(struct object_store *s, const struct object_id *id, int64_t before_ms,
                 struct err *err)
{
    return s->ops->sweep(s, id, before_ms, err);
}

bool object_is_old(const struct object_store *s, int64_t modified_ms)
{
    return s->renew_after_ms > 0 && modified_ms >= 0 && wall_ms() - modified_ms > s->renew_after_ms;
}

int object_list(struct object_store *s, const struct object_id *after, struct object_info *ret_rows,
                int max, struct err *err)
{
    assert(max >= 1 && max <= OBJECT_LIST_MAX);
    return s->ops->list(s, after, ret_rows, max, err);
}

int object_total(struct object_store *s, struct object_total *ret_total, struct err *err)
{
    cleanup_free struct object_info *rows = calloc(OBJECT_LIST_MAX, sizeof *rows);
    if (!rows) {
        abort();
    }
    struct object_total total = { 0, 0 };
    struct object_id last;
    int n;
    do {
        n = s->ops->list(s, total.objects ? &last : NULL, rows, OBJECT_LIST_MAX, err);
        if (n < 0) {
            return n;
        }
        for (int i = 0; i < n; i++) {
            assert(rows[i].size_bytes <= INT64_MAX - total.bytes);
            total.bytes += rows[i].size_bytes;
        }
        total.objects += n;
        if (n > 0) {
            last = rows[n - 1].id;
        }
    } while (n == OBJECT_LIST_MAX);
    *ret_total = total;
    return 0;
}

int object_presign_get(struct object_store *s, const struct object_id *id, int expires_s,
                       char out[OBJECT_URL_MAX], struct err *err)
{
    if (expires_s < 1 || expires_s > OBJECT_PRESIGN_S_MAX) {
        return err_set(err, ERR_INVALID, "pre-signed URL: life of 1 to %d seconds, not %d",
                       OBJECT_PRESIGN_S_MAX, expires_s);
    }
    if (!s->ops->presign) {
        return err_set(err, ERR_UNSUPPORTED, "pre-signed URL: %s has no server", s->name);
    }
    return s->ops->presign(s, id, expires_s, out, err);
}
