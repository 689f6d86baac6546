/* Growing byte buffer with a maximum given when it is made.
 *
 * Invariant: len <= cap <= max; data[len] is not part of the content, but is always a readable NUL
 * once anything was added, so data can be used as a C string when the content has no NUL.
 * An append that would pass max changes nothing and returns -ERR_TOO_LARGE. Memory exhaustion
 * aborts (there is no sensible continuation). Not thread-safe. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

struct buf {
    char *data;
    size_t len, cap, max;
};

/* Start empty; nothing is allocated. max in bytes, 1 .. 1 GiB. */
void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);  /* frees; leaves it empty with the same max */
void buf_reset(struct buf *b); /* length 0, keeps the memory */
MUST_CHECK int buf_add(struct buf *b, const void *data, size_t n, struct err *err);
MUST_CHECK int buf_add_str(struct buf *b, const char *s, struct err *err);
MUST_CHECK int buf_add_int(struct buf *b, int64_t value, struct err *err); /* in decimal */
MUST_CHECK int buf_addf(struct buf *b, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Make room for n more bytes and return where they start; buf_commit says how many were written.
 * NULL with err set when n does not fit under max. */
void *buf_reserve(struct buf *b, size_t n, struct err *err);
void buf_commit(struct buf *b, size_t n);
/* Drop the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
/* Read the whole file into b (which must be empty). -ERR_NOT_FOUND, -ERR_TOO_LARGE, -ERR_SYS. */
MUST_CHECK int buf_read_file(struct buf *b, const char *path, struct err *err);
/* Read fd to its end. */
MUST_CHECK int buf_read_fd(struct buf *b, int fd, struct err *err);
/* Hand the memory to the caller (NUL-terminated, free()); b is empty afterwards. Never NULL. */
char *buf_take(struct buf *b, size_t *ret_len);

static inline void cleanup_buf_fn(struct buf *b)
{
    buf_done(b);
}
#define cleanup_buf __attribute__((cleanup(cleanup_buf_fn)))
