#include "worker/outq.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>

void outq_init(struct outq *q)
{
    *q = (struct outq){ .pieces = calloc(OUTQ_PIECES_MAX, sizeof(struct iovec)),
                        .arena = malloc(OUTQ_ARENA_BYTES) };
    if (!q->pieces || !q->arena) {
        abort();
    }
}

void outq_done(struct outq *q)
{
    free(q->pieces);
    free(q->arena);
    *q = (struct outq){ 0 };
}

void outq_reset(struct outq *q)
{
    q->first = q->n = 0;
    q->arena_used = 0;
    q->queued = q->sent = 0;
}

static int add_piece(struct outq *q, const void *data, size_t len, struct err *err)
{
    if (q->n == OUTQ_PIECES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "guest: more than %d pieces to send", OUTQ_PIECES_MAX);
    }
    q->pieces[q->n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)data, .iov_len = len };
    q->queued += len;
    return 0;
}

int outq_message(struct outq *q, enum frame_type type, const pb_msgdesc_t *fields,
                 const void *message, struct err *err)
{
    uint8_t *at = q->arena + q->arena_used;
    int n = frame_encode(at, OUTQ_ARENA_BYTES - q->arena_used, type, fields, message, err);
    if (n < 0) {
        return n;
    }
    q->arena_used += (size_t)n;
    return add_piece(q, at, (size_t)n, err);
}

int outq_raw(struct outq *q, enum frame_type type, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        size_t part = len < FRAME_PAYLOAD_MAX ? len : FRAME_PAYLOAD_MAX;
        if (OUTQ_ARENA_BYTES - q->arena_used < FRAME_HEADER_BYTES) {
            return err_set(err, ERR_TOO_LARGE, "guest: too many frames to send");
        }
        uint8_t *header = q->arena + q->arena_used;
        frame_header(header, type, 0, part);
        q->arena_used += FRAME_HEADER_BYTES;
        int rc = add_piece(q, header, FRAME_HEADER_BYTES, err);
        if (rc < 0 || (rc = add_piece(q, data, part, err)) < 0) {
            return rc;
        }
        data += part;
        len -= part;
    }
    return 0;
}

int outq_bare(struct outq *q, enum frame_type type, struct err *err)
{
    if (OUTQ_ARENA_BYTES - q->arena_used < FRAME_HEADER_BYTES) {
        return err_set(err, ERR_TOO_LARGE, "guest: too many frames to send");
    }
    uint8_t *header = q->arena + q->arena_used;
    frame_header(header, type, 0, 0);
    q->arena_used += FRAME_HEADER_BYTES;
    return add_piece(q, header, FRAME_HEADER_BYTES, err);
}

bool outq_crowded(const struct outq *q)
{
    return q->n > OUTQ_PIECES_MAX / 4 || q->arena_used > OUTQ_ARENA_BYTES / 4;
}

int outq_flush(struct outq *q, int fd, struct err *err)
{
    while (!outq_empty(q)) {
        int count = q->n - q->first;
        struct msghdr msg = { .msg_iov = q->pieces + q->first,
                              .msg_iovlen = (size_t)(count < IOV_MAX ? count : IOV_MAX) };
        ssize_t n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
            return 0;
        }
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            return err_set(err, ERR_CLOSED, "guest: the channel was closed");
        }
        if (n < 0) {
            return err_sys(err, "guest: send");
        }
        q->sent += (uint64_t)n;
        size_t left = (size_t)n;
        while (left > 0) {
            struct iovec *p = &q->pieces[q->first];
            size_t part = left < p->iov_len ? left : p->iov_len;
            p->iov_base = (char *)p->iov_base + part;
            p->iov_len -= part;
            left -= part;
            q->first += p->iov_len == 0;
        }
    }
    assert(q->sent == q->queued);
    q->first = q->n = 0;
    q->arena_used = 0;
    return 0;
}
