#include "worker/live.h"

#include <assert.h>

#include "common/base/clock.h"

void live_start(struct live *l, struct publisher *publisher, const char *job_id, int node)
{
    *l = (struct live){ .publisher = publisher, .job_id = job_id, .node = node };
    l->era = publisher ? publisher_era(publisher) : 0;
    buf_init(&l->pending, LIVE_BUFFER_BYTES);
}

static void put(struct live *l, int stream, const void *data, size_t len)
{
    const struct log_piece piece = { .node = l->node, .stream = stream, .at = l->at[stream] };
    if (l->publisher && !publisher_put(l->publisher, l->era, l->job_id, &piece, data, len)) {
        l->publisher = NULL;
    }
}

static void flush(struct live *l)
{
    if (l->pending.len > 0 && l->pieces++ < LIVE_PIECES_MAX) {
        put(l, l->stream, l->pending.data, l->pending.len);
    }
    l->at[l->stream] += l->pending.len;
    buf_reset(&l->pending);
    l->last_us = mono_us();
}

void live_add(struct live *l, int stream, const void *data, size_t len)
{
    const char *from = data;
    if (l->pending.len > 0 && stream != l->stream) {
        flush(l);
    }
    l->stream = stream;
    while (l->publisher && len > 0 && l->total < LIVE_TOTAL_BYTES_MAX &&
           l->pieces < LIVE_PIECES_MAX) {
        size_t room = LIVE_BUFFER_BYTES - l->pending.len;
        size_t part = len < room ? len : room;
        struct err err = { 0 };
        int rc = buf_add(&l->pending, from, part, &err);
        assert(rc == 0);
        (void)rc;
        l->total += part;
        from += part;
        len -= part;
        if (l->pending.len == LIVE_BUFFER_BYTES) {
            flush(l);
        }
    }
}

int64_t live_due_us(const struct live *l)
{
    return l->pending.len > 0 ? l->last_us + LIVE_INTERVAL_MS * 1000 : INT64_MAX;
}

void live_tick(struct live *l, int64_t now_us)
{
    if (now_us >= live_due_us(l)) {
        flush(l);
    }
}

void live_done(struct live *l)
{
    flush(l);
    buf_done(&l->pending);
}

void live_end(struct live *l)
{
    flush(l);
    put(l, 0, "", 0);
    buf_done(&l->pending);
}
