#include "tests/support/fake_guest.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

#define DRIP_BYTES 4096

struct start {
    struct fake_guest *guest;
    sem_t started;
};

static void *guest_main(void *arg)
{
    struct start *start = arg;
    struct fake_guest *g = start->guest;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)gettid());
    g->cpu_fd = open(path, O_RDONLY | O_CLOEXEC);
    (void)sem_post(&start->started);
    g->script(g, g->arg);
    (void)shutdown(g->fd, SHUT_RDWR);
    return NULL;
}

struct fake_guest *fake_guest_start(void (*script)(struct fake_guest *g, void *arg), void *arg)
{
    struct fake_guest *g = calloc(1, sizeof *g);
    int pair[2];
    if (!g || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        abort();
    }
    g->fd = pair[0];
    g->host_fd = pair[1];
    g->script = script;
    g->arg = arg;
    frame_parser_init(&g->parser);
    struct start start = { .guest = g };
    (void)sem_init(&start.started, 0, 0);
    if (pthread_create(&g->thread, NULL, guest_main, &start) != 0) {
        abort();
    }
    while (sem_wait(&start.started) < 0) {
    }
    (void)sem_destroy(&start.started);
    return g;
}

void fake_guest_join(struct fake_guest *g)
{
    if (g->host_fd >= 0) {
        (void)close(g->host_fd);
    }
    (void)shutdown(g->fd, SHUT_RDWR);
    (void)pthread_join(g->thread, NULL);
    (void)close(g->fd);
    if (g->cpu_fd >= 0) {
        (void)close(g->cpu_fd);
    }
    frame_parser_done(&g->parser);
    free(g);
}

bool guest_recv(struct fake_guest *g, struct frame *ret_frame)
{
    struct err err = { 0 };
    for (;;) {
        int rc = frame_parser_next(&g->parser, ret_frame, &err);
        assert(rc >= 0);
        if (rc == 1) {
            return true;
        }
        size_t room;
        uint8_t *space = frame_parser_space(&g->parser, &room);
        ssize_t n = recv(g->fd, space, room, 0);
        if (n <= 0) {
            return false;
        }
        frame_parser_filled(&g->parser, (size_t)n);
    }
}

bool guest_recv_type(struct fake_guest *g, enum frame_type type, struct frame *ret_frame)
{
    struct err err = { 0 };
    while (guest_recv(g, ret_frame)) {
        g->files += ret_frame->type == FRAME_FILE;
        g->file_bytes += ret_frame->type == FRAME_FILE_DATA ? ret_frame->len : 0;
        g->stdin_bytes += ret_frame->type == FRAME_STDIN ? ret_frame->len : 0;
        int rc = 0;
        if (ret_frame->type == FRAME_RUN) {
            memset(&g->run, 0, sizeof g->run);
            rc = frame_decode(ret_frame, guest_Run_fields, &g->run, &err);
        } else if (ret_frame->type == FRAME_IDENTITY) {
            rc = frame_decode(ret_frame, guest_Identity_fields, &g->identity, &err);
        }
        assert(rc == 0);
        if (ret_frame->type == FRAME_SETTLE && type != FRAME_SETTLE) {
            guest_Settled settled = { .spare = false };
            (void)guest_send(g, FRAME_SETTLED, guest_Settled_fields, &settled);
        }
        if (ret_frame->type == type) {
            return true;
        }
    }
    return false;
}

bool guest_send_raw(struct fake_guest *g, const void *data, size_t len)
{
    const char *from = data;
    while (len > 0) {
        ssize_t n = send(g->fd, from, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        from += n;
        len -= (size_t)n;
    }
    return true;
}

bool guest_send(struct fake_guest *g, enum frame_type type, const pb_msgdesc_t *fields,
                const void *message)
{
    uint8_t out[2048];
    struct err err = { 0 };
    int n = frame_encode(out, sizeof out, type, fields, message, &err);
    assert(n > 0);
    return guest_send_raw(g, out, (size_t)n);
}

bool guest_send_output(struct fake_guest *g, int stream, const void *data, size_t len)
{
    uint8_t header[FRAME_HEADER_BYTES];
    frame_header(header, FRAME_OUTPUT, (uint8_t)stream, len);
    return guest_send_raw(g, header, sizeof header) && guest_send_raw(g, data, len);
}

bool guest_ready(struct fake_guest *g)
{
    struct frame f;
    if (!guest_recv_type(g, FRAME_IDENTITY, &f)) {
        return false;
    }
    guest_Ready ready = { .reseeded = true, .realtime_ns = wall_ns() };
    return guest_send(g, FRAME_READY, guest_Ready_fields, &ready);
}

bool guest_started(struct fake_guest *g)
{
    struct frame f;
    if (!guest_recv_type(g, FRAME_RUN, &f)) {
        return false;
    }
    guest_Started started = { .run = g->run.run };
    return guest_send(g, FRAME_STARTED, guest_Started_fields, &started);
}

bool guest_begin(struct fake_guest *g)
{
    return guest_ready(g) && guest_started(g);
}

bool guest_exit(struct fake_guest *g, int exit_code)
{
    guest_Exit m = { .run = g->run.run,
                     .exit_code = exit_code,
                     .cpu_us = 1000,
                     .wall_us = 2000,
                     .memory_peak_bytes = 5 << 20 };
    return guest_send(g, FRAME_EXIT, guest_Exit_fields, &m);
}

/* Wait for ms, or for a Kill: true when killed or the host is gone. */
static bool killed_within(struct fake_guest *g, int ms)
{
    struct pollfd p = { .fd = g->fd, .events = POLLIN };
    int64_t end = mono_ms() + ms;
    for (int64_t left = ms; left > 0; left = end - mono_ms()) {
        if (poll(&p, 1, (int)left) > 0) {
            struct frame f;
            if (!guest_recv(g, &f) || f.type == FRAME_KILL) {
                return true;
            }
        }
    }
    return false;
}

static void killed_exit(struct fake_guest *g)
{
    guest_Exit m = { .run = g->run.run, .exit_code = -1, .signal = 9, .killed = true };
    (void)guest_send(g, FRAME_EXIT, guest_Exit_fields, &m);
}

static void shell_cat(struct fake_guest *g)
{
    uint64_t had = 0;
    while (had < g->run.stdin_bytes) {
        struct frame f;
        if (!guest_recv(g, &f)) {
            return;
        }
        if (f.type == FRAME_STDIN) {
            had += f.len;
            (void)guest_send_output(g, 1, f.payload, f.len);
            guest_Pull pull = { .run = g->run.run, .bytes = 32768 };
            (void)guest_send(g, FRAME_PULL, guest_Pull_fields, &pull);
        }
    }
    (void)guest_exit(g, 0);
}

static void shell_spin(struct fake_guest *g, int ms)
{
    int64_t end = mono_ms() + ms;
    while (mono_ms() < end) {
        struct pollfd p = { .fd = g->fd, .events = POLLIN };
        if (poll(&p, 1, 0) > 0 && killed_within(g, 1)) {
            killed_exit(g);
            return;
        }
    }
    (void)guest_exit(g, 0);
}

static void shell_flood(struct fake_guest *g)
{
    char data[4096];
    memset(data, 'y', sizeof data);
    while (guest_send_output(g, 1, data, sizeof data)) {
        struct pollfd p = { .fd = g->fd, .events = POLLIN };
        if (poll(&p, 1, 0) > 0) {
            killed_exit(g);
            return;
        }
    }
}

/* A piece of output every 10 ms, for so long: a program that is timed while it speaks. */
static void shell_drip(struct fake_guest *g, int ms)
{
    char data[DRIP_BYTES];
    memset(data, 'd', sizeof data);
    for (int64_t end = mono_ms() + ms; mono_ms() < end;) {
        if (!guest_send_output(g, 1, data, sizeof data)) {
            return;
        }
        if (killed_within(g, 10)) {
            killed_exit(g);
            return;
        }
    }
    (void)guest_exit(g, 0);
}

void guest_script_shell(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (!guest_ready(g)) {
        return;
    }
    while (guest_started(g)) {
        const char *argv0 = (const char *)g->run.argv.bytes;
        const char *argv1 = argv0 + strlen(argv0) + 1;
        bool has1 = argv1 < argv0 + g->run.argv.size;
        int number = has1 ? (int)strtol(argv1, NULL, 10) : 0;
        if (strcmp(argv0, "echo") == 0 && has1) {
            (void)guest_send_output(g, 1, argv1, strlen(argv1));
            (void)guest_exit(g, 0);
        } else if (strcmp(argv0, "exit") == 0) {
            (void)guest_exit(g, number);
        } else if (strcmp(argv0, "leave") == 0) {
            (void)guest_exit(g, 0);
            return;
        } else if (strcmp(argv0, "sleep") == 0) {
            if (killed_within(g, number)) {
                killed_exit(g);
            } else {
                (void)guest_exit(g, 0);
            }
        } else if (strcmp(argv0, "spin") == 0) {
            shell_spin(g, number);
        } else if (strcmp(argv0, "drip") == 0) {
            shell_drip(g, number);
        } else if (strcmp(argv0, "flood") == 0) {
            shell_flood(g);
        } else if (strcmp(argv0, "cat") == 0) {
            shell_cat(g);
        } else {
            return; /* "die" */
        }
    }
}
