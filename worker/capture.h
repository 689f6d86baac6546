/* What is kept of one output stream: its first and its last bytes, and how many there were.
 *
 * Theory: one buffer of `limit` bytes. Byte i of the stream goes to position i while i < limit, so
 * a stream of at most `limit` bytes is simply whole. From then on the first half (rounded up) is
 * the head and stays, and the rest of the buffer is a ring that already holds the right bytes.
 * Bytes past limit + CAPTURE_SLACK_BYTES are counted and no longer kept, so what is stored depends
 * on the stream's bytes alone and not on how they were cut into frames, nor on when a kill took
 * effect. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/model/result.h"

#define CAPTURE_SLACK_BYTES (1u << 20)
#define CAPTURE_KEEP_BYTES                                                                         \
    (1u << 20) /* a reused buffer larger than this is given back between jobs */

struct capture {
    char *data;
    size_t cap;   /* allocated; grows by doubling up to limit */
    size_t limit; /* 1 .. 16 MiB */
    size_t head;  /* bytes of the head once the stream is over the limit: limit / 2 rounded up */
    uint64_t total;
};

/* c must be zeroed before its first use. Starts empty with this limit; memory of earlier use is
 * reused. */
void capture_start(struct capture *c, size_t limit);
void capture_done(struct capture *c);
void capture_add(struct capture *c, const void *data, size_t n);
static inline bool capture_over(const struct capture *c)
{
    return c->total > c->limit;
}
/* Over the limit by more than the slack: the run is ended. */
static inline bool capture_flooded(const struct capture *c)
{
    return c->total > (uint64_t)c->limit + CAPTURE_SLACK_BYTES;
}
/* Copy what was kept into *ret (its bytes are malloc'ed, the caller's). */
void capture_result(const struct capture *c, struct stream_result *ret);
