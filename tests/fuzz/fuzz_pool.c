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
#include "common/base/log.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"
#include "vmpool/pool_internal.h"
#include "vmpool/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 2
#define STEPS_MAX 200
#define MACHINES_MAX 64
#define TURNS_MAX 16
#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SPEC "t@" DIGEST

struct machine {
    LIST_ENTRY(machine) link;
    machine_listener *listener;
    void *user;
    enum machine_freeze freeze;
    int host, guest; /* the two ends of the channel */
    bool loaded, exited, destroyed, pausing, saving;
};

static LIST_HEAD(, machine) machines;
static int n_machines;
static bool refuse_starts; /* what is asked of the engine next fails */
static struct event_base *loop;

static int refused(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "not today");
}

static int paper_start(struct event_base *base, const struct engine_host *host,
                       const struct machine_options *options, machine_listener *listener,
                       void *user, struct machine **ret_machine, struct err *err)
{
    int pair[2];
    (void)base;
    (void)host;
    if (refuse_starts || n_machines == MACHINES_MAX) {
        return refused(err);
    }
    struct machine *m = calloc(1, sizeof *m);
    if (!m || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        abort();
    }
    m->listener = listener;
    m->user = user;
    m->freeze = options->freeze;
    m->host = pair[0];
    m->guest = pair[1];
    LIST_INSERT_HEAD(&machines, m, link);
    n_machines++;
    *ret_machine = m;
    return 0;
}

static int paper_copy(struct machine *origin, machine_listener *listener, void *user,
                      struct machine **ret_machine, struct err *err)
{
    struct machine_options o = { .freeze = origin->freeze };
    assert(origin->loaded && !origin->destroyed && origin->freeze == FREEZE_COPY);
    return paper_start(loop, NULL, &o, listener, user, ret_machine, err);
}

static bool paper_can_copy(const struct machine *m)
{
    return m->freeze == FREEZE_COPY;
}

static bool paper_can_write(const struct machine *m)
{
    return m->freeze == FREEZE_WRITE;
}

static int paper_look(const struct machine *m, struct machine_look *ret_look, struct err *err)
{
    (void)m;
    (void)ret_look;
    return refused(err);
}

static int paper_learn(struct machine *origin, const struct machine *copy, struct err *err)
{
    assert(!origin->destroyed && !copy->destroyed);
    return refuse_starts ? refused(err) : 0;
}

static int paper_save(struct machine *m, int state_fd, int ram_fd, struct err *err)
{
    (void)state_fd;
    (void)ram_fd;
    m->saving = true;
    return refuse_starts ? refused(err) : 0;
}

static int paper_pause(struct machine *m, struct err *err)
{
    assert(m->loaded && !m->destroyed);
    m->pausing = true;
    return refuse_starts ? refused(err) : 0;
}

static int paper_resume(struct machine *m, struct err *err)
{
    assert(m->loaded && !m->destroyed);
    return refuse_starts ? refused(err) : 0;
}

static int paper_channel_fd(const struct machine *m)
{
    return m->host;
}

static int paper_take_channel(struct machine *m)
{
    return TAKE_FD(m->host);
}

static int paper_schedstat_fd(const struct machine *m)
{
    return m->guest; /* any descriptor: there are no figures in it, so the machine is quiet */
}

static int paper_process_id(const struct machine *m)
{
    (void)m;
    return getpid();
}

static void paper_destroy(struct machine *m)
{
    m->destroyed = true;
}

static void paper_free(struct machine *m)
{
    if (m) {
        assert(m->exited);
        LIST_REMOVE(m, link);
        n_machines--;
        if (m->host >= 0) {
            (void)close(m->host);
        }
        (void)close(m->guest);
        free(m);
    }
}

static const struct engine paper = {
    .name = "paper",
    .start = paper_start,
    .can_copy = paper_can_copy,
    .can_write = paper_can_write,
    .look = paper_look,
    .copy = paper_copy,
    .learn = paper_learn,
    .save = paper_save,
    .pause = paper_pause,
    .resume = paper_resume,
    .channel_fd = paper_channel_fd,
    .take_channel = paper_take_channel,
    .schedstat_fd = paper_schedstat_fd,
    .process_id = paper_process_id,
    .destroy = paper_destroy,
    .free = paper_free,
};

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

/* A snapshot that is ready, without the files that one is read from. */
static void add_snapshot(struct pool *p, bool exercised)
{
    struct pool_snapshot *s;
    struct err err;
    int rc = snapshot_find(p, "t", DIGEST, true, &s, &err);
    assert(rc == 0);
    s->state = SNAPSHOT_READY;
    s->stored = true;
    s->info.memory_mib = TEMPLATE_MEMORY_MIB_MIN;
    s->info.vcpus = 1;
    s->info.exercise_len = exercised ? sizeof "true" : 0;
    memcpy(s->info.exercise, "true", sizeof "true");
    s->ram_fd = memfd_create("ram", MFD_CLOEXEC);
    s->state_fd = memfd_create("state", MFD_CLOEXEC);
    if (s->ram_fd < 0 || s->state_fd < 0 || ftruncate(s->ram_fd, 64 << 20) < 0) {
        abort();
    }
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
    rc = pool_new(loop, &c, &paper, &host, &callbacks, &st->pool, &err);
    assert(rc == 0);
    server_attach(st->server, st->pool);
    add_snapshot(st->pool, mode & 4);
    for (int i = 0; i < CLIENTS; i++) {
        connect_client(st, i);
    }
}

static void stage_down(struct stage *st)
{
    server_free(st->server); /* its clients go first: nobody is told anything any more */
    pool_stop(st->pool);
    for (int i = 0; i < TURNS_MAX * MACHINES_MAX && !pool_idle(st->pool); i++) {
        struct machine *m, *next;
        for (m = LIST_FIRST(&machines); m; m = next) {
            next = LIST_NEXT(m, link);
            assert(m->destroyed || m->exited);
            if (!m->exited) {
                m->exited = true;
                m->listener(m->user, MACHINE_EXITED, "");
            }
        }
        turn();
    }
    assert(pool_idle(st->pool) && LIST_EMPTY(&machines) && n_machines == 0);
    pool_free(st->pool);
    event_base_free(loop);
    for (int i = 0; i < CLIENTS; i++) {
        (void)close(st->clients[i]);
    }
}

static struct machine *machine_at(unsigned i)
{
    struct machine *m = LIST_FIRST(&machines);
    for (i = n_machines ? i % (unsigned)n_machines : 0; m && i > 0; i--) {
        m = LIST_NEXT(m, link);
    }
    return m;
}

/* What the engine may say of this machine now: engine.h. */
static void happen(struct machine *m, enum machine_event event)
{
    if (m->exited || (m->destroyed && event != MACHINE_EXITED)) {
        return;
    }
    switch (event) {
    case MACHINE_LOADED:
        if (m->loaded) {
            return;
        }
        m->loaded = true;
        break;
    case MACHINE_PAUSED:
        if (!m->pausing) {
            return;
        }
        m->pausing = false;
        break;
    case MACHINE_SAVED:
        if (!m->saving) {
            return;
        }
        m->saving = false;
        break;
    case MACHINE_EXITED:
        m->exited = true;
        break;
    default:
        break;
    }
    m->listener(m->user, event, event == MACHINE_FAILED ? "it failed" : "");
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
        happen(m, events[step]);
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
    refuse_starts = false;
    stage_up(&st, take(&in));
    for (int i = 0; i < STEPS_MAX && in.size > 0; i++) {
        enum step step = (enum step)(take(&in) % STEPS);
        uint8_t arg = take(&in);
        struct machine *m = machine_at(arg);
        if (step <= PACKET) {
            client_step(&st, step, arg, &in);
        } else if (step == RECONNECT) {
            (void)close(st.clients[arg % CLIENTS]);
            connect_client(&st, arg % CLIENTS);
        } else if (step == REFUSE_STARTS) {
            refuse_starts = !refuse_starts;
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
