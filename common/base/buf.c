#include "common/base/buf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"

#define BUF_MAX_MAX ((size_t)1 << 30)
#define BUF_READ_CHUNK_BYTES 65536u

void buf_init(struct buf *b, size_t max)
{
    assert(max >= 1 && max <= BUF_MAX_MAX);
    *b = (struct buf){ .max = max };
}

void buf_done(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .max = b->max };
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    if (b->data) {
        b->data[0] = 0;
    }
}

static void grow(struct buf *b, size_t need)
{
    if (b->data && need <= b->cap) {
        return;
    }
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) {
        cap *= 2;
    }
    if (cap > b->max) {
        cap = b->max;
    }
    assert(cap >= need);
    char *p = realloc(b->data, cap + 1);
    if (!p) {
        abort();
    }
    b->data = p;
    b->cap = cap;
}

void *buf_reserve(struct buf *b, size_t n, struct err *err)
{
    assert(b->max > 0 && b->len <= b->max);
    if (n > b->max - b->len) {
        (void)err_set(err, ERR_TOO_LARGE, "more than the maximum of %zu bytes", b->max);
        return NULL;
    }
    grow(b, b->len + n);
    return b->data + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(b->data && n <= b->cap - b->len);
    b->len += n;
    b->data[b->len] = 0;
}

int buf_add(struct buf *b, const void *data, size_t n, struct err *err)
{
    void *to = buf_reserve(b, n, err);
    if (!to) {
        return -ERR_TOO_LARGE;
    }
    if (n) {
        memcpy(to, data, n);
    }
    buf_commit(b, n);
    return 0;
}

int buf_add_str(struct buf *b, const char *s, struct err *err)
{
    return buf_add(b, s, strlen(s), err);
}

int buf_add_int(struct buf *b, int64_t value, struct err *err)
{
    char digits[24], *p = digits + sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        *--p = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) {
        *--p = '-';
    }
    return buf_add(b, p, (size_t)(digits + sizeof digits - p), err);
}

int buf_addf(struct buf *b, struct err *err, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    int rc = 0;
    char *to = buf_reserve(b, (size_t)n, err);
    if (!to) {
        rc = -ERR_TOO_LARGE;
    } else {
        (void)vsnprintf(to, (size_t)n + 1, fmt, again);
        buf_commit(b, (size_t)n);
    }
    va_end(again);
    return rc;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    if (n == 0) {
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = 0;
}

int buf_read_fd(struct buf *b, int fd, struct err *err)
{
    for (;;) {
        char chunk[BUF_READ_CHUNK_BYTES];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0) {
            return buf_add(b, "", 0, err);
        }
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return err_sys(err, "read");
        }
        int rc = buf_add(b, chunk, (size_t)n, err);
        if (rc < 0) {
            return rc;
        }
    }
}

int buf_read_file(struct buf *b, const char *path, struct err *err)
{
    assert(b->len == 0);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int e = errno;
        if (e == ENOENT || e == ENOTDIR) {
            return err_set(err, ERR_NOT_FOUND, "%s: no such file", path);
        }
        return err_sys(err, "open %s", path);
    }
    int rc = buf_read_fd(b, fd, err);
    return rc < 0 ? err_prefix(err, "%s", path) : rc;
}

char *buf_take(struct buf *b, size_t *ret_len)
{
    grow(b, b->len ? b->len : 1);
    b->data[b->len] = 0;
    char *p = b->data;
    if (ret_len) {
        *ret_len = b->len;
    }
    *b = (struct buf){ .max = b->max };
    return p;
}
