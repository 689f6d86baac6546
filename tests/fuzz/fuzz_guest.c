/* A whole conversation as the worker sees it: a hostile guest's frames, each decoded only as what
 * the worker expects from a guest. Strings that were decoded are bounded and terminated, whatever
 * the guest claimed. Every byte of the input is stream; pieces are cut where the input's own bytes
 * say. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IN(s) (memchr((s), 0, sizeof(s)) != NULL)

static uint64_t output_bytes[3];

static void take(const struct frame *f)
{
    struct err err;
    guest_Hello hello;
    guest_Ready ready;
    guest_Started started;
    guest_Pull pull;
    guest_Exit end;
    guest_GuestError error;
    switch (f->type) {
    case FRAME_HELLO:
        if (frame_decode(f, guest_Hello_fields, &hello, &err) == 0) {
            assert(IN(hello.agent) && IN(hello.kernel));
        }
        break;
    case FRAME_READY:
        (void)!frame_decode(f, guest_Ready_fields, &ready, &err);
        break;
    case FRAME_STARTED:
        (void)!frame_decode(f, guest_Started_fields, &started, &err);
        break;
    case FRAME_PULL:
        (void)!frame_decode(f, guest_Pull_fields, &pull, &err);
        break;
    case FRAME_OUTPUT:
        output_bytes[f->stream == 2 ? 2 : 1] += f->len;
        break;
    case FRAME_EXIT:
        if (frame_decode(f, guest_Exit_fields, &end, &err) == 0) {
            assert(IN(end.exec_error));
        }
        break;
    case FRAME_ERROR:
        if (frame_decode(f, guest_GuestError_fields, &error, &err) == 0) {
            assert(IN(error.what) && IN(error.text));
        }
        break;
    default:
        break; /* a frame only the host sends: the worker drops the guest */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_parser p;
    struct err err;
    size_t at = 0;
    int rc = 0;
    frame_parser_init(&p);
    output_bytes[1] = output_bytes[2] = 0;
    while (at < size && rc >= 0) {
        size_t room, n = (size_t)data[at] * 37 + 1;
        uint8_t *to = frame_parser_space(&p, &room);
        assert(room > 0);
        n = n < room ? n : room;
        n = n < size - at ? n : size - at;
        memcpy(to, data + at, n);
        frame_parser_filled(&p, n);
        at += n;
        struct frame f;
        while ((rc = frame_parser_next(&p, &f, &err)) == 1) {
            take(&f);
        }
    }
    assert(output_bytes[1] + output_bytes[2] <= size);
    frame_parser_done(&p);
    return 0;
}
