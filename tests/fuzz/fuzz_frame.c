/* The frame parser, fed in pieces whose sizes come from the input, and the decoder of whatever
 * frame comes out. First byte: size of the pieces. The rest: the stream. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static union {
    guest_Hello hello;
    guest_Identity identity;
    guest_Ready ready;
    guest_File file;
    guest_Run run;
    guest_Started started;
    guest_Pull pull;
    guest_Kill kill;
    guest_Exit exit;
    guest_GuestError error;
    guest_Collect collect;
    guest_Artifact artifact;
    guest_ArtifactEnd artifact_end;
    guest_Collected collected;
} message;

static const pb_msgdesc_t *fields_of(enum frame_type type)
{
    switch (type) {
    case FRAME_HELLO:
        return guest_Hello_fields;
    case FRAME_IDENTITY:
        return guest_Identity_fields;
    case FRAME_READY:
        return guest_Ready_fields;
    case FRAME_FILE:
        return guest_File_fields;
    case FRAME_RUN:
        return guest_Run_fields;
    case FRAME_STARTED:
        return guest_Started_fields;
    case FRAME_PULL:
        return guest_Pull_fields;
    case FRAME_KILL:
        return guest_Kill_fields;
    case FRAME_EXIT:
        return guest_Exit_fields;
    case FRAME_ERROR:
        return guest_GuestError_fields;
    case FRAME_COLLECT:
        return guest_Collect_fields;
    case FRAME_ARTIFACT:
        return guest_Artifact_fields;
    case FRAME_ARTIFACT_END:
        return guest_ArtifactEnd_fields;
    case FRAME_COLLECTED:
        return guest_Collected_fields;
    default:
        return NULL; /* raw bytes, or nothing */
    }
}

static uint8_t again[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t piece = size ? (size_t)data[0] + 1 : 1, at = size ? 1 : 0;
    struct frame_parser p;
    struct err err;
    frame_parser_init(&p);
    int rc = 0;
    while (at < size && rc >= 0) {
        size_t room, n = size - at < piece ? size - at : piece;
        uint8_t *to = frame_parser_space(&p, &room);
        assert(room > 0);
        n = n < room ? n : room;
        memcpy(to, data + at, n);
        frame_parser_filled(&p, n);
        at += n;
        struct frame f;
        while ((rc = frame_parser_next(&p, &f, &err)) == 1) {
            assert(f.len <= FRAME_PAYLOAD_MAX && f.type > 0 && f.type < FRAME_TYPE_END);
            const pb_msgdesc_t *fields = fields_of(f.type);
            if (fields && frame_decode(&f, fields, &message, &err) == 0) {
                /* what was decoded can be sent on */
                int sent = frame_encode(again, sizeof again, f.type, fields, &message, &err);
                assert(sent >= (int)FRAME_HEADER_BYTES);
            }
        }
    }
    if (rc < 0) { /* broken stays broken */
        struct frame f;
        assert(frame_parser_next(&p, &f, &err) == rc);
    }
    frame_parser_done(&p);
    return 0;
}
