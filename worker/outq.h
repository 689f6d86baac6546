/* What is to be sent to a guest: frames whose payloads stay where they are (job files, stdin),
 * written without blocking.
 *
 * Theory: a list of pieces. Headers and encoded messages live in an arena; large raw payloads are
 * only pointed at, so sending 16 MiB of files copies nothing here. Everything queued goes out with
 * as few sendmsg(2) as the socket allows. When the last byte is gone, list and arena start anew;
 * what they had grown by, for the files of an archive, is given back.
 * Positions in the stream let the caller ask whether a certain frame is out. */
#pragma once
#include <pb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "common/base/err.h"
#include "common/wire/frame.h"

#define OUTQ_PIECES_MAX 262144 /* an archive's files: three each, two for each further frame */
#define OUTQ_ARENA_BYTES (320u << 10)
#define OUTQ_ARENAS_MAX 160 /* longest paths and targets of as many files */

struct outq {
    struct iovec *pieces;
    uint8_t *arenas[OUTQ_ARENAS_MAX];
    int pieces_cap, n_arenas;
    int first, n;          /* pieces[first..n) are still to be sent */
    size_t arena_used;     /* of the last */
    uint64_t queued, sent; /* bytes since outq_reset */
};

void outq_init(struct outq *q);
void outq_done(struct outq *q);
void outq_reset(struct outq *q);
static inline bool outq_empty(const struct outq *q)
{
    return q->first == q->n;
}
/* Queue a message; it is encoded at once. -ERR_TOO_LARGE when the maxima are reached. */
MUST_CHECK int outq_message(struct outq *q, enum frame_type type, const pb_msgdesc_t *fields,
                            const void *message, struct err *err);
/* Queue len raw bytes as frames of FRAME_PAYLOAD_MAX; data must stay until they are sent. */
MUST_CHECK int outq_raw(struct outq *q, enum frame_type type, const char *data, size_t len,
                        struct err *err);
/* Queue a frame without payload. */
MUST_CHECK int outq_bare(struct outq *q, enum frame_type type, struct err *err);
/* Send what the socket takes. 0, also when it takes nothing now; -ERR_CLOSED, -ERR_SYS. */
MUST_CHECK int outq_flush(struct outq *q, int fd, struct err *err);
