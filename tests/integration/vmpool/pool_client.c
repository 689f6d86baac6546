#include "tests/integration/vmpool/pool_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <pb_decode.h>
#include <pb_encode.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

#define POLL_MS 100

int pool_client_connect(const char *path, int timeout_ms, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int64_t until_ms = mono_ms() + timeout_ms;
    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    for (;;) {
        cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            return err_sys(err, "socket");
        }
        if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0) {
            return TAKE_FD(fd);
        }
        if (mono_ms() >= until_ms) {
            return err_sys(err, "connect %s", path);
        }
        sleep_ms(5);
    }
}

static int send_message(int fd, const pool_PoolMessage *m, struct err *err)
{
    uint8_t packet[pool_PoolMessage_size];
    pb_ostream_t out = pb_ostream_from_buffer(packet, sizeof packet);
    if (!pb_encode(&out, pool_PoolMessage_fields, m)) {
        return err_set(err, ERR_INTERNAL, "encode");
    }
    return send(fd, packet, out.bytes_written, MSG_NOSIGNAL) < 0 ? err_sys(err, "send") : 0;
}

static int code_of_word(const char *word)
{
    for (int code = 1; code < ERR_COUNT; code++) {
        if (strcmp(err_word(code), word) == 0) {
            return code;
        }
    }
    return ERR_INTERNAL;
}

static int receive(int fd, pool_PoolMessage *m, int fds[2], struct err *err)
{
    uint8_t packet[pool_PoolMessage_size];
    struct iovec iov = { .iov_base = packet, .iov_len = sizeof packet };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    fds[0] = fds[1] = -1;
    ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    if (n <= 0) {
        return n < 0 ? err_sys(err, "recv") : err_set(err, ERR_CLOSED, "vmpool closed the socket");
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
        memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
    }
    pb_istream_t in = pb_istream_from_buffer(packet, (size_t)n);
    if (!pb_decode(&in, pool_PoolMessage_fields, m)) {
        return err_set(err, ERR_PROTOCOL, "not a PoolMessage");
    }
    if (m->which_body == pool_PoolMessage_error_tag) {
        return err_set(err, (enum err_code)code_of_word(m->body.error.code), "%s",
                       m->body.error.text);
    }
    return 0;
}

static int lease(int fd, const char *spec, bool saturated, uint64_t fork_of,
                 struct pool_lease *ret_lease, struct err *err)
{
    static uint32_t last_id;
    cleanup_free pool_PoolMessage *m = calloc(1, sizeof *m);
    int fds[2];
    if (!m) {
        abort();
    }
    m->id = ++last_id;
    m->which_body = pool_PoolMessage_lease_tag;
    m->body.lease.saturated = saturated;
    m->body.lease.fork_of = fork_of;
    (void)snprintf(m->body.lease.template, sizeof m->body.lease.template, "%s", spec);
    int64_t t0 = mono_us();
    int rc = send_message(fd, m, err);
    if (rc < 0 || (rc = receive(fd, m, fds, err)) < 0) {
        return rc;
    }
    if (m->which_body != pool_PoolMessage_lease_reply_tag || fds[0] < 0) {
        return err_set(err, ERR_PROTOCOL, "not a LeaseReply with two fds");
    }
    *ret_lease = (struct pool_lease){ .reply = m->body.lease_reply,
                                      .channel = fds[0],
                                      .schedstat = fds[1],
                                      .lease_us = mono_us() - t0 };
    return 0;
}

int pool_client_lease(int fd, const char *spec, bool saturated, struct pool_lease *ret_lease,
                      struct err *err)
{
    return lease(fd, spec, saturated, 0, ret_lease, err);
}

int pool_client_fork(int fd, uint64_t frozen, struct pool_lease *ret_lease, struct err *err)
{
    return lease(fd, "", false, frozen, ret_lease, err);
}

/* Sends m and takes the answer into it. */
static int ask(int fd, pool_PoolMessage *m, pb_size_t want, const char *what, struct err *err)
{
    int fds[2];
    int rc = send_message(fd, m, err);
    if (rc < 0 || (rc = receive(fd, m, fds, err)) < 0) {
        return rc;
    }
    return m->which_body == want ? 0 : err_set(err, ERR_PROTOCOL, "not a %s", what);
}

int pool_client_freeze(int fd, const struct pool_lease *frozen, struct err *err)
{
    cleanup_free pool_PoolMessage *m = calloc(1, sizeof *m);
    if (!m) {
        abort();
    }
    m->which_body = pool_PoolMessage_freeze_tag;
    m->body.freeze.lease = frozen->reply.lease;
    return ask(fd, m, pool_PoolMessage_freeze_reply_tag, "FreezeReply", err);
}

int pool_client_keep(int fd, const struct pool_lease *frozen, char *ret_id, size_t room,
                     struct err *err)
{
    cleanup_free pool_PoolMessage *m = calloc(1, sizeof *m);
    if (!m) {
        abort();
    }
    m->which_body = pool_PoolMessage_keep_tag;
    m->body.keep.lease = frozen->reply.lease;
    int rc = ask(fd, m, pool_PoolMessage_keep_reply_tag, "KeepReply", err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(ret_id, room, "%s", m->body.keep_reply.id);
    return 0;
}

int pool_client_await(int fd, const char *name, int timeout_ms, struct err *err)
{
    cleanup_free pool_StatusReply *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    for (int64_t until_ms = mono_ms() + timeout_ms; mono_ms() < until_ms; sleep_ms(POLL_MS)) {
        bool building = false;
        int rc = pool_client_status(fd, s, err);
        if (rc < 0) {
            return rc;
        }
        for (pb_size_t i = 0; i < s->snapshots_count; i++) {
            building = building || (strcmp(s->snapshots[i].template, name) == 0 &&
                                    strcmp(s->snapshots[i].state, "building") == 0);
        }
        if (!building) {
            return 0;
        }
    }
    return err_set(err, ERR_TIMEOUT, "the snapshot of %s is not ready in %d ms", name, timeout_ms);
}

void pool_lease_close(struct pool_lease *lease)
{
    if (lease->channel >= 0) {
        (void)close(TAKE_FD(lease->channel));
    }
    if (lease->schedstat >= 0) {
        (void)close(TAKE_FD(lease->schedstat));
    }
}

int pool_client_release(int fd, struct pool_lease *lease, struct err *err)
{
    cleanup_free pool_PoolMessage *m = calloc(1, sizeof *m);
    if (!m) {
        abort();
    }
    m->which_body = pool_PoolMessage_release_tag;
    m->body.release.lease = lease->reply.lease;
    pool_lease_close(lease);
    return send_message(fd, m, err);
}

int pool_client_status(int fd, pool_StatusReply *ret_status, struct err *err)
{
    cleanup_free pool_PoolMessage *m = calloc(1, sizeof *m);
    int fds[2];
    if (!m) {
        abort();
    }
    m->which_body = pool_PoolMessage_status_tag;
    int rc = send_message(fd, m, err);
    if (rc < 0 || (rc = receive(fd, m, fds, err)) < 0) {
        return rc;
    }
    *ret_status = m->body.status_reply;
    return 0;
}

int pool_lease_pid(const struct pool_lease *lease)
{
    char link[64], target[128];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", lease->schedstat);
    ssize_t n = readlink(link, target, sizeof target - 1);
    int pid = 0;
    if (n > 0) {
        target[n] = 0;
        if (sscanf(target, "/proc/%d/", &pid) != 1) {
            pid = 0;
        }
    }
    return pid;
}

static int write_all(int fd, const uint8_t *data, size_t n, struct err *err)
{
    while (n > 0) {
        ssize_t w = send(fd, data, n, MSG_NOSIGNAL);
        if (w <= 0) {
            return err_sys(err, "write to the guest");
        }
        data += w;
        n -= (size_t)w;
    }
    return 0;
}

/* 1: *f is set. */
static int next_frame(int fd, struct frame_parser *p, int64_t until_ms, struct frame *f,
                      struct err *err)
{
    for (;;) {
        int rc = frame_parser_next(p, f, err);
        if (rc != 0) {
            return rc;
        }
        struct pollfd pfd = { .fd = fd, .events = POLLIN };
        int64_t left_ms = until_ms - mono_ms();
        if (left_ms <= 0 || poll(&pfd, 1, (int)left_ms) <= 0) {
            return err_set(err, ERR_TIMEOUT, "the guest said nothing in time");
        }
        size_t room;
        uint8_t *at = frame_parser_space(p, &room);
        ssize_t n = recv(fd, at, room, 0);
        if (n <= 0) {
            return err_set(err, ERR_CLOSED, "the guest's channel was closed");
        }
        frame_parser_filled(p, (size_t)n);
    }
}

int guest_identity(int channel, int timeout_ms, struct err *err)
{
    guest_Identity id = { .realtime_ns = wall_ns(),
                          .hostname = "brood-00000001",
                          .machine_id.size = 16,
                          .entropy.size = 32 };
    uint8_t out[512];
    if (getrandom(id.entropy.bytes, 32, 0) != 32 || getrandom(id.machine_id.bytes, 16, 0) != 16) {
        return err_sys(err, "getrandom");
    }
    int n = frame_encode(out, sizeof out, FRAME_IDENTITY, guest_Identity_fields, &id, err);
    if (n < 0 || (n = write_all(channel, out, (size_t)n, err)) < 0) {
        return n;
    }
    struct frame_parser p;
    struct frame f;
    frame_parser_init(&p);
    int rc = next_frame(channel, &p, mono_ms() + timeout_ms, &f, err);
    if (rc == 1) {
        rc = f.type == FRAME_READY
                 ? 0
                 : err_set(err, ERR_PROTOCOL, "frame %d instead of Ready", (int)f.type);
    }
    frame_parser_done(&p);
    return rc;
}

int guest_settle(int channel, int timeout_ms, struct err *err)
{
    uint8_t out[FRAME_HEADER_BYTES];
    frame_header(out, FRAME_SETTLE, 0, 0);
    int rc = write_all(channel, out, sizeof out, err);
    if (rc < 0) {
        return rc;
    }
    struct frame_parser p;
    struct frame f;
    frame_parser_init(&p);
    rc = next_frame(channel, &p, mono_ms() + timeout_ms, &f, err);
    if (rc == 1) {
        rc = f.type == FRAME_SETTLED
                 ? 0
                 : err_set(err, ERR_PROTOCOL, "frame %d instead of Settled", (int)f.type);
    }
    frame_parser_done(&p);
    return rc;
}

static void note_output(struct guest_result *r, const struct frame *f, int64_t t0)
{
    if (r->output_len == 0) {
        r->first_byte_us = mono_us() - t0;
    }
    size_t room = sizeof r->output - 1 - r->output_len;
    size_t n = f->len < room ? f->len : room;
    memcpy(r->output + r->output_len, f->payload, n);
    r->output_len += n;
    r->output[r->output_len] = 0;
}

static int collect(int channel, struct frame_parser *p, int timeout_ms, struct guest_result *r,
                   int64_t t0, struct err *err)
{
    for (;;) {
        struct frame f;
        guest_Exit e;
        guest_Started s;
        guest_GuestError g;
        int rc = next_frame(channel, p, t0 / 1000 + timeout_ms, &f, err);
        if (rc < 0) {
            return rc;
        }
        if (f.type == FRAME_OUTPUT) {
            note_output(r, &f, t0);
        } else if (f.type == FRAME_STARTED &&
                   frame_decode(&f, guest_Started_fields, &s, err) == 0) {
            r->warm = s.warm;
        } else if (f.type == FRAME_EXIT) {
            rc = frame_decode(&f, guest_Exit_fields, &e, err);
            r->exit_code = e.exit_code;
            r->signal = e.signal;
            r->total_us = mono_us() - t0;
            return rc;
        } else if (f.type == FRAME_ERROR &&
                   frame_decode(&f, guest_GuestError_fields, &g, err) == 0) {
            return err_set(err, ERR_PROTOCOL, "the guest: %s: %s", g.what, g.text);
        }
    }
}

static int run_it(int channel, const char *const *argv, bool keep, int timeout_ms,
                  struct guest_result *ret_result, struct err *err)
{
    cleanup_free guest_Run *run = calloc(1, sizeof *run);
    cleanup_free uint8_t *out = malloc(FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX);
    if (!run || !out) {
        abort();
    }
    run->run = 7;
    for (int i = 0; argv[i]; i++) {
        size_t n = strlen(argv[i]) + 1;
        if (run->argv.size + n > sizeof run->argv.bytes) {
            return err_set(err, ERR_TOO_LARGE, "argv");
        }
        memcpy(run->argv.bytes + run->argv.size, argv[i], n);
        run->argv.size += (pb_size_t)n;
    }
    run->warm = true;
    run->keep = keep;
    run->has_limits = true;
    run->limits = (guest_RunLimits){ .memory_bytes = keep ? 384u << 20 : 64u << 20,
                                     .processes = 32,
                                     .disk_bytes = 16u << 20,
                                     .open_files = 256,
                                     .output_bytes = 1u << 20 };
    int n = frame_encode(out, FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX, FRAME_RUN, guest_Run_fields,
                         run, err);
    if (n < 0) {
        return n;
    }
    struct guest_result r = { 0 };
    int64_t t0 = mono_us();
    if ((n = write_all(channel, out, (size_t)n, err)) < 0) {
        return n;
    }
    struct frame_parser p;
    frame_parser_init(&p);
    int rc = collect(channel, &p, timeout_ms, &r, t0, err);
    frame_parser_done(&p);
    if (rc == 0) {
        *ret_result = r;
    }
    return rc;
}

int guest_run(int channel, const char *const *argv, int timeout_ms, struct guest_result *ret_result,
              struct err *err)
{
    return run_it(channel, argv, false, timeout_ms, ret_result, err);
}

int guest_run_keep(int channel, const char *const *argv, int timeout_ms,
                   struct guest_result *ret_result, struct err *err)
{
    return run_it(channel, argv, true, timeout_ms, ret_result, err);
}
