/* Live output of a job with "stream": pieces put on the job's log in Redis while it runs.
 *
 * Theory: pieces are gathered and written at most every LIVE_INTERVAL_MS, or when LIVE_BUFFER_BYTES
 * are full or the other stream speaks, and never more than LIVE_TOTAL_BYTES_MAX or LIVE_PIECES_MAX
 * of a job (streams that take turns byte by byte would cost a round trip each); the stored result
 * is the truth, this is a view of it. A Redis that fails ends the view and not the job. One thread;
 * the lives of a job's branches share the slot's connection by a lock. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/store/queue.h"

#define LIVE_INTERVAL_MS 20
#define LIVE_BUFFER_BYTES 32768u
#define LIVE_TOTAL_BYTES_MAX (4u << 20)
#define LIVE_PIECES_MAX 16384

struct live {
    struct queue *queue; /* NULL: nothing is published */
    const char *job_id;
    int node;              /* of the job's tree */
    pthread_mutex_t *lock; /* of the queue, where several share it; NULL: no one else has it */
    struct buf pending;    /* of one stream */
    int stream;
    uint64_t total;
    int pieces; /* written */
    int64_t last_us;
};

/* queue and job_id must outlive l; queue NULL makes every call a no-op. */
void live_start(struct live *l, struct queue *queue, const char *job_id);
void live_add(struct live *l, int stream, const void *data, size_t len);
/* Write what is due. */
void live_tick(struct live *l, int64_t now_us);
/* When live_tick has something to do (mono_us), INT64_MAX when nothing is pending. */
int64_t live_due_us(const struct live *l);
/* Write the rest; frees. */
void live_done(struct live *l);
/* The same, and the end mark of the job's output. */
void live_end(struct live *l);
