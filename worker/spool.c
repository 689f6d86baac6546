#include "worker/spool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <sodium.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define MAGIC 0x4c4f4f5053444252u /* "RBDSPOOL", little-endian hosts */
#define DIGEST_BYTES 16

struct head {
    uint64_t magic, number, len;
    uint8_t digest[DIGEST_BYTES]; /* of magic, number, len and the payload */
};
static_assert(sizeof(struct head) == 40, "on disk");

struct spool {
    int fd;
    char path[512];
    int64_t bytes, bytes_max; /* of the file */
    int64_t known;            /* before it: in at[], or consumed. Less than bytes: at[] is full */
    uint64_t next_number;
    int first, n;                  /* of the records in at[] that are not consumed */
    int64_t at[SPOOL_RECORDS_MAX]; /* where each begins; ring of first .. first + n */
};

static void digest(const struct head *h, const void *payload, uint8_t out[DIGEST_BYTES])
{
    crypto_generichash_state st;
    (void)crypto_generichash_init(&st, NULL, 0, DIGEST_BYTES);
    (void)crypto_generichash_update(&st, (const uint8_t *)h, offsetof(struct head, digest));
    (void)crypto_generichash_update(&st, payload, h->len);
    (void)crypto_generichash_final(&st, out, DIGEST_BYTES);
}

static int64_t *slot(struct spool *s, int index)
{
    return &s->at[(s->first + index) % SPOOL_RECORDS_MAX];
}

static int read_all(int fd, void *out, size_t n, int64_t at)
{
    char *p = out;
    while (n > 0) {
        ssize_t got = pread(fd, p, n, at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return -1;
        }
        p += got;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

/* The record at `at` of a file of size bytes into out. Returns its whole length, or -1 when there
 * is no whole one. */
static int64_t read_record(int fd, int64_t at, int64_t size, struct head *ret_head, struct buf *out)
{
    struct head h;
    uint8_t want[DIGEST_BYTES];
    if (size - at < (int64_t)sizeof h || read_all(fd, &h, sizeof h, at) < 0 || h.magic != MAGIC ||
        h.len > SPOOL_RECORD_MAX || (int64_t)h.len > size - at - (int64_t)sizeof h) {
        return -1;
    }
    buf_reset(out);
    void *room = buf_reserve(out, h.len ? h.len : 1, NULL);
    if (!room || read_all(fd, room, h.len, at + (int64_t)sizeof h) < 0) {
        return -1;
    }
    buf_commit(out, h.len);
    digest(&h, room, want);
    if (memcmp(want, h.digest, sizeof want) != 0) {
        return -1;
    }
    *ret_head = h;
    return (int64_t)(sizeof h + h.len);
}

/* As many as at[] has room for of the records that are in the file and not in it yet: consumed ones
 * stay in the file, so that one may be opened which has more. */
static void fill(struct spool *s)
{
    cleanup_buf struct buf payload = { 0 };
    buf_init(&payload, SPOOL_RECORD_MAX + 1);
    while (s->n < SPOOL_RECORDS_MAX && s->known < s->bytes) {
        struct head h;
        int64_t len = read_record(s->fd, s->known, s->bytes, &h, &payload);
        if (len < 0) {
            log_fmt(LOG_ERROR, "spool %s: what follows %lld is damaged, and lost", s->path,
                    (long long)s->known);
            s->known = s->bytes;
            return;
        }
        *slot(s, s->n++) = s->known;
        s->known += len;
    }
}

/* Find the records of the file, cut off what is not one. */
static int recover(struct spool *s, struct err *err)
{
    struct stat st;
    cleanup_buf struct buf payload = { 0 };
    buf_init(&payload, SPOOL_RECORD_MAX + 1);
    if (fstat(s->fd, &st) < 0) {
        return err_sys(err, "spool %s", s->path);
    }
    struct head h;
    int n = 0;
    for (int64_t len; (len = read_record(s->fd, s->bytes, st.st_size, &h, &payload)) > 0; n++) {
        if (s->n < SPOOL_RECORDS_MAX) {
            *slot(s, s->n++) = s->bytes;
            s->known = s->bytes + len;
        }
        s->bytes += len;
        s->next_number = h.number + 1;
    }
    if (s->bytes < st.st_size) {
        log_fmt(LOG_WARN, "spool %s: a torn tail of %lld bytes is cut off", s->path,
                (long long)(st.st_size - s->bytes));
        if (ftruncate(s->fd, s->bytes) < 0 || fsync(s->fd) < 0) {
            return err_sys(err, "spool %s", s->path);
        }
    }
    if (n > 0) {
        log_fmt(LOG_INFO, "spool %s: %d results of before wait to be committed", s->path, n);
    }
    return 0;
}

/* 1 opened and locked; 0 another process has it. */
static int open_file(const char *dir, int number, bool make, int *ret_fd, char path[512],
                     struct err *err)
{
    (void)snprintf(path, 512, "%s/results.%d", dir, number);
    int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    if (fd < 0 && !make && errno == ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_sys(err, "spool %s", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        (void)close(fd);
        return errno == EWOULDBLOCK ? 0 : err_sys(err, "spool %s", path);
    }
    *ret_fd = fd;
    return 1;
}

/* What workers that are gone have left in files of their own. */
static void adopt(struct spool *s, const char *dir)
{
    for (int i = 0; i < SPOOL_FILES_MAX; i++) {
        char path[512];
        struct err err;
        struct stat st;
        cleanup_close int fd = -1;
        if (open_file(dir, i, false, &fd, path, &err) != 1 || fstat(fd, &st) < 0) {
            continue;
        }
        cleanup_buf struct buf payload = { 0 };
        buf_init(&payload, SPOOL_RECORD_MAX + 1);
        struct head h;
        int64_t at = 0, len;
        int rc = 0, n = 0;
        while (rc == 0 && (len = read_record(fd, at, st.st_size, &h, &payload)) > 0) {
            rc = spool_append(s, &payload, 1, &err);
            n += rc == 0;
            at += len;
        }
        if (rc < 0) {
            log_warn("spool: a part stays where it is", "file", path, "error", err.text);
        } else if (n > 0 && ftruncate(fd, 0) == 0) {
            log_fmt(LOG_INFO, "spool: %d results taken over from %s", n, path);
        }
    }
}

int spool_open(struct spool **ret_spool, const char *dir, int64_t bytes_max, struct err *err)
{
    assert(bytes_max > 0);
    if (sodium_init() < 0) {
        return err_set(err, ERR_INTERNAL, "libsodium does not start");
    }
    if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
        return err_sys(err, "mkdir %s", dir);
    }
    struct spool *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    *s = (struct spool){ .fd = -1, .bytes_max = bytes_max, .next_number = 1 };
    int rc = 0;
    for (int i = 0; rc == 0 && i < SPOOL_FILES_MAX; i++) {
        rc = open_file(dir, i, true, &s->fd, s->path, err);
    }
    if (rc == 0) {
        rc = err_set(err, ERR_LIMIT, "spool %s: %d workers use it", dir, SPOOL_FILES_MAX);
    }
    rc = rc < 0 ? rc : recover(s, err);
    if (rc < 0) {
        spool_close(s);
        return rc;
    }
    adopt(s, dir);
    *ret_spool = s;
    return 0;
}

void spool_close(struct spool *s)
{
    if (s) {
        if (s->fd >= 0) {
            (void)close(s->fd);
        }
        free(s);
    }
}

int spool_count(const struct spool *s)
{
    return s->n;
}

int64_t spool_bytes(const struct spool *s)
{
    return s->bytes;
}

static int write_all(int fd, const void *data, size_t n, int64_t at)
{
    const char *p = data;
    while (n > 0) {
        ssize_t put = pwrite(fd, p, n, at);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            errno = put == 0 ? ENOSPC : errno;
            return -1;
        }
        p += put;
        at += put;
        n -= (size_t)put;
    }
    return 0;
}

int spool_append(struct spool *s, const struct buf *payloads, int n, struct err *err)
{
    int64_t at = s->bytes;
    int64_t places[SPOOL_RECORDS_MAX];
    assert(n > 0);
    if (n > SPOOL_RECORDS_MAX - s->n) {
        return err_set(err, ERR_NO_CAPACITY, "spool: %d results, it is full", s->n);
    }
    assert(s->known == s->bytes); /* there is room in at[] */
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        struct head h = { .magic = MAGIC,
                          .number = s->next_number + (uint64_t)i,
                          .len = payloads[i].len };
        if (payloads[i].len > SPOOL_RECORD_MAX || at + (int64_t)(sizeof h + h.len) > s->bytes_max) {
            (void)!ftruncate(s->fd, s->bytes);
            return err_set(err, ERR_NO_CAPACITY, "spool: %lld bytes, it is full",
                           (long long)s->bytes);
        }
        digest(&h, payloads[i].data, h.digest);
        places[i] = at;
        ok = write_all(s->fd, &h, sizeof h, at) == 0 &&
             write_all(s->fd, payloads[i].data, h.len, at + (int64_t)sizeof h) == 0;
        at += (int64_t)(sizeof h + h.len);
    }
    if (!ok || fsync(s->fd) < 0) {
        int rc = err_sys(err, "spool %s", s->path);
        (void)!ftruncate(s->fd, s->bytes);
        return rc;
    }
    for (int i = 0; i < n; i++) {
        *slot(s, s->n++) = places[i];
    }
    s->bytes = s->known = at;
    s->next_number += (uint64_t)n;
    return 0;
}

int spool_read(struct spool *s, int index, struct buf *out, struct err *err)
{
    assert(index >= 0 && index < s->n);
    struct head h;
    if (read_record(s->fd, *slot(s, index), s->bytes, &h, out) < 0) {
        return err_set(err, ERR_CORRUPT, "spool %s: the record at %lld is damaged", s->path,
                       (long long)*slot(s, index));
    }
    return 0;
}

void spool_consume(struct spool *s, int n)
{
    assert(n >= 0 && n <= s->n);
    s->first = (s->first + n) % SPOOL_RECORDS_MAX;
    s->n -= n;
    fill(s);
    if (s->n == 0 && s->bytes > 0) {
        s->bytes = s->known = 0;
        s->first = 0;
        (void)!ftruncate(s->fd, 0); /* failed: committed again after a restart, which is a no-op */
    }
}
