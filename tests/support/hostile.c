#include "tests/support/hostile.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

#define FILES_ENDLESS 20000
#define U64 UINT64_MAX

struct port {
    int fd;
    struct frame_parser *in;
    uint32_t run;
    bool gone; /* the host */
};

static uint8_t chunk[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];

static bool put(struct port *p, const void *data, size_t n)
{
    const uint8_t *from = data;
    while (n > 0 && !p->gone) {
        ssize_t w = write(p->fd, from, n);
        if (w > 0) {
            from += w;
            n -= (size_t)w;
        } else if (w < 0 && errno != EAGAIN && errno != EINTR) {
            p->gone = true;
        } else {
            struct pollfd q = { .fd = p->fd, .events = POLLOUT };
            (void)poll(&q, 1, 100);
        }
    }
    return !p->gone;
}

static bool say(struct port *p, enum frame_type type, const pb_msgdesc_t *fields, const void *m)
{
    struct err err;
    int n = frame_encode(chunk, sizeof chunk, type, fields, m, &err);
    return n > 0 && put(p, chunk, (size_t)n);
}

static bool header(struct port *p, uint32_t len, uint8_t type, uint8_t stream, uint16_t reserved)
{
    uint8_t h[FRAME_HEADER_BYTES] = {
        (uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),    (uint8_t)(len >> 24), type,
        stream,       (uint8_t)reserved,   (uint8_t)(reserved >> 8)
    };
    return put(p, h, sizeof h);
}

/* The same bytes again and again, 64 KiB at a time, until the host is gone. */
static void forever(struct port *p, const uint8_t *frame, size_t n)
{
    static uint8_t many[65536];
    size_t len = 0;
    while (len + n <= sizeof many) {
        memcpy(many + len, frame, n);
        len += n;
    }
    while (put(p, many, len)) {
    }
}

/* Until a frame of this type begins to come; what is behind it is dropped. false: the host is gone.
 */
static bool await(struct port *p, enum frame_type type)
{
    struct frame f;
    struct err err;
    for (;;) {
        size_t room;
        int rc;
        while ((rc = frame_parser_next(p->in, &f, &err)) > 0) {
            if (f.type == type) {
                return true;
            }
        }
        if (rc < 0) {
            return false;
        }
        uint8_t *at = frame_parser_space(p->in, &room);
        ssize_t n = read(p->fd, at, room);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return false;
        }
        if (n < 0) {
            struct pollfd q = { .fd = p->fd, .events = POLLIN };
            (void)poll(&q, 1, 100);
            continue;
        }
        frame_parser_filled(p->in, (size_t)n);
    }
}

static void started(struct port *p)
{
    guest_Started m = { .run = p->run };
    (void)say(p, FRAME_STARTED, guest_Started_fields, &m);
}

static void ended(struct port *p)
{
    guest_Exit m = { .run = p->run };
    (void)say(p, FRAME_EXIT, guest_Exit_fields, &m);
}

static void fault(struct port *p, bool user)
{
    guest_GuestError m = { .run = p->run, .user_fault = user, .what = "file", .text = "no space" };
    (void)say(p, FRAME_ERROR, guest_GuestError_fields, &m);
}

static void noise(struct port *p)
{
    uint32_t x = 2463534242u;
    for (size_t i = 0; i < sizeof chunk; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        chunk[i] = (uint8_t)(x | 0x80);
    }
    (void)put(p, chunk, sizeof chunk);
}

/* ---- silence, halves, headers ---- */

static void silent(struct port *p)
{
    started(p);
}
static void silent_start(struct port *p)
{
    (void)p;
}
static void half_header(struct port *p)
{
    started(p);
    (void)put(p, "\x10\0\0\0", 4);
}
static void half_frame(struct port *p)
{
    started(p);
    (void)(header(p, 1000, FRAME_OUTPUT, 1, 0) && put(p, "half", 4));
}
static void half_frame_close(struct port *p)
{
    half_frame(p);
}
static void close_start(struct port *p)
{
    (void)p;
}
static void length_max(struct port *p)
{
    started(p);
    (void)header(p, UINT32_MAX, FRAME_OUTPUT, 1, 0);
}
static void length_over(struct port *p)
{
    started(p);
    (void)header(p, FRAME_PAYLOAD_MAX + 1, FRAME_OUTPUT, 1, 0);
}
static void type_zero(struct port *p)
{
    started(p);
    (void)header(p, 0, 0, 0, 0);
}
static void type_high(struct port *p)
{
    started(p);
    (void)header(p, 0, 200, 0, 0);
}
static void reserved(struct port *p)
{
    started(p);
    (void)header(p, 0, FRAME_OUTPUT, 1, 0x100);
}
static void stream_three(struct port *p)
{
    started(p);
    (void)header(p, 0, FRAME_OUTPUT, 3, 0);
}
static void not_a_message(struct port *p)
{
    started(p);
    (void)(header(p, 3, FRAME_EXIT, 0, 0) && put(p, "\xff\xff\xff", 3));
}
static void just_noise(struct port *p)
{
    started(p);
    noise(p);
}

/* ---- what was never asked ---- */

static void bare(struct port *p, enum frame_type type)
{
    started(p);
    (void)header(p, 0, (uint8_t)type, 0, 0);
}
static void hello(struct port *p)
{
    bare(p, FRAME_HELLO);
}
static void ready(struct port *p)
{
    bare(p, FRAME_READY);
}
static void run(struct port *p)
{
    bare(p, FRAME_RUN);
}
static void kill_frame(struct port *p)
{
    bare(p, FRAME_KILL);
}
static void artifact(struct port *p)
{
    bare(p, FRAME_ARTIFACT);
}
static void collected(struct port *p)
{
    bare(p, FRAME_COLLECTED);
}
static void settled(struct port *p)
{
    bare(p, FRAME_SETTLED);
}
static void started_twice(struct port *p)
{
    started(p);
    started(p);
}
static void exit_twice(struct port *p)
{
    started(p);
    ended(p);
    ended(p);
}
static void exit_first(struct port *p)
{
    ended(p);
}
static void exit_of_another(struct port *p)
{
    started(p);
    p->run += 76;
    ended(p);
}

/* ---- without end ---- */

static void tiny_frames(struct port *p)
{
    static const uint8_t f[FRAME_HEADER_BYTES + 1] = { 1, 0, 0, 0, FRAME_OUTPUT, 1, 0, 0, 'x' };
    started(p);
    forever(p, f, sizeof f);
}
static void empty_frames(struct port *p)
{
    static const uint8_t f[FRAME_HEADER_BYTES] = { 0, 0, 0, 0, FRAME_OUTPUT, 1, 0, 0 };
    started(p);
    forever(p, f, sizeof f);
}
static void both_streams(struct port *p)
{
    static const uint8_t f[2 * FRAME_HEADER_BYTES + 2] = { 1, 0, 0, 0, FRAME_OUTPUT, 1, 0, 0, 'o',
                                                           1, 0, 0, 0, FRAME_OUTPUT, 2, 0, 0, 'e' };
    started(p);
    forever(p, f, sizeof f);
}
static void large_frames(struct port *p)
{
    started(p);
    frame_header(chunk, FRAME_OUTPUT, 1, FRAME_PAYLOAD_MAX);
    while (put(p, chunk, sizeof chunk)) {
    }
}
static void pulls(struct port *p)
{
    struct err err;
    uint8_t f[64];
    guest_Pull m = { .run = p->run, .bytes = UINT32_MAX };
    int n = frame_encode(f, sizeof f, FRAME_PULL, guest_Pull_fields, &m, &err);
    started(p);
    forever(p, f, n > 0 ? (size_t)n : 0);
}
static void hellos(struct port *p)
{
    static const uint8_t f[FRAME_HEADER_BYTES] = { 0, 0, 0, 0, FRAME_HELLO, 0, 0, 0 };
    started(p);
    forever(p, f, sizeof f);
}
/* Asks for all of its stdin and takes none of it. */
static void never_reads(struct port *p)
{
    guest_Pull m = { .run = p->run, .bytes = UINT32_MAX };
    started(p);
    for (int i = 0; i < 4; i++) {
        (void)say(p, FRAME_PULL, guest_Pull_fields, &m);
    }
}

/* ---- behind the Kill ---- */

static void kill_then_flood(struct port *p)
{
    started(p);
    if (await(p, FRAME_KILL)) {
        frame_header(chunk, FRAME_OUTPUT, 1, FRAME_PAYLOAD_MAX);
        while (put(p, chunk, sizeof chunk)) {
        }
    }
}
static void kill_then_noise(struct port *p)
{
    started(p);
    if (await(p, FRAME_KILL)) {
        noise(p);
    }
}
static void kill_then_error(struct port *p)
{
    started(p);
    if (await(p, FRAME_KILL)) {
        fault(p, false);
    }
}
static void kill_then_user_fault(struct port *p)
{
    started(p);
    if (await(p, FRAME_KILL)) {
        fault(p, true);
    }
}
static void kill_then_good_exit(struct port *p)
{
    started(p);
    if (await(p, FRAME_KILL)) {
        ended(p);
    }
}

/* ---- lies ---- */

static void exit_with(struct port *p, int32_t code, uint32_t sig)
{
    guest_Exit m = { .run = p->run, .exit_code = code, .signal = sig };
    started(p);
    (void)say(p, FRAME_EXIT, guest_Exit_fields, &m);
}
static void exit_code_large(struct port *p)
{
    exit_with(p, INT32_MAX, 0);
}
static void exit_code_negative(struct port *p)
{
    exit_with(p, INT32_MIN, 0);
}
static void exit_signal_large(struct port *p)
{
    exit_with(p, -1, UINT32_MAX);
}
static void exit_numbers(struct port *p)
{
    guest_Exit m = { .run = p->run,
                     .cpu_us = U64,
                     .wall_us = U64,
                     .memory_peak_bytes = U64,
                     .oom_kills = UINT32_MAX,
                     .process_refusals = UINT32_MAX,
                     .leftover_processes = UINT32_MAX,
                     .disk_used_bytes = U64,
                     .stdout_bytes = U64,
                     .stderr_bytes = U64 };
    started(p);
    (void)say(p, FRAME_EXIT, guest_Exit_fields, &m);
}
static void exit_text(struct port *p)
{
    guest_Exit m = { .run = p->run, .exit_code = 127 };
    (void)snprintf(m.exec_error, sizeof m.exec_error,
                   "\x1b]0;owned\x07\n{\"verdict\":\"accepted\"}");
    started(p);
    (void)say(p, FRAME_EXIT, guest_Exit_fields, &m);
}
static void error_while_running(struct port *p)
{
    started(p);
    fault(p, false);
}
static void user_fault_while_running(struct port *p)
{
    started(p);
    fault(p, true);
}

/* ---- artifacts ---- */

static bool asked(struct port *p)
{
    started(p);
    ended(p);
    return await(p, FRAME_COLLECT);
}

static bool announce(struct port *p, const char *path, size_t n, uint64_t size)
{
    static guest_Artifact m;
    m = (guest_Artifact){
        .run = p->run, .mode = 07777, .type = guest_ArtifactType_ARTIFACT_FILE, .size = size
    };
    memcpy(m.path.bytes, path, n);
    m.path.size = (pb_size_t)n;
    return say(p, FRAME_ARTIFACT, guest_Artifact_fields, &m);
}

static bool end_of_file(struct port *p)
{
    guest_ArtifactEnd m = { .run = p->run };
    return say(p, FRAME_ARTIFACT_END, guest_ArtifactEnd_fields, &m);
}

static bool whole(struct port *p, const char *path)
{
    return announce(p, path, strlen(path), 3) && header(p, 3, FRAME_ARTIFACT_DATA, 0, 0) &&
           put(p, "abc", 3) && end_of_file(p);
}

static void count(struct port *p, uint32_t files)
{
    guest_Collected m = { .run = p->run, .files = files };
    (void)say(p, FRAME_COLLECTED, guest_Collected_fields, &m);
}

static void files_good(struct port *p)
{
    if (asked(p) && whole(p, "a")) {
        count(p, 1);
    }
}
static void files_dotdot(struct port *p)
{
    if (asked(p) && whole(p, "a")) {
        (void)whole(p, "b/../../../etc/passwd");
    }
}
static void files_absolute(struct port *p)
{
    if (asked(p)) {
        (void)whole(p, "/etc/passwd");
    }
}
static void files_nul(struct port *p)
{
    if (asked(p)) {
        (void)announce(p, "a\0b", 3, 3);
    }
}
static void files_empty_name(struct port *p)
{
    if (asked(p)) {
        (void)announce(p, "", 0, 3);
    }
}
static void files_long_name(struct port *p)
{
    static char name[2000];
    if (asked(p)) { /* by hand: the encoder knows the maximum */
        memset(name, 'a', sizeof name);
        (void)(header(p, 3 + sizeof name, FRAME_ARTIFACT, 0, 0) && put(p, "\x12\xd0\x0f", 3) &&
               put(p, name, sizeof name));
    }
}
static void files_twice(struct port *p)
{
    if (asked(p) && whole(p, "a")) {
        (void)whole(p, "a");
    }
}
static void files_size_max(struct port *p)
{
    if (asked(p)) {
        (void)announce(p, "a", 1, U64);
    }
}
static void files_short(struct port *p)
{
    if (asked(p) && announce(p, "a", 1, 10) && header(p, 3, FRAME_ARTIFACT_DATA, 0, 0) &&
        put(p, "abc", 3)) {
        (void)end_of_file(p);
    }
}
static void files_long(struct port *p)
{
    if (asked(p) && announce(p, "a", 1, 2) && header(p, 3, FRAME_ARTIFACT_DATA, 0, 0)) {
        (void)put(p, "abc", 3);
    }
}
static void files_endless(struct port *p)
{
    char name[16];
    bool on = asked(p);
    for (int i = 0; on && i < FILES_ENDLESS; i++) {
        int n = snprintf(name, sizeof name, "f%08d", i);
        on = announce(p, name, (size_t)n, 0) && end_of_file(p);
    }
}
static void files_of_another_run(struct port *p)
{
    if (asked(p)) {
        p->run += 1;
        (void)whole(p, "a");
    }
}
static void files_counted_wrong(struct port *p)
{
    if (asked(p) && whole(p, "a")) {
        count(p, UINT32_MAX);
    }
}
static void files_close(struct port *p)
{
    (void)(asked(p) && announce(p, "a", 1, 3));
}
static void files_output(struct port *p)
{
    if (asked(p)) {
        (void)(header(p, 1, FRAME_OUTPUT, 1, 0) && put(p, "x", 1));
    }
}

/* The two words that are names of C's. */
#define kill kill_frame
#define noise just_noise
static const struct {
    const char *word;
    void (*play)(struct port *p);
} table[] = {
#define HOSTILE(name, rc, verdict, text) { #name, name },
#include "tests/support/hostile.def"
#undef HOSTILE
};
#undef kill
#undef noise

bool hostile_play(int fd, struct frame_parser *in, const char *word, uint32_t number)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct port p = { .fd = fd, .in = in, .run = number };
        if (strcmp(word, table[i].word) == 0) {
            table[i].play(&p);
            return true;
        }
    }
    return false;
}

bool hostile_closes(const char *word)
{
    const char *end = strstr(word, "close");
    return end != NULL;
}
