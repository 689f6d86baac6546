/* All I/O is MSG_DONTWAIT on a socket that stays blocking: the worker that gets it next wants it
 * so. */
#include "vmpool/exercise.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sodium.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

#define EXERCISE_RUN 1u
#define EXERCISE_ROUNDS_MIN 2
#define EXERCISE_OUTPUT_MAX (1u << 20)
#define EXERCISE_HEARD_MAX (4u << 20) /* bytes of one round: it prints little */
#define EXERCISE_DISK_MAX (16u << 20)
#define EXERCISE_PROCESSES_MAX 64u
#define EXERCISE_FILES_MAX 256u
#define EXERCISE_ENTROPY_BYTES 32

const char exercise_closed[] = "the agent's channel was closed";

struct exercise {
    int fd;
    struct event *ev;
    struct frame_parser parser;
    enum frame_type want;
    int rounds, rounds_min; /* left */
    int64_t until_ms;       /* no round begins after it, once rounds_min are done */
    uint8_t *round;         /* Identity and Run, encoded; NULL while a hello is awaited */
    size_t round_len;
    size_t heard; /* bytes since the round began */
    exercise_done *done;
    void *user;
    bool in_callback, doomed, finished;
};

static void really_free(struct exercise *e)
{
    frame_parser_done(&e->parser);
    free(e->round);
    free(e);
}

void exercise_free(struct exercise *e)
{
    if (!e) {
        return;
    }
    if (e->ev) {
        event_free(e->ev);
        e->ev = NULL;
    }
    e->doomed = true;
    if (!e->in_callback) {
        really_free(e);
    }
}

static void finish(struct exercise *e, const char *why)
{
    if (!e->finished && !e->doomed) {
        e->finished = true;
        (void)event_del(e->ev);
        e->done(e->user, why);
    }
}

/* Setting the clock and reseeding are practised too, with a name as long as the worker's. The
 * worker's own Identity comes later, with entropy of its own; that this one is the same in every
 * round does no harm. */
static int encode_round(struct exercise *e, const guest_Run *run, struct err *err)
{
    guest_Identity id = { .realtime_ns = wall_ns(), .hostname = "brood-00000000" };
    size_t room = 512 + FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX;
    id.entropy.size = EXERCISE_ENTROPY_BYTES;
    id.machine_id.size = sizeof id.machine_id.bytes;
    randombytes_buf(id.entropy.bytes, id.entropy.size);
    randombytes_buf(id.machine_id.bytes, id.machine_id.size);
    e->round = malloc(room);
    if (!e->round) {
        abort();
    }
    int n = frame_encode(e->round, 512, FRAME_IDENTITY, guest_Identity_fields, &id, err);
    int more =
        n < 0 ? n
              : frame_encode(e->round + n, room - (size_t)n, FRAME_RUN, guest_Run_fields, run, err);
    if (more < 0) {
        return more;
    }
    e->round_len = (size_t)(n + more);
    return 0;
}

static bool send_round(struct exercise *e)
{
    e->rounds--;
    e->rounds_min--;
    e->want = FRAME_READY;
    e->heard = 0;
    return send(e->fd, e->round, e->round_len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)e->round_len;
}

/* 1: done well; 0: go on; -1: why is set. */
static int take_frame(struct exercise *e, const struct frame *f, char *why, size_t room)
{
    struct err err;
    guest_Exit ex;
    guest_GuestError ge;
    guest_Hello hello;
    if (f->type == FRAME_ERROR) {
        bool ok = frame_decode(f, guest_GuestError_fields, &ge, NULL) == 0;
        (void)snprintf(why, room, "the agent says: %s: %s", ok ? ge.what : "?", ok ? ge.text : "?");
        return -1;
    }
    if (f->type == FRAME_HELLO && e->want == FRAME_HELLO) {
        if (frame_decode(f, guest_Hello_fields, &hello, &err) < 0) {
            (void)snprintf(why, room, "%s", err.text);
            return -1;
        }
        if (hello.protocol != GUEST_PROTOCOL_VERSION) {
            (void)snprintf(why, room, "the agent speaks protocol %u, this vmpool %u",
                           hello.protocol, GUEST_PROTOCOL_VERSION);
            return -1;
        }
        return 1;
    }
    if (f->type == FRAME_READY && e->want == FRAME_READY) {
        e->want = FRAME_EXIT;
        return 0;
    }
    if (f->type == FRAME_EXIT && e->want == FRAME_EXIT) {
        if (frame_decode(f, guest_Exit_fields, &ex, &err) < 0) {
            (void)snprintf(why, room, "%s", err.text);
            return -1;
        }
        if (ex.run != EXERCISE_RUN) {
            (void)snprintf(why, room, "the agent ended run %u, which was not asked for", ex.run);
            return -1;
        }
        if (ex.exit_code != 0 || ex.signal != 0 || ex.killed) {
            (void)snprintf(why, room, "the exercise ended with exit code %d, signal %u%s%s",
                           ex.exit_code, ex.signal, ex.exec_error[0] ? ": " : "", ex.exec_error);
            return -1;
        }
        if (e->rounds <= 0 || (e->rounds_min <= 0 && mono_ms() >= e->until_ms)) {
            return 1;
        }
        if (!send_round(e)) {
            (void)snprintf(why, room, "the agent takes no more");
            return -1;
        }
        return 0;
    }
    if (e->want == FRAME_EXIT &&
        (f->type == FRAME_STARTED || f->type == FRAME_OUTPUT || f->type == FRAME_HELLO)) {
        return 0;
    }
    (void)snprintf(why, room, "the agent sent a frame of type %d where none was due", (int)f->type);
    return -1;
}

/* It ends in logs and in answers to clients. */
static void make_printable(char *text)
{
    for (char *p = text; *p; p++) {
        *p = *p >= ' ' && *p <= '~' ? *p : '?';
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct exercise *e = arg;
    struct err err;
    char why[320];
    size_t room;
    (void)what;
    uint8_t *at = frame_parser_space(&e->parser, &room);
    ssize_t n = recv(fd, at, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    e->in_callback = true;
    if (n <= 0) {
        finish(e, exercise_closed);
    } else {
        frame_parser_filled(&e->parser, (size_t)n);
        e->heard += (size_t)n;
        if (e->heard > EXERCISE_HEARD_MAX) {
            finish(e, "the agent sends without end");
        }
    }
    while (!e->finished && !e->doomed) {
        struct frame f;
        int rc = frame_parser_next(&e->parser, &f, &err);
        if (rc == 0) {
            break;
        }
        rc = rc < 0 ? -2 : take_frame(e, &f, why, sizeof why);
        if (rc == -2) {
            finish(e, err.text);
        } else if (rc < 0) {
            make_printable(why);
            finish(e, why);
        } else if (rc == 1) {
            /* bytes after the last frame would be lost to the worker */
            finish(e, e->parser.start == e->parser.end ? NULL : "the agent sent more than was due");
        }
    }
    e->in_callback = false;
    if (e->doomed) {
        really_free(e);
    }
}

static struct exercise *listen_for(struct event_base *base, int fd, enum frame_type want,
                                   exercise_done *done, void *user)
{
    assert(fd >= 0 && done);
    struct exercise *e = calloc(1, sizeof *e);
    if (!e) {
        abort();
    }
    e->fd = fd;
    e->want = want;
    e->done = done;
    e->user = user;
    frame_parser_init(&e->parser);
    e->ev = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, e);
    if (!e->ev || event_add(e->ev, NULL) < 0) {
        abort();
    }
    return e;
}

struct exercise *exercise_await_hello(struct event_base *base, int fd, exercise_done *done,
                                      void *user)
{
    return listen_for(base, fd, FRAME_HELLO, done, user);
}

int exercise_run(struct event_base *base, int fd, const char *argv, uint32_t argv_len,
                 uint32_t memory_mib, int rounds, int64_t time_ms, exercise_done *done, void *user,
                 struct exercise **ret, struct err *err)
{
    cleanup_free guest_Run *run = calloc(1, sizeof *run);
    if (!run) {
        abort();
    }
    assert(rounds > 0 && argv_len > 0 && argv_len <= sizeof run->argv.bytes &&
           argv[argv_len - 1] == 0);
    run->run = EXERCISE_RUN;
    memcpy(run->argv.bytes, argv, argv_len);
    run->argv.size = (pb_size_t)argv_len;
    run->warm = true;
    run->trusted = true;
    run->last = true; /* its machinery is exercised, not used */
    run->has_limits = true;
    run->limits =
        (guest_RunLimits){ .memory_bytes = (uint64_t)memory_mib << 19, /* half of the machine */
                           .processes = EXERCISE_PROCESSES_MAX,
                           .disk_bytes = EXERCISE_DISK_MAX,
                           .open_files = EXERCISE_FILES_MAX,
                           .output_bytes = EXERCISE_OUTPUT_MAX };
    struct exercise *e = listen_for(base, fd, FRAME_READY, done, user);
    int rc = encode_round(e, run, err);
    if (rc == 0) {
        e->rounds = rounds;
        e->rounds_min = EXERCISE_ROUNDS_MIN;
        e->until_ms = mono_ms() + time_ms;
        if (!send_round(e)) {
            rc = err_set(err, ERR_CLOSED, "exercise: the channel takes no round");
        }
    }
    if (rc < 0) {
        exercise_free(e);
        return rc;
    }
    *ret = e;
    return 0;
}
