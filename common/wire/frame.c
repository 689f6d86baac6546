#include "common/wire/frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <pb_decode.h>
#include <pb_encode.h>

#include "schemas/proto/guest.pb.h"

static_assert(sizeof(((guest_Run *)0)->argv.bytes) == GUEST_ARGV_MAX, "guest.options");
static_assert(sizeof(((guest_Run *)0)->env.bytes) == GUEST_ENV_MAX, "guest.options");
static_assert(sizeof(((guest_Artifact *)0)->path.bytes) == GUEST_ARTIFACT_PATH_MAX &&
                  sizeof(((guest_Artifact *)0)->target.bytes) == GUEST_ARTIFACT_PATH_MAX,
              "guest.options");
static_assert(guest_Run_size <= FRAME_PAYLOAD_MAX, "the largest message fits a frame");

#define PARSER_BYTES (FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX)

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void frame_parser_init(struct frame_parser *p)
{
    *p = (struct frame_parser){ .data = malloc(PARSER_BYTES) };
    if (!p->data) {
        abort();
    }
}

void frame_parser_done(struct frame_parser *p)
{
    free(p->data);
    *p = (struct frame_parser){ 0 };
}

uint8_t *frame_parser_space(struct frame_parser *p, size_t *ret_room)
{
    assert(p->data && p->start <= p->end && p->end <= PARSER_BYTES);
    if (p->start == p->end) {
        p->start = p->end = 0;
    } else if (p->start > 0) {
        memmove(p->data, p->data + p->start, p->end - p->start);
        p->end -= p->start;
        p->start = 0;
    }
    *ret_room = PARSER_BYTES - p->end;
    return p->data + p->end;
}

void frame_parser_filled(struct frame_parser *p, size_t n)
{
    assert(n <= PARSER_BYTES - p->end);
    p->end += n;
}

int frame_parser_next(struct frame_parser *p, struct frame *ret_frame, struct err *err)
{
    if (p->broken) {
        return err_set(err, ERR_PROTOCOL, "frame: the stream was broken before");
    }
    size_t have = p->end - p->start;
    if (have < FRAME_HEADER_BYTES) {
        return 0;
    }
    const uint8_t *h = p->data + p->start;
    uint32_t len = le32(h);
    int type = h[4];
    if (type < FRAME_HELLO || type >= FRAME_TYPE_END || h[6] || h[7] || len > FRAME_PAYLOAD_MAX ||
        (h[5] != 0 && type != FRAME_OUTPUT)) {
        p->broken = -ERR_PROTOCOL;
        return err_set(err, ERR_PROTOCOL, "frame: bad header: type %d, stream %d, length %u", type,
                       h[5], len);
    }
    if (have - FRAME_HEADER_BYTES < len) {
        return 0;
    }
    *ret_frame = (struct frame){
        .type = (enum frame_type)type, .stream = h[5], .payload = h + FRAME_HEADER_BYTES, .len = len
    };
    p->start += FRAME_HEADER_BYTES + len;
    return 1;
}

void frame_header(uint8_t *out, enum frame_type type, uint8_t stream, size_t len)
{
    assert(len <= FRAME_PAYLOAD_MAX && type > 0 && type < FRAME_TYPE_END);
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(len >> (8 * i));
    }
    out[4] = (uint8_t)type;
    out[5] = stream;
    out[6] = out[7] = 0;
}

int frame_encode(uint8_t *out, size_t room, enum frame_type type, const pb_msgdesc_t *fields,
                 const void *message, struct err *err)
{
    if (room < FRAME_HEADER_BYTES) {
        return err_set(err, ERR_TOO_LARGE, "frame: no room for a header");
    }
    if (room > FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX) {
        room = FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX;
    }
    pb_ostream_t os = pb_ostream_from_buffer(out + FRAME_HEADER_BYTES, room - FRAME_HEADER_BYTES);
    if (!pb_encode(&os, fields, message)) {
        return err_set(err, ERR_TOO_LARGE,
                       "frame: message of type %d does not fit in %zu bytes: %s", (int)type, room,
                       PB_GET_ERROR(&os));
    }
    frame_header(out, type, 0, os.bytes_written);
    return (int)(FRAME_HEADER_BYTES + os.bytes_written);
}

int frame_decode(const struct frame *f, const pb_msgdesc_t *fields, void *ret_message,
                 struct err *err)
{
    pb_istream_t is = pb_istream_from_buffer(f->payload, f->len);
    if (!pb_decode(&is, fields, ret_message)) {
        return err_set(err, ERR_PROTOCOL, "frame: message of type %d: %s", (int)f->type,
                       PB_GET_ERROR(&is));
    }
    return 0;
}
