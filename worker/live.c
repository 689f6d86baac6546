#include "worker/live.h"

#include <assert.h>

#include "common/base/clock.h"

void live_start(struct live *l, struct queue *queue, const char *job_id)
{
    *l = (struct live){ .queue = queue, .job_id = job_id };
    buf_init(&l->pending, LIVE_BUFFER_BYTES);
}

static void flush(struct live *l)
{
    struct err err = { 0 };
    if (l->queue && l->pending.len > 0 && l->pieces++ < LIVE_PIECES_MAX) {
        if (l->lock) {
            (void)pthread_mutex_lock(l->lock);
        }
        int rc = queue_log_add(l->queue, l->job_id, l->node, l->stream, l->pending.data,
                               l->pending.len, &err);
        if (l->lock) {
            (void)pthread_mutex_unlock(l->lock);
        }
        l->queue = rc < 0 ? NULL : l->queue;
    }
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
    while (l->queue && len > 0 && l->total < LIVE_TOTAL_BYTES_MAX && l->pieces < LIVE_PIECES_MAX) {
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
    struct err err = { 0 };
    if (l->queue && queue_log_end(l->queue, l->job_id, &err) < 0) {
        l->queue = NULL;
    }
    buf_done(&l->pending);
}
