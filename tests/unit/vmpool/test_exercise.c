/* vmpool's own words with a guest, against guests that do not keep to them. */
#include <criterion/criterion.h>
#include <event2/event.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"
#include "vmpool/exercise.h"

const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcriterion";
}

#define PATIENCE_S 10

struct played {
    struct event_base *base;
    int host, guest;
    struct exercise *exercise;
    bool done;
    char why[320]; /* "" when all went well */
};

static void on_done(void *user, const char *why)
{
    struct played *p = user;
    p->done = true;
    (void)snprintf(p->why, sizeof p->why, "%s", why ? why : "");
    (void)event_base_loopbreak(p->base);
}

static void begin(struct played *p, bool run)
{
    static const char argv[] = "python3\0-c\0pass";
    struct err err = { 0 };
    int pair[2];
    (void)signal(SIGPIPE, SIG_IGN);
    *p = (struct played){ .base = event_base_new() };
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    p->host = pair[0];
    p->guest = pair[1];
    if (run) {
        cr_assert_eq(exercise_run(p->base, p->host, argv, sizeof argv, 64, 2, 0, on_done, p,
                                  &p->exercise, &err),
                     0, "%s", err.text);
    } else {
        p->exercise = exercise_await_hello(p->base, p->host, on_done, p);
    }
}

static void say(struct played *p, enum frame_type type, const pb_msgdesc_t *fields, const void *m)
{
    uint8_t out[1024];
    struct err err;
    int n = frame_encode(out, sizeof out, type, fields, m, &err);
    cr_assert_gt(n, 0);
    cr_assert_eq(send(p->guest, out, (size_t)n, MSG_NOSIGNAL), n);
}

static void raw(struct played *p, uint32_t len, uint8_t type)
{
    uint8_t h[FRAME_HEADER_BYTES] = { (uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),
                                      (uint8_t)(len >> 24), type };
    cr_assert_eq(send(p->guest, h, sizeof h, MSG_NOSIGNAL), (ssize_t)sizeof h);
}

static void answered(struct played *p)
{
    struct timeval patience = { .tv_sec = PATIENCE_S };
    (void)event_base_loopexit(p->base, &patience);
    if (!p->done) {
        (void)event_base_dispatch(p->base);
    }
    cr_assert(p->done, "vmpool waits for ever");
    exercise_free(p->exercise);
    event_base_free(p->base);
    (void)close(p->host);
    (void)close(p->guest);
}

static void refused(struct played *p, const char *text)
{
    answered(p);
    cr_expect(strstr(p->why, text), "\"%s\"", p->why);
    for (const char *c = p->why; *c; c++) {
        cr_expect(*c >= ' ' && *c <= '~', "a control character in \"%s\"", p->why);
    }
}

Test(exercise, a_hello_is_a_hello, .timeout = 60)
{
    struct played p;
    guest_Hello hello = { .protocol = GUEST_PROTOCOL_VERSION, .agent = "x" };
    begin(&p, false);
    say(&p, FRAME_HELLO, guest_Hello_fields, &hello);
    answered(&p);
    cr_expect_str_eq(p.why, "");
    begin(&p, false);
    hello.protocol = 77;
    say(&p, FRAME_HELLO, guest_Hello_fields, &hello);
    refused(&p, "protocol 77");
    begin(&p, false); /* what is behind the hello would be lost to the worker */
    hello.protocol = GUEST_PROTOCOL_VERSION;
    say(&p, FRAME_HELLO, guest_Hello_fields, &hello);
    raw(&p, 0, FRAME_HELLO);
    refused(&p, "more than was due");
    begin(&p, false);
    raw(&p, 5, FRAME_OUTPUT);
    cr_assert_eq(send(p.guest, "01234", 5, MSG_NOSIGNAL), 5);
    refused(&p, "none was due");
    begin(&p, false);
    raw(&p, UINT32_MAX, FRAME_HELLO);
    refused(&p, "bad header");
    begin(&p, false);
    (void)shutdown(p.guest, SHUT_RDWR);
    refused(&p, exercise_closed);
}

static void ready(struct played *p)
{
    guest_Ready m = { .reseeded = true };
    say(p, FRAME_READY, guest_Ready_fields, &m);
}

Test(exercise, a_round_ends_as_it_should_or_not_at_all, .timeout = 60)
{
    struct played p;
    guest_Exit end = { .run = 1 };
    begin(&p, true);
    for (int i = 0; i < 2; i++) {
        ready(&p);
        say(&p, FRAME_EXIT, guest_Exit_fields, &end);
    }
    answered(&p);
    cr_expect_str_eq(p.why, "");
    begin(&p, true);
    end.run = 2;
    ready(&p);
    say(&p, FRAME_EXIT, guest_Exit_fields, &end);
    refused(&p, "run 2, which was not asked for");
    begin(&p, true);
    say(&p, FRAME_EXIT, guest_Exit_fields, &end);
    refused(&p, "none was due");
    begin(&p, true);
    guest_Exit bad = { .run = 1, .exit_code = INT32_MIN, .exec_error = "\x1b[2J\n\x7f" };
    ready(&p);
    say(&p, FRAME_EXIT, guest_Exit_fields, &bad);
    refused(&p, "exit code -2147483648");
    begin(&p, true);
    guest_GuestError error = { .what = "\a\n", .text = "{\"level\":\"error\"}\r\n" };
    say(&p, FRAME_ERROR, guest_GuestError_fields, &error);
    refused(&p, "the agent says: ??: {");
}

/* It is given frames as fast as it takes them: the end comes by their sum, not by a clock. */
static void pour(evutil_socket_t fd, short what, void *arg)
{
    static const uint8_t frames[4096];
    struct played *p = arg;
    uint8_t h[FRAME_HEADER_BYTES] = { 0, 16, 0, 0, FRAME_OUTPUT, 1 };
    (void)what;
    (void)(send(fd, h, sizeof h, MSG_NOSIGNAL) > 0 &&
           send(fd, frames, sizeof frames, MSG_NOSIGNAL) > 0 && p->done);
}

Test(exercise, output_without_end, .timeout = 60)
{
    struct played p;
    begin(&p, true);
    ready(&p);
    struct event *ev = event_new(p.base, p.guest, EV_WRITE | EV_PERSIST, pour, &p);
    cr_assert_eq(event_add(ev, NULL), 0);
    struct timeval patience = { .tv_sec = PATIENCE_S };
    (void)event_base_loopexit(p.base, &patience);
    (void)event_base_dispatch(p.base);
    event_free(ev);
    cr_assert(p.done, "vmpool listens for ever");
    refused(&p, "without end");
}
