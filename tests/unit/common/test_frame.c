/* Frames: cut at every byte, at the maximum and one above, and every kind of bad header. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

static struct frame_parser p;
static struct err err;

static void setup(void)
{
    frame_parser_init(&p);
}

static void teardown(void)
{
    frame_parser_done(&p);
}

TestSuite(frame, .init = setup, .fini = teardown);

static void feed(const uint8_t *data, size_t n)
{
    size_t room;
    uint8_t *to = frame_parser_space(&p, &room);
    cr_assert_geq(room, n);
    memcpy(to, data, n);
    frame_parser_filled(&p, n);
}

static size_t two_frames(uint8_t *out, size_t room)
{
    guest_Hello hello = guest_Hello_init_zero;
    hello.protocol = GUEST_PROTOCOL_VERSION;
    (void)snprintf(hello.agent, sizeof hello.agent, "0.1.0");
    int n = frame_encode(out, room, FRAME_HELLO, guest_Hello_fields, &hello, &err);
    cr_assert_gt(n, (int)FRAME_HEADER_BYTES);
    frame_header(out + n, FRAME_OUTPUT, 2, 5);
    memcpy(out + n + FRAME_HEADER_BYTES, "a\0b\xff\n", 5);
    return (size_t)n + FRAME_HEADER_BYTES + 5;
}

static void expect_two(void)
{
    struct frame f;
    cr_assert_eq(frame_parser_next(&p, &f, &err), 1);
    cr_assert_eq(f.type, FRAME_HELLO);
    guest_Hello hello;
    cr_assert_eq(frame_decode(&f, guest_Hello_fields, &hello, &err), 0);
    cr_assert_eq(hello.protocol, 1);
    cr_assert_str_eq(hello.agent, "0.1.0");
    cr_assert_eq(frame_parser_next(&p, &f, &err), 1);
    cr_assert_eq(f.type, FRAME_OUTPUT);
    cr_assert_eq(f.stream, 2);
    cr_assert_eq(f.len, 5);
    cr_assert_eq(memcmp(f.payload, "a\0b\xff\n", 5), 0);
    cr_assert_eq(frame_parser_next(&p, &f, &err), 0);
}

Test(frame, cut_at_every_byte)
{
    uint8_t bytes[256];
    size_t n = two_frames(bytes, sizeof bytes);
    for (size_t cut = 0; cut <= n; cut++) {
        struct frame f;
        feed(bytes, cut);
        if (cut < FRAME_HEADER_BYTES) {
            cr_assert_eq(frame_parser_next(&p, &f, &err), 0);
        }
        feed(bytes + cut, n - cut);
        expect_two();
    }
}

Test(frame, byte_by_byte)
{
    uint8_t bytes[256];
    size_t n = two_frames(bytes, sizeof bytes), taken = 0;
    struct frame f;
    for (size_t i = 0; i < n; i++) {
        feed(bytes + i, 1);
        int rc = frame_parser_next(&p, &f, &err);
        cr_assert_geq(rc, 0);
        taken += (size_t)rc;
    }
    cr_assert_eq(taken, 2);
}

Test(frame, maximum_and_one_above)
{
    cleanup_free uint8_t *bytes = calloc(1, FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX);
    cr_assert_not_null(bytes);
    for (int round = 0; round < 3; round++) {
        frame_header(bytes, FRAME_OUTPUT, 1, FRAME_PAYLOAD_MAX);
        bytes[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX - 1] = 0x5a;
        feed(bytes, FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX);
        struct frame f;
        cr_assert_eq(frame_parser_next(&p, &f, &err), 1);
        cr_assert_eq(f.len, FRAME_PAYLOAD_MAX);
        cr_assert_eq(f.payload[FRAME_PAYLOAD_MAX - 1], 0x5a);
    }
    bytes[0] = 1; /* 65537 */
    feed(bytes, FRAME_HEADER_BYTES);
    struct frame f;
    cr_assert_eq(frame_parser_next(&p, &f, &err), -ERR_PROTOCOL);
}

Test(frame, empty_payload)
{
    uint8_t h[FRAME_HEADER_BYTES];
    struct frame f;
    frame_header(h, FRAME_PING, 0, 0);
    feed(h, sizeof h);
    cr_assert_eq(frame_parser_next(&p, &f, &err), 1);
    cr_assert_eq(f.type, FRAME_PING);
    cr_assert_eq(f.len, 0);
}

static void bad(const uint8_t h[FRAME_HEADER_BYTES])
{
    frame_parser_done(&p);
    frame_parser_init(&p);
    struct frame f;
    feed(h, FRAME_HEADER_BYTES);
    cr_assert_eq(frame_parser_next(&p, &f, &err), -ERR_PROTOCOL);
    /* and it stays so, although a good frame follows */
    uint8_t good[FRAME_HEADER_BYTES];
    frame_header(good, FRAME_PING, 0, 0);
    feed(good, sizeof good);
    cr_assert_eq(frame_parser_next(&p, &f, &err), -ERR_PROTOCOL);
}

Test(frame, bad_headers)
{
    for (int type = 0; type < 256; type++) {
        for (int stream = 0; stream < 4; stream++) {
            uint8_t h[FRAME_HEADER_BYTES] = { 0, 0, 0, 0, (uint8_t)type, (uint8_t)stream, 0, 0 };
            bool known = type >= FRAME_HELLO && type < FRAME_TYPE_END;
            if (!known || (stream && type != FRAME_OUTPUT)) {
                bad(h);
            }
        }
    }
    for (int i = 6; i < 8; i++) {
        uint8_t h[FRAME_HEADER_BYTES] = { 0, 0, 0, 0, FRAME_PING, 0, 0, 0 };
        h[i] = 1;
        bad(h);
    }
    for (int i = 2; i < 4; i++) { /* lengths of 128 KiB and more, to 4 GiB */
        uint8_t h[FRAME_HEADER_BYTES] = { 0, 0, 0, 0, FRAME_OUTPUT, 1, 0, 0 };
        h[i] = 0xff;
        bad(h);
    }
}

Test(frame, encode_needs_room)
{
    uint8_t bytes[64];
    guest_Started started = { .run = 7, .warm = true };
    int n = frame_encode(bytes, sizeof bytes, FRAME_STARTED, guest_Started_fields, &started, &err);
    cr_assert_eq(n, (int)FRAME_HEADER_BYTES + 4);
    cr_assert_eq(
        frame_encode(bytes, (size_t)n, FRAME_STARTED, guest_Started_fields, &started, &err), n);
    cr_assert_eq(
        frame_encode(bytes, (size_t)n - 1, FRAME_STARTED, guest_Started_fields, &started, &err),
        -ERR_TOO_LARGE);
    cr_assert_eq(frame_encode(bytes, 7, FRAME_STARTED, guest_Started_fields, &started, &err),
                 -ERR_TOO_LARGE);
}

Test(frame, the_largest_run_fits)
{
    guest_Run *run = calloc(1, sizeof *run);
    cleanup_free uint8_t *bytes = malloc(FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX);
    cr_assert(run && bytes);
    run->run = UINT32_MAX;
    run->argv.size = GUEST_ARGV_MAX;
    run->env.size = GUEST_ENV_MAX;
    memset(run->cwd, 'c', sizeof run->cwd - 1);
    run->has_limits = true;
    run->limits =
        (guest_RunLimits){ UINT64_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    int n = frame_encode(bytes, FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX, FRAME_RUN, guest_Run_fields,
                         run, &err);
    cr_assert_gt(n, (int)(GUEST_ARGV_MAX + GUEST_ENV_MAX), "%s", err.text);
    free(run);
}

Test(frame, messages_that_claim_too_much)
{
    /* Hello.agent holds 31 characters */
    uint8_t payload[40] = { 0x12, 32 };
    memset(payload + 2, 'a', 32);
    struct frame f = { .type = FRAME_HELLO, .payload = payload, .len = 34 };
    guest_Hello hello;
    cr_assert_eq(frame_decode(&f, guest_Hello_fields, &hello, &err), -ERR_PROTOCOL);
    payload[1] = 31;
    f.len = 33;
    cr_assert_eq(frame_decode(&f, guest_Hello_fields, &hello, &err), 0);
    cr_assert_eq(strlen(hello.agent), 31);
    f.len = 32; /* cut */
    cr_assert_eq(frame_decode(&f, guest_Hello_fields, &hello, &err), -ERR_PROTOCOL);
}
