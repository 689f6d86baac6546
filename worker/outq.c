#include "worker/outq.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>

#define PIECES_FIRST 2048 /* room for most jobs: kept from job to job */

static void add_arena(struct outq *q)
{
    assert(q->n_arenas < OUTQ_ARENAS_MAX);
    uint8_t *arena = malloc(OUTQ_ARENA_BYTES);
    if (!arena) {
        abort();
    }
    q->arenas[q->n_arenas++] = arena;
    q->arena_used = 0;
}

static void set_pieces(struct outq *q, int cap)
{
    struct iovec *pieces = realloc(q->pieces, (size_t)cap * sizeof *pieces);
    if (!pieces) {
        abort();
    }
    q->pieces = pieces;
    q->pieces_cap = cap;
}

void outq_init(struct outq *q)
{
    *q = (struct outq){ 0 };
    set_pieces(q, PIECES_FIRST);
    add_arena(q);
}

void outq_done(struct outq *q)
{
    for (int i = 0; i < q->n_arenas; i++) {
        free(q->arenas[i]);
    }
    free(q->pieces);
    *q = (struct outq){ 0 };
}

static void start_anew(struct outq *q)
{
    q->first = q->n = 0;
    q->arena_used = 0;
    while (q->n_arenas > 1) {
        free(q->arenas[--q->n_arenas]);
    }
    if (q->pieces_cap > PIECES_FIRST) {
        set_pieces(q, PIECES_FIRST);
    }
}

void outq_reset(struct outq *q)
{
    start_anew(q);
    q->queued = q->sent = 0;
}

static int add_piece(struct outq *q, const void *data, size_t len, struct err *err)
{
    if (q->n == OUTQ_PIECES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "guest: more than %d pieces to send", OUTQ_PIECES_MAX);
    }
    if (q->n == q->pieces_cap) {
        set_pieces(q, q->pieces_cap * 2);
    }
    q->pieces[q->n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)data, .iov_len = len };
    q->queued += len;
    return 0;
}

/* The next bytes of the arena, and how many there are. */
static uint8_t *space(const struct outq *q, size_t *ret_room)
{
    *ret_room = OUTQ_ARENA_BYTES - q->arena_used;
    return q->arenas[q->n_arenas - 1] + q->arena_used;
}

int outq_message(struct outq *q, enum frame_type type, const pb_msgdesc_t *fields,
                 const void *message, struct err *err)
{
    size_t room;
    uint8_t *at = space(q, &room);
    int n = frame_encode(at, room, type, fields, message, err);
    if (n < 0 && q->arena_used > 0 && q->n_arenas < OUTQ_ARENAS_MAX) {
        add_arena(q);
        at = space(q, &room);
        n = frame_encode(at, room, type, fields, message, err);
    }
    if (n < 0) {
        return n;
    }
    q->arena_used += (size_t)n;
    return add_piece(q, at, (size_t)n, err);
}

static int add_header(struct outq *q, enum frame_type type, size_t len, uint8_t **ret_at,
                      struct err *err)
{
    size_t room;
    uint8_t *at = space(q, &room);
    if (room < FRAME_HEADER_BYTES) {
        if (q->n_arenas == OUTQ_ARENAS_MAX) {
            return err_set(err, ERR_TOO_LARGE, "guest: too many frames to send");
        }
        add_arena(q);
        at = space(q, &room);
    }
    frame_header(at, type, 0, len);
    q->arena_used += FRAME_HEADER_BYTES;
    *ret_at = at;
    return 0;
}

int outq_raw(struct outq *q, enum frame_type type, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        size_t part = len < FRAME_PAYLOAD_MAX ? len : FRAME_PAYLOAD_MAX;
        uint8_t *header = NULL;
        int rc = add_header(q, type, part, &header, err);
        if (rc < 0 || (rc = add_piece(q, header, FRAME_HEADER_BYTES, err)) < 0 ||
            (rc = add_piece(q, data, part, err)) < 0) {
            return rc;
        }
        data += part;
        len -= part;
    }
    return 0;
}

int outq_bare(struct outq *q, enum frame_type type, struct err *err)
{
    uint8_t *at = NULL;
    int rc = add_header(q, type, 0, &at, err);
    return rc < 0 ? rc : add_piece(q, at, FRAME_HEADER_BYTES, err);
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
    start_anew(q);
    return 0;
}
