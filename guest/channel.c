#include "guest/channel.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int channel_init(struct channel *ch, int port_fd, struct err *err)
{
    *ch = (struct channel){ .fd = port_fd, .out = malloc(CHANNEL_OUT_BYTES) };
    if (!ch->out) {
        abort();
    }
    frame_parser_init(&ch->in);
    ch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLET };
    if (ch->epoll_fd < 0 || epoll_ctl(ch->epoll_fd, EPOLL_CTL_ADD, port_fd, &ev) < 0) {
        return err_sys(err, "epoll of the port");
    }
    return 0;
}

int channel_poll_fd(const struct channel *ch, short *ret_events)
{
    *ret_events = POLLIN;
    if (!ch->connected) {
        return ch->epoll_fd;
    }
    if (!channel_idle(ch)) {
        *ret_events |= POLLOUT;
    }
    return ch->fd;
}

static int lost(struct channel *ch)
{
    ch->connected = false;
    ch->in.start = ch->in.end = 0;
    ch->in.broken = 0;
    ch->out_start = ch->out_end = 0;
    return -ERR_CLOSED;
}

int channel_ready(struct channel *ch, short revents)
{
    if (ch->connected) {
        if (revents & POLLHUP && !(revents & POLLIN)) {
            return lost(ch);
        }
        return revents != 0;
    }
    struct epoll_event ev;
    while (epoll_wait(ch->epoll_fd, &ev, 1, 0) >
           0) { /* take the edge before looking at the level */
        struct pollfd p = { .fd = ch->fd, .events = POLLIN | POLLOUT };
        if (poll(&p, 1, 0) > 0 && !(p.revents & POLLHUP)) {
            ch->connected = true;
            return 1;
        }
    }
    return 0;
}

int channel_read(struct channel *ch)
{
    size_t room;
    uint8_t *to = frame_parser_space(&ch->in, &room);
    ssize_t n = read(ch->fd, to, room);
    if (n > 0) {
        frame_parser_filled(&ch->in, (size_t)n);
        return (int)n;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return lost(ch);
}

static void compact(struct channel *ch)
{
    if (ch->out_start > 0) {
        memmove(ch->out, ch->out + ch->out_start, ch->out_end - ch->out_start);
        ch->out_end -= ch->out_start;
        ch->out_start = 0;
    }
}

size_t channel_room(const struct channel *ch)
{
    size_t used = ch->out_end - ch->out_start + FRAME_HEADER_BYTES + CHANNEL_RESERVE_BYTES;
    size_t room = used < CHANNEL_OUT_BYTES ? CHANNEL_OUT_BYTES - used : 0;
    if (room < FRAME_PAYLOAD_MAX / 4) {
        return 0; /* rather wait than send crumbs */
    }
    return room < FRAME_PAYLOAD_MAX ? room : FRAME_PAYLOAD_MAX;
}

uint8_t *channel_payload_space(struct channel *ch)
{
    if (CHANNEL_OUT_BYTES - ch->out_end <
        2 * FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX + CHANNEL_RESERVE_BYTES) {
        compact(ch);
    }
    return ch->out + ch->out_end + FRAME_HEADER_BYTES;
}

void channel_put_payload(struct channel *ch, enum frame_type type, uint8_t stream, size_t len)
{
    assert(len <= FRAME_PAYLOAD_MAX && ch->out_end + FRAME_HEADER_BYTES + len <= CHANNEL_OUT_BYTES);
    frame_header(ch->out + ch->out_end, type, stream, len);
    ch->out_end += FRAME_HEADER_BYTES + len;
}

void channel_put(struct channel *ch, enum frame_type type, const pb_msgdesc_t *fields,
                 const void *message)
{
    if (CHANNEL_OUT_BYTES - ch->out_end < CHANNEL_RESERVE_BYTES) {
        compact(ch);
    }
    if (CHANNEL_OUT_BYTES - ch->out_end < CHANNEL_RESERVE_BYTES / 4) {
        return; /* a host that sends nonsense and never reads the answers: they are not kept for it
                 */
    }
    struct err err;
    int n = frame_encode(ch->out + ch->out_end, CHANNEL_OUT_BYTES - ch->out_end, type, fields,
                         message, &err);
    assert(n > 0);
    ch->out_end += (size_t)n;
}

int channel_flush(struct channel *ch)
{
    while (ch->connected && !channel_idle(ch)) {
        ssize_t n = write(ch->fd, ch->out + ch->out_start, ch->out_end - ch->out_start);
        if (n > 0) {
            ch->out_start += (size_t)n;
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        return lost(ch);
    }
    if (channel_idle(ch)) {
        ch->out_start = ch->out_end = 0;
    }
    return 0;
}
