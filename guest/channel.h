/* The guest's end of the channel: the virtio-serial port, the frame parser and a bounded queue of
 * what is to be sent.
 *
 * The host may vanish and come back at any time; a clone of a snapshot looks just so. The port then
 * reads as end of file and polls as hung up, for as long as nobody is there. channel_lost drops
 * partial input and unsent output; until the host is back, channel_poll_fd is an edge-triggered
 * epoll over the port, since a hung-up port would wake poll() for ever. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/wire/frame.h"

/* Four maximal frames: a stream's chunk goes out while the next is read. */
#define CHANNEL_OUT_BYTES (4u * (FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX))
/* Kept free for messages, so that EXIT and ERROR always fit behind output. */
#define CHANNEL_RESERVE_BYTES 8192u

struct channel {
    int fd;       /* the port; -1 never */
    int epoll_fd; /* edge-triggered on fd */
    bool connected;
    struct frame_parser in;
    uint8_t *out; /* CHANNEL_OUT_BYTES */
    size_t out_start, out_end;
};

/* Takes port_fd over. */
MUST_CHECK int channel_init(struct channel *ch, int port_fd, struct err *err);
/* What to poll for this channel, and for what. */
int channel_poll_fd(const struct channel *ch, short *ret_events);
/* 1: the host is there and may have sent; 0: nothing new; -ERR_CLOSED: it has gone since
 * (channel_lost was called). */
MUST_CHECK int channel_ready(struct channel *ch, short revents);
/* Read once into the parser. Bytes read, 0 when there are none now, -ERR_CLOSED. */
MUST_CHECK int channel_read(struct channel *ch);
/* Bytes of raw payload that one more OUTPUT frame may carry; 0 when the queue is full. */
size_t channel_room(const struct channel *ch);
/* Where that payload goes; channel_put_payload then puts the header before it. */
uint8_t *channel_payload_space(struct channel *ch);
void channel_put_payload(struct channel *ch, enum frame_type type, uint8_t stream, size_t len);
/* Queue a message. Asserts that it fits: at most CHANNEL_RESERVE_BYTES are ever queued beside
 * output. */
void channel_put(struct channel *ch, enum frame_type type, const pb_msgdesc_t *fields,
                 const void *message);
/* Write what is queued as far as the host takes it. 0 or -ERR_CLOSED. */
MUST_CHECK int channel_flush(struct channel *ch);
static inline bool channel_idle(const struct channel *ch)
{
    return ch->out_start == ch->out_end;
}
