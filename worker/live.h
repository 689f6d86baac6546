/* Live output of a job with "stream": pieces put on the job's log in Redis while it runs.
 *
 * Theory: pieces are gathered and handed to the publisher at most every LIVE_INTERVAL_MS, or when
 * LIVE_BUFFER_BYTES are full or the other stream speaks, and never more than LIVE_TOTAL_BYTES_MAX
 * or LIVE_PIECES_MAX of a job (streams that take turns byte by byte would cost a round trip each);
 * the stored result is the truth, this is a view of it. Nothing here waits: a run's time is its
 * own. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "worker/publisher.h"

#define LIVE_INTERVAL_MS 20
#define LIVE_BUFFER_BYTES 32768u
#define LIVE_TOTAL_BYTES_MAX (4u << 20)
#define LIVE_PIECES_MAX 16384

struct live {
    struct publisher *publisher; /* NULL: nothing is published */
    uint64_t era;
    const char *job_id;
    int node;           /* of the job's tree */
    struct buf pending; /* of one stream */
    int stream;
    uint64_t at[3]; /* bytes handed on, or left out, of stdout (1) and stderr (2) */
    uint64_t total;
    int pieces; /* handed on */
    int64_t last_us;
};

/* publisher and job_id must outlive l; publisher NULL makes every call a no-op. */
void live_start(struct live *l, struct publisher *publisher, const char *job_id, int node);
void live_add(struct live *l, int stream, const void *data, size_t len);
/* Hand on what is due. */
void live_tick(struct live *l, int64_t now_us);
/* When live_tick has something to do (mono_us), INT64_MAX when nothing is pending. */
int64_t live_due_us(const struct live *l);
/* Hand on the rest; frees. */
void live_done(struct live *l);
/* The same, and the end mark of the job's output. */
void live_end(struct live *l);
