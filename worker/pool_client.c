#include "worker/pool_client.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "schemas/proto/pool.pb.h"

#define LEASE_FDS_MAX 2

#define REFUSED_PATIENCE_MS 30000
#define AGAIN_MS 200

static_assert(sizeof(((pool_LeaseReply *)0)->snapshot) <= sizeof(((struct lease *)0)->snapshot),
              "pool.options");
static_assert(sizeof(((pool_KeepReply *)0)->id) == sizeof(((struct pool_kept *)0)->id) &&
                  sizeof(((pool_KeepReply *)0)->parent) == sizeof(((struct pool_kept *)0)->parent),
              "pool.options");
static_assert(sizeof(((pool_LeaseReply *)0)->engine) <= sizeof(((struct lease *)0)->engine),
              "pool.options");

int pool_client_init(struct pool_client *c, const char *path, struct err *err)
{
    *c = (struct pool_client){ .fd = -1 };
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof c->path) {
        return err_set(err, ERR_TOO_LARGE, "vmpool.socket %s: 1 to %d bytes", path,
                       POOL_PATH_MAX - 1);
    }
    memcpy(c->path, path, n + 1);
    return 0;
}

static void disconnect(struct pool_client *c)
{
    if (c->fd >= 0) {
        (void)close(c->fd);
        c->fd = -1;
    }
}

void pool_client_done(struct pool_client *c)
{
    if (c) {
        disconnect(c);
    }
}

/* A wait, as for a vmpool that is away, and no fault of the job: others close theirs. */
static int no_descriptor(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "vmpool: no file descriptor is left for a sandbox");
}

int pool_client_connect(struct pool_client *c, struct err *err)
{
    if (c->fd >= 0) {
        struct pollfd p = { .fd = c->fd, .events = POLLIN };
        if (poll(&p, 1, 0) == 0) {
            return 0;
        }
        disconnect(c); /* closed, or a message that nobody asked for */
    }
    cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return no_descriptor(err);
    }
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    memcpy(addr.sun_path, c->path, strlen(c->path) + 1);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
        return err_set(err, ERR_UNAVAILABLE, "vmpool is not reachable at %s: %s", c->path,
                       strerror(errno));
    }
    c->fd = TAKE_FD(fd);
    return 0;
}

static int send_message(struct pool_client *c, const pool_PoolMessage *m, struct err *err)
{
    uint8_t data[512];
    pb_ostream_t os = pb_ostream_from_buffer(data, sizeof data);
    if (!pb_encode(&os, pool_PoolMessage_fields, m)) {
        return err_set(err, ERR_TOO_LARGE, "vmpool: request does not fit: %s", PB_GET_ERROR(&os));
    }
    ssize_t n;
    do {
        n = send(c->fd, data, os.bytes_written, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)os.bytes_written) {
        return err_set(err, ERR_CLOSED, "vmpool: send: %s", strerror(errno));
    }
    return 0;
}

static int wait_readable(struct pool_client *c, int abort_fd, int64_t deadline_ms, struct err *err)
{
    for (;;) {
        int64_t left = deadline_ms - mono_ms();
        struct pollfd p[2] = { { .fd = c->fd, .events = POLLIN },
                               { .fd = abort_fd, .events = POLLIN } };
        int n = poll(p, 2, left > 0 ? (int)left : 0);
        if (n < 0 && errno != EINTR) {
            return err_sys(err, "vmpool: poll");
        }
        if (n > 0 && p[1].revents) {
            return err_set(err, ERR_STALE, "given up while waiting for a sandbox");
        }
        if (n > 0) {
            return 0;
        }
        if (left <= 0) {
            return err_set(err, ERR_TIMEOUT, "vmpool: no sandbox within the time");
        }
    }
}

/* One packet and the fds that came with it; fds[] start at -1 and are the caller's. */
static int receive(struct pool_client *c, pool_PoolMessage *ret_m, int fds[LEASE_FDS_MAX],
                   struct err *err)
{
    uint8_t data[pool_PoolMessage_size];
    union {
        char space[CMSG_SPACE(sizeof(int) * LEASE_FDS_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = { .iov_base = data, .iov_len = sizeof data };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.space,
                          .msg_controllen = sizeof control.space };
    ssize_t n;
    do {
        n = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return err_set(err, ERR_CLOSED, "vmpool closed the connection");
    }
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            assert(count <= LEASE_FDS_MAX);
            memcpy(fds, CMSG_DATA(h), count * sizeof(int));
        }
    }
    if (msg.msg_flags & MSG_TRUNC) {
        return err_set(err, ERR_PROTOCOL, "vmpool: answer is too large");
    }
    if (msg.msg_flags & MSG_CTRUNC) { /* the kernel drops those that this process may not have */
        return no_descriptor(err);
    }
    pb_istream_t is = pb_istream_from_buffer(data, (size_t)n);
    if (!pb_decode(&is, pool_PoolMessage_fields, ret_m)) {
        return err_set(err, ERR_PROTOCOL, "vmpool: answer is no message: %s", PB_GET_ERROR(&is));
    }
    return 0;
}

static int pool_error(const pool_PoolError *e, struct err *err)
{
    for (int i = 1; i < ERR_COUNT; i++) {
        if (strcmp(err_word(i), e->code) == 0) {
            return err_set(err, (enum err_code)i, "vmpool: %s", e->text);
        }
    }
    return err_set(err, ERR_INTERNAL, "vmpool: %s (%s)", e->text, e->code);
}

static int take_lease(const pool_LeaseReply *reply, int fds[LEASE_FDS_MAX], struct lease *ret,
                      struct err *err)
{
    if (fds[0] < 0 || reply->vcpus < 1 || reply->vcpus > 1024 || reply->memory_mib < 1 ||
        reply->memory_mib > 1 << 22) {
        return err_set(err, ERR_PROTOCOL, "vmpool: lease without a channel or resources");
    }
    *ret = (struct lease){ .id = reply->lease,
                           .channel_fd = TAKE_FD(fds[0]),
                           .cpu_fd = TAKE_FD(fds[1]),
                           .vcpus = (int)reply->vcpus,
                           .memory_mib = (int)reply->memory_mib,
                           .exercised = reply->exercised,
                           .warm = reply->warm };
    memcpy(ret->snapshot, reply->snapshot, sizeof reply->snapshot);
    memcpy(ret->engine, reply->engine, sizeof reply->engine);
    return 0;
}

/* What an answer is put into; both NULL: it is to be a FreezeReply. */
struct answer {
    struct lease *lease;
    struct pool_kept *kept;
};

/* One request and its answer. */
static int ask(struct pool_client *c, const pool_PoolMessage *request, int abort_fd,
               int64_t deadline_ms, struct answer ret, struct err *err)
{
    int rc = send_message(c, request, err);
    if (rc < 0 || (rc = wait_readable(c, abort_fd, deadline_ms, err)) < 0) {
        return rc;
    }
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    int fds[LEASE_FDS_MAX] = { -1, -1 };
    rc = receive(c, &m, fds, err);
    if (rc == 0 && m.id != request->id) {
        rc = err_set(err, ERR_PROTOCOL, "vmpool: answer to another request");
    } else if (rc == 0 && !ret.lease && !ret.kept &&
               m.which_body == pool_PoolMessage_freeze_reply_tag) {
        return 0;
    } else if (rc == 0 && ret.kept && m.which_body == pool_PoolMessage_keep_reply_tag) {
        memcpy(ret.kept->id, m.body.keep_reply.id, sizeof ret.kept->id);
        memcpy(ret.kept->parent, m.body.keep_reply.parent, sizeof ret.kept->parent);
        return 0;
    } else if (rc == 0 && ret.lease && m.which_body == pool_PoolMessage_lease_reply_tag) {
        rc = take_lease(&m.body.lease_reply, fds, ret.lease, err);
    } else if (rc == 0 && m.which_body == pool_PoolMessage_error_tag) {
        c->refused = true;
        rc = pool_error(&m.body.error, err);
        if (rc == -ERR_CLOSED || rc == -ERR_TIMEOUT) {
            err->code = ERR_UNAVAILABLE; /* these two speak of the connection; the text stays */
            rc = -ERR_UNAVAILABLE;
        }
        cleanup_close_fn(&fds[0]);
        cleanup_close_fn(&fds[1]);
        return rc; /* a refusal: the connection is still good */
    } else if (rc == 0) {
        rc = err_set(err, ERR_PROTOCOL, "vmpool: unexpected answer");
    }
    for (int i = 0; i < LEASE_FDS_MAX && rc < 0; i++) {
        cleanup_close_fn(&fds[i]);
    }
    if (rc < 0) {
        disconnect(c);
    }
    return rc;
}

int pool_lease(struct pool_client *c, const char *template_name, bool saturated, int abort_fd,
               int64_t timeout_ms, struct lease *ret_lease, struct err *err)
{
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    m.which_body = pool_PoolMessage_lease_tag;
    size_t n = strlen(template_name);
    if (n >= sizeof m.body.lease.template) {
        return err_set(err, ERR_TOO_LARGE, "template: longer than %zu bytes",
                       sizeof m.body.lease.template - 1);
    }
    memcpy(m.body.lease.template, template_name, n + 1);
    m.body.lease.saturated = saturated;
    int64_t deadline_ms = mono_ms() + timeout_ms;
    int rc = 0;
    c->refused = false;
    for (int attempt = 0; attempt < 2; attempt++) {
        rc = c->fd >= 0 ? 0 : pool_client_connect(c, err);
        if (rc < 0) {
            return rc;
        }
        m.id = ++c->last_id;
        rc = ask(c, &m, abort_fd, deadline_ms, (struct answer){ .lease = ret_lease }, err);
        if (rc == -ERR_CLOSED || rc == -ERR_TIMEOUT || rc == -ERR_STALE) {
            disconnect(c);
        }
        if (rc != -ERR_CLOSED) {
            break;
        }
    }
    return rc;
}

int pool_fork(struct pool_client *c, uint64_t frozen, int abort_fd, int64_t timeout_ms,
              struct lease *ret_lease, struct err *err)
{
    assert(frozen > 0);
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    m.which_body = pool_PoolMessage_lease_tag;
    m.body.lease.fork_of = frozen;
    c->refused = false;
    int rc = pool_client_connect(c, err);
    m.id = ++c->last_id;
    return rc < 0 ? rc
                  : ask(c, &m, abort_fd, mono_ms() + timeout_ms,
                        (struct answer){ .lease = ret_lease }, err);
}

bool pool_again(const struct pool_client *c, int rc, int abort_fd, struct pool_patience *p)
{
    int64_t now_ms = mono_ms();
    if (p->since_ms == 0) {
        *p = (struct pool_patience){ .since_ms = now_ms, .again_ms = AGAIN_MS };
    }
    bool refused = rc < 0 && c->refused && err_retryable(-rc);
    int64_t patience_ms = rc == -ERR_NO_CAPACITY ? POOL_FULL_PATIENCE_MS
                          : refused              ? REFUSED_PATIENCE_MS
                                                 : 0;
    if (now_ms - p->since_ms >= patience_ms) {
        return false;
    }
    struct pollfd fd = { .fd = abort_fd, .events = POLLIN };
    (void)poll(&fd, 1, rc == -ERR_NO_CAPACITY ? AGAIN_MS : p->again_ms);
    p->again_ms *= rc == -ERR_NO_CAPACITY ? 1 : 2;
    return true;
}

int pool_freeze(struct pool_client *c, const struct lease *lease, int abort_fd, int64_t timeout_ms,
                struct err *err)
{
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    m.which_body = pool_PoolMessage_freeze_tag;
    m.body.freeze.lease = lease->id;
    c->refused = false;
    if (c->fd < 0) {
        return err_set(err, ERR_CLOSED, "vmpool: the connection of the sandbox is gone");
    }
    m.id = ++c->last_id;
    return ask(c, &m, abort_fd, mono_ms() + timeout_ms, (struct answer){ 0 }, err);
}

int pool_keep(struct pool_client *c, const struct lease *frozen, int abort_fd, int64_t timeout_ms,
              struct pool_kept *ret_kept, struct err *err)
{
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    m.which_body = pool_PoolMessage_keep_tag;
    m.body.keep.lease = frozen->id;
    c->refused = false;
    if (c->fd < 0) {
        return err_set(err, ERR_CLOSED, "vmpool: the connection of the sandbox is gone");
    }
    m.id = ++c->last_id;
    return ask(c, &m, abort_fd, mono_ms() + timeout_ms, (struct answer){ .kept = ret_kept }, err);
}

void pool_release(struct pool_client *c, struct lease *lease)
{
    cleanup_close_fn(&lease->channel_fd);
    cleanup_close_fn(&lease->cpu_fd);
    lease->channel_fd = lease->cpu_fd = -1;
    if (c->fd < 0) {
        return;
    }
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    m.id = ++c->last_id;
    m.which_body = pool_PoolMessage_release_tag;
    m.body.release.lease = lease->id;
    struct err err = { 0 };
    if (send_message(c, &m, &err) < 0) {
        disconnect(c);
    }
}
