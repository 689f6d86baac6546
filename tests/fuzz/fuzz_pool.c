/* vmpool's core, over its real socket: two clients that send anything, machines of paper that do
 * anything that machines do, in any order, and their guests' bytes during the exercise.
 *
 * The input is a list of steps: a byte that says what, a byte that says whose, and for some a
 * length and bytes. Afterwards the pool is stopped and has to come to rest, with every machine
 * destroyed and freed. */
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <pb_encode.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"
#include "tests/unit/vmpool/paper_engine.h"
#include "vmpool/pool_internal.h"
#include "vmpool/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 2
#define STEPS_MAX 200
#define TURNS_MAX 16
#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SPEC "t@" DIGEST

static struct event_base *loop;

struct stage {
    struct server *server;
    struct pool *pool;
    int clients[CLIENTS];
    char path[64];
};

static void turn(void)
{
    (void)event_base_loop(loop, EVLOOP_NONBLOCK);
}

static void connect_client(struct stage *st, int i)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    memcpy(addr.sun_path, st->path, strlen(st->path) + 1);
    st->clients[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(st->clients[i], (struct sockaddr *)&addr, sizeof addr) < 0) {
        abort();
    }
    turn();
}

static void stage_up(struct stage *st, uint8_t mode)
{
    struct config c;
    struct err err;
    struct pool_callbacks callbacks = { 0 };
    struct engine_host host = { .name = "paper", .freeze = (enum machine_freeze)(mode % 3) };
    loop = event_base_new();
    (void)snprintf(st->path, sizeof st->path, "/tmp/brood-fuzz-pool-%d", (int)getpid());
    int rc = config_load(&c, "/nonexistent", NULL, &err);
    assert(rc == 0);
    c.pool_memory_mib_max = 1024;
    c.pool_warm_max = 4;
    rc = server_new(loop, st->path, &st->server, &err);
    assert(rc == 0);
    server_pool_callbacks(&callbacks);
    rc = pool_new(loop, &c, &paper_engine, &host, &callbacks, &st->pool, &err);
    assert(rc == 0);
    server_attach(st->server, st->pool);
    struct pool_snapshot *s = paper_snapshot(st->pool, "t", DIGEST, TEMPLATE_MEMORY_MIB_MIN);
    if (mode & 4) {
        s->info.exercise_len = sizeof "true";
        memcpy(s->info.exercise, "true", sizeof "true");
    }
    for (int i = 0; i < CLIENTS; i++) {
        connect_client(st, i);
    }
}

static void stage_down(struct stage *st)
{
    server_free(st->server); /* its clients go first: nobody is told anything any more */
    pool_stop(st->pool);
    for (int i = 0; i < TURNS_MAX * PAPER_MACHINES_MAX && !pool_idle(st->pool); i++) {
        struct machine *m, *next;
        for (m = LIST_FIRST(&paper.machines); m; m = next) {
            next = LIST_NEXT(m, link);
            assert(m->destroyed || m->exited);
            if (!m->exited) {
                paper_happen(m, MACHINE_EXITED, "");
            }
        }
        turn();
        if (LIST_EMPTY(&paper.machines) && !pool_idle(st->pool)) {
            sleep_ms(1); /* the thread that reads files still reads one */
        }
    }
    assert(pool_idle(st->pool) && LIST_EMPTY(&paper.machines) && paper.n == 0);
    pool_free(st->pool);
    event_base_free(loop);
    for (int i = 0; i < CLIENTS; i++) {
        (void)close(st->clients[i]);
    }
}

static void ask(int client, const pool_PoolMessage *m)
{
    uint8_t bytes[pool_PoolMessage_size];
    pb_ostream_t os = pb_ostream_from_buffer(bytes, sizeof bytes);
    bool ok = pb_encode(&os, pool_PoolMessage_fields, m);
    assert(ok);
    (void)!send(client, bytes, os.bytes_written, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void guest_says(const struct machine *m, enum frame_type type, const pb_msgdesc_t *fields,
                       const void *message)
{
    uint8_t out[256];
    struct err err;
    int n = frame_encode(out, sizeof out, type, fields, message, &err);
    assert(n > 0);
    (void)!send(m->guest, out, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void exercise_ends(const struct machine *m)
{
    guest_Ready ready = { .reseeded = true };
    guest_Exit end = { .run = 1 }; /* EXERCISE_RUN */
    guest_says(m, FRAME_READY, guest_Ready_fields, &ready);
    guest_says(m, FRAME_EXIT, guest_Exit_fields, &end);
}

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t take(struct input *in)
{
    return in->size > 0 ? (in->size--, *in->data++) : 0;
}

/* Bytes of the input, a length before them, into a socket. */
static void send_bytes(int fd, struct input *in)
{
    size_t n = take(in);
    n = n < in->size ? n : in->size;
    (void)!send(fd, in->data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    in->data += n;
    in->size -= n;
}

enum step {
    LEASE,
    FREEZE,
    FORK,
    KEEP,
    RELEASE,
    STATUS,
    PACKET,
    RECONNECT,
    LOADED,
    PAUSED,
    SAVED,
    FAILED,
    EXITED,
    EXERCISED,
    GUEST_BYTES,
    GUEST_GONE,
    REFUSE_STARTS,
    READ_ANSWERS,
    A_WHILE,
    STEPS
};

static void client_step(struct stage *st, enum step step, uint8_t arg, struct input *in)
{
    pool_PoolMessage m = { .id = arg };
    int fd = st->clients[arg % CLIENTS];
    uint64_t lease = arg / CLIENTS % 16;
    switch (step) {
    case LEASE:
        m.which_body = pool_PoolMessage_lease_tag;
        (void)snprintf(m.body.lease.template, sizeof m.body.lease.template, "%s", SPEC);
        m.body.lease.saturated = arg & 128;
        break;
    case FORK:
        m.which_body = pool_PoolMessage_lease_tag;
        m.body.lease.fork_of = lease;
        break;
    case FREEZE:
        m.which_body = pool_PoolMessage_freeze_tag;
        m.body.freeze.lease = lease;
        break;
    case KEEP: /* its files are test_layers.c's: here only of what is not there, or not frozen */
        m.which_body = pool_PoolMessage_keep_tag;
        m.body.keep.lease = lease + 1000;
        break;
    case RELEASE:
        m.which_body = pool_PoolMessage_release_tag;
        m.body.release.lease = lease;
        break;
    case STATUS:
        m.which_body = pool_PoolMessage_status_tag;
        break;
    default: /* PACKET */
        send_bytes(fd, in);
        return;
    }
    ask(fd, &m);
}

static void machine_step(enum step step, struct machine *m, struct input *in)
{
    static const enum machine_event events[] = { [LOADED] = MACHINE_LOADED,
                                                 [PAUSED] = MACHINE_PAUSED,
                                                 [SAVED] = MACHINE_SAVED,
                                                 [FAILED] = MACHINE_FAILED,
                                                 [EXITED] = MACHINE_EXITED };
    if (step == EXERCISED) {
        exercise_ends(m);
    } else if (step == GUEST_GONE) {
        (void)shutdown(m->guest, SHUT_RDWR);
    } else if (step == GUEST_BYTES) {
        send_bytes(m->guest, in);
    } else {
        paper_happen(m, events[step], step == FAILED ? "it failed" : "");
    }
}

static void read_answers(int fd)
{
    uint8_t bytes[pool_PoolMessage_size];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stage st = { 0 };
    struct input in = { .data = data, .size = size };
    bool waited = !(size > 0 && data[0] & 4 && data[0] & 8); /* only where something is exercised */
    (void)signal(SIGPIPE, SIG_IGN);
    log_init("fuzz", LOG_ERROR, 2);
    paper.refuses = false;
    stage_up(&st, take(&in));
    for (int i = 0; i < STEPS_MAX && in.size > 0; i++) {
        enum step step = (enum step)(take(&in) % STEPS);
        uint8_t arg = take(&in);
        struct machine *m = paper_machine(arg);
        if (step <= PACKET) {
            client_step(&st, step, arg, &in);
        } else if (step == RECONNECT) {
            (void)close(st.clients[arg % CLIENTS]);
            connect_client(&st, arg % CLIENTS);
        } else if (step == REFUSE_STARTS) {
            paper.refuses = !paper.refuses;
        } else if (step == READ_ANSWERS) {
            read_answers(st.clients[arg % CLIENTS]);
        } else if (step == A_WHILE && !waited) {
            waited = true; /* once: two looks of quiet.c */
            const struct timeval tv = { .tv_usec = 20000 };
            (void)event_base_loopexit(loop, &tv);
            (void)event_base_loop(loop, 0);
        } else if (m && step < REFUSE_STARTS) {
            machine_step(step, m, &in);
        }
        turn();
    }
    stage_down(&st);
    return 0;
}
