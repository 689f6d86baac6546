#include "worker/capture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void capture_start(struct capture *c, size_t limit)
{
    assert(limit >= 1 && limit <= (size_t)1 << 30);
    if (c->cap > CAPTURE_KEEP_BYTES) {
        free(c->data);
        c->data = NULL;
        c->cap = 0;
    }
    c->limit = limit;
    c->head = limit / 2 + limit % 2;
    c->total = 0;
}

void capture_done(struct capture *c)
{
    free(c->data);
    *c = (struct capture){ 0 };
}

static void reserve(struct capture *c, size_t need)
{
    if (need <= c->cap) {
        return;
    }
    size_t cap = c->cap ? c->cap : 4096;
    while (cap < need) {
        cap *= 2;
    }
    if (cap > c->limit) {
        cap = c->limit;
    }
    assert(cap >= need);
    char *p = realloc(c->data, cap);
    if (!p) {
        abort();
    }
    c->data = p;
    c->cap = cap;
}

void capture_add(struct capture *c, const void *data, size_t n)
{
    assert(c->limit > 0);
    const char *from = data;
    const uint64_t stored_max = (uint64_t)c->limit + CAPTURE_SLACK_BYTES;
    uint64_t at = c->total;
    c->total += n;
    if (n == 0 || at >= stored_max) {
        return;
    }
    if (n > stored_max - at) {
        n = (size_t)(stored_max - at);
    }
    if (at < c->limit) {
        size_t part = n < c->limit - at ? n : (size_t)(c->limit - at);
        reserve(c, (size_t)at + part);
        memcpy(c->data + at, from, part);
        from += part;
        n -= part;
        at += part;
    }
    size_t ring = c->limit - c->head;
    if (ring == 0) {
        return;
    }
    if (n > ring) { /* only the last `ring` bytes of this piece can survive it */
        at += n - ring;
        from += n - ring;
        n = ring;
    }
    while (n > 0) {
        size_t pos = (size_t)((at - c->head) % ring);
        size_t part = n < ring - pos ? n : ring - pos;
        memcpy(c->data + c->head + pos, from, part);
        from += part;
        n -= part;
        at += part;
    }
}

static struct bytes bytes_join(const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len + b_len == 0) {
        return (struct bytes){ 0 };
    }
    char *p = malloc(a_len + b_len + 1);
    if (!p) {
        abort();
    }
    if (a_len > 0) {
        memcpy(p, a, a_len);
    }
    if (b_len > 0) {
        memcpy(p + a_len, b, b_len);
    }
    p[a_len + b_len] = 0;
    return (struct bytes){ p, a_len + b_len };
}

void capture_result(const struct capture *c, struct stream_result *ret)
{
    *ret = (struct stream_result){ .total_bytes = c->total, .truncated = capture_over(c) };
    if (!ret->truncated) {
        ret->head = bytes_join(c->data, (size_t)c->total, NULL, 0);
        return;
    }
    ret->head = bytes_join(c->data, c->head, NULL, 0);
    size_t ring = c->limit - c->head;
    if (ring > 0) {
        uint64_t stored_max = (uint64_t)c->limit + CAPTURE_SLACK_BYTES;
        uint64_t end = c->total < stored_max ? c->total : stored_max;
        size_t pos = (size_t)((end - c->head) % ring); /* where the oldest byte of the ring is */
        const char *base = c->data + c->head;
        ret->tail = bytes_join(base + pos, ring - pos, base, pos);
    }
}
