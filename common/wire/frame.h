/* Frames on the guest's channel: a byte stream that either end may cut at any byte.
 *
 * Header, 8 bytes, little-endian: u32 length of the payload, u8 type, u8 stream, u16 zero. The
 * payload is a nanopb message (schemas/proto/guest.proto) or, for the data types, raw bytes. Length
 * is at most FRAME_PAYLOAD_MAX; a longer one, an unknown type, or a non-zero reserved field is
 * -ERR_PROTOCOL and the stream is unusable from there on. The parser does no I/O, never allocates
 * what a header claims, and hands out pointers into its own buffer. Source: docs/protocol.md,
 * "Guest channel". */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <pb.h>
#include "common/base/err.h"

#define GUEST_PROTOCOL_VERSION 1u
#define FRAME_HEADER_BYTES 8u
#define FRAME_PAYLOAD_MAX 65536u      /* of any type; the largest message, Run, is below it */
#define GUEST_ARGV_MAX 40000u         /* bytes of Run.argv, NULs included (guest.options) */
#define GUEST_ENV_MAX 20000u          /* bytes of Run.env */
#define GUEST_ARTIFACT_PATH_MAX 1024u /* bytes of Artifact.path, and of Artifact.target */

enum frame_type {
    FRAME_HELLO = 1,          /* guest -> host: Hello */
    FRAME_PING = 2,           /* host -> guest: empty; answered by Hello */
    FRAME_IDENTITY = 3,       /* host -> guest */
    FRAME_READY = 4,          /* guest -> host */
    FRAME_FILE = 5,           /* host -> guest */
    FRAME_FILE_DATA = 6,      /* host -> guest, raw */
    FRAME_RUN = 7,            /* host -> guest */
    FRAME_STARTED = 8,        /* guest -> host */
    FRAME_PULL = 9,           /* guest -> host */
    FRAME_STDIN = 10,         /* host -> guest, raw */
    FRAME_OUTPUT = 11,        /* guest -> host, raw; stream = 1 stdout, 2 stderr */
    FRAME_KILL = 12,          /* host -> guest */
    FRAME_EXIT = 13,          /* guest -> host */
    FRAME_ERROR = 14,         /* guest -> host */
    FRAME_COLLECT = 15,       /* host -> guest */
    FRAME_ARTIFACT = 16,      /* guest -> host */
    FRAME_ARTIFACT_DATA = 17, /* guest -> host, raw */
    FRAME_ARTIFACT_END = 18,  /* guest -> host */
    FRAME_COLLECTED = 19,     /* guest -> host */
    FRAME_SETTLE = 20,        /* host -> guest: empty; get ready to be frozen */
    FRAME_SETTLED = 21,       /* guest -> host */
    FRAME_CELL = 22,          /* host -> guest: make the next job's container */
    FRAME_CELL_READY = 23,    /* guest -> host */
    FRAME_TYPE_END
};

struct frame {
    enum frame_type type;
    uint8_t stream;
    const uint8_t *payload; /* valid until the next frame_parser call */
    size_t len;
};

/* Receiving side: fill space, then take frames out until there is none. Holds at most one maximal
 * frame. */
struct frame_parser {
    uint8_t *data; /* FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX bytes, allocated once */
    size_t start, end;
    int broken; /* sticky: -ERR_PROTOCOL once seen */
};

void frame_parser_init(struct frame_parser *p);
void frame_parser_done(struct frame_parser *p);
/* Where to read(2) to, and how many bytes fit (at least 1 while the caller takes all complete
 * frames first). */
uint8_t *frame_parser_space(struct frame_parser *p, size_t *ret_room);
void frame_parser_filled(struct frame_parser *p, size_t n);
/* 1: *ret_frame is set; 0: more bytes are needed; -ERR_PROTOCOL. */
MUST_CHECK int frame_parser_next(struct frame_parser *p, struct frame *ret_frame, struct err *err);

/* Write the header of a frame into out[FRAME_HEADER_BYTES]. len <= FRAME_PAYLOAD_MAX (asserted). */
void frame_header(uint8_t *out, enum frame_type type, uint8_t stream, size_t len);
/* Encode header and message into out[room]; returns the whole length. -ERR_TOO_LARGE when it does
 * not fit. */
MUST_CHECK int frame_encode(uint8_t *out, size_t room, enum frame_type type,
                            const pb_msgdesc_t *fields, const void *message, struct err *err);
/* Decode f's payload into message (zeroed first); -ERR_PROTOCOL when it is not one. */
MUST_CHECK int frame_decode(const struct frame *f, const pb_msgdesc_t *fields, void *ret_message,
                            struct err *err);
