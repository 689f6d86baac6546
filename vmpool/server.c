/* A client that does not read its answers is closed (its sandboxes die with it): nothing is queued
 * for it. */
#include "vmpool/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <pb_decode.h>
#include <pb_encode.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "schemas/proto/pool.pb.h"

#define BACKLOG 128
#define ACCEPT_AGAIN_MS 200 /* without a descriptor for a client: until it is tried again */

struct client {
    LIST_ENTRY(client) link;
    struct server *server;
    int fd;
    struct event *ev;
    bool broken; /* closed by the next turn of its event */
};

struct server {
    struct event_base *base;
    struct pool *pool;
    int fd;
    struct event *ev, *again; /* one of them waits: for clients, or for a descriptor */
    bool told;                /* that there is none */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    LIST_HEAD(, client) clients;
    int n_clients;
    /* large, so kept off the stack; used within one call */
    pool_PoolMessage message;
    uint8_t packet[pool_PoolMessage_size];
};

static void client_free(struct client *c)
{
    LIST_REMOVE(c, link);
    c->server->n_clients--;
    if (c->server->pool) {
        pool_client_gone(c->server->pool, c);
    }
    event_free(c->ev);
    (void)close(c->fd);
    free(c);
}

static bool send_message(struct client *c, const pool_PoolMessage *m, const int *fds, int n_fds)
{
    struct server *s = c->server;
    pb_ostream_t out = pb_ostream_from_buffer(s->packet, sizeof s->packet);
    if (!pb_encode(&out, pool_PoolMessage_fields, m)) {
        assert(!"the buffer holds the largest message");
    }
    struct iovec iov = { .iov_base = s->packet, .iov_len = out.bytes_written };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (n_fds > 0) {
        assert(n_fds == 2);
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
        *h = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN(2 * sizeof(int)) };
        memcpy(CMSG_DATA(h), fds, 2 * sizeof(int));
    }
    if (c->broken || sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* we may be deep inside the pool: end it from its own event */
        c->broken = true;
        event_active(c->ev, EV_READ, 0);
        return false;
    }
    return true;
}

static bool on_granted(void *client, uint32_t id, const struct pool_grant *g)
{
    struct client *c = client;
    pool_PoolMessage *m = &c->server->message;
    *m = (pool_PoolMessage){ .id = id, .which_body = pool_PoolMessage_lease_reply_tag };
    m->body.lease_reply = g->reply;
    int fds[2] = { g->channel_fd, g->schedstat_fd };
    return send_message(c, m, fds, 2);
}

static void on_refused(void *client, uint32_t id, const struct err *err)
{
    struct client *c = client;
    pool_PoolMessage *m = &c->server->message;
    *m = (pool_PoolMessage){ .id = id, .which_body = pool_PoolMessage_error_tag };
    (void)snprintf(m->body.error.code, sizeof m->body.error.code, "%s", err_word(err->code));
    (void)snprintf(m->body.error.text, sizeof m->body.error.text, "%s", err->text);
    (void)send_message(c, m, NULL, 0);
}

static void on_frozen(void *client, uint32_t id, uint64_t lease)
{
    struct client *c = client;
    pool_PoolMessage *m = &c->server->message;
    *m = (pool_PoolMessage){ .id = id, .which_body = pool_PoolMessage_freeze_reply_tag };
    m->body.freeze_reply.lease = lease;
    (void)send_message(c, m, NULL, 0);
}

static void on_kept(void *client, uint32_t id, const char *kept_id, const char *parent_id)
{
    struct client *c = client;
    pool_PoolMessage *m = &c->server->message;
    *m = (pool_PoolMessage){ .id = id, .which_body = pool_PoolMessage_keep_reply_tag };
    (void)snprintf(m->body.keep_reply.id, sizeof m->body.keep_reply.id, "%s", kept_id);
    (void)snprintf(m->body.keep_reply.parent, sizeof m->body.keep_reply.parent, "%s", parent_id);
    (void)send_message(c, m, NULL, 0);
}

void server_pool_callbacks(struct pool_callbacks *ret_callbacks)
{
    ret_callbacks->granted = on_granted;
    ret_callbacks->refused = on_refused;
    ret_callbacks->frozen = on_frozen;
    ret_callbacks->kept = on_kept;
}

static void refuse(struct client *c, uint32_t id, enum err_code code, const char *text)
{
    struct err err;
    (void)err_set(&err, code, "%s", text);
    on_refused(c, id, &err);
}

static void take_packet(struct client *c, size_t n)
{
    struct server *s = c->server;
    pool_PoolMessage *m = &s->message;
    pb_istream_t in = pb_istream_from_buffer(s->packet, n);
    *m = (pool_PoolMessage)pool_PoolMessage_init_zero;
    if (!pb_decode(&in, pool_PoolMessage_fields, m)) {
        refuse(c, 0, ERR_PROTOCOL, "not a PoolMessage");
        return;
    }
    uint32_t id = m->id;
    switch (m->which_body) {
    case pool_PoolMessage_lease_tag: {
        pool_LeaseRequest r = m->body.lease; /* the answer is built where the request lies */
        if (r.fork_of) {
            pool_fork(s->pool, c, id, r.fork_of);
        } else {
            pool_lease(s->pool, c, id, r.template, r.saturated);
        }
        return;
    }
    case pool_PoolMessage_freeze_tag:
        pool_freeze(s->pool, c, id, m->body.freeze.lease);
        return;
    case pool_PoolMessage_keep_tag:
        pool_keep(s->pool, c, id, m->body.keep.lease);
        return;
    case pool_PoolMessage_release_tag:
        pool_release(s->pool, c, m->body.release.lease);
        return;
    case pool_PoolMessage_status_tag:
        *m = (pool_PoolMessage){ .id = id, .which_body = pool_PoolMessage_status_reply_tag };
        pool_status(s->pool, &m->body.status_reply);
        (void)send_message(c, m, NULL, 0);
        return;
    default:
        refuse(c, id, ERR_PROTOCOL, "not a request");
    }
}

static void on_client(evutil_socket_t fd, short what, void *arg)
{
    struct client *c = arg;
    (void)what;
    /* fds that a client sends are never taken: no control buffer, so the kernel drops them */
    ssize_t n =
        c->broken ? 0
                  : recv(fd, c->server->packet, sizeof c->server->packet, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        client_free(c);
        return;
    }
    if ((size_t)n > sizeof c->server->packet) {
        refuse(c, 0, ERR_TOO_LARGE, "a packet longer than any message");
        return;
    }
    take_packet(c, (size_t)n);
}

/* The socket stays readable while nobody can be accepted, so it is not looked at for a while. Who
 * wants to connect waits in the backlog. */
static void cannot_accept(struct server *s, int why)
{
    const struct timeval wait = { .tv_usec = ACCEPT_AGAIN_MS * 1000 };
    if (why != EMFILE && why != ENFILE && why != ENOBUFS && why != ENOMEM) {
        return; /* the client's: it is gone again */
    }
    if (!s->told) {
        log_warn("no more clients for now", "error", strerror(why));
    }
    s->told = true;
    (void)event_del(s->ev);
    if (event_add(s->again, &wait) < 0) {
        abort();
    }
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)fd;
    (void)what;
    if (event_add(s->ev, NULL) < 0) {
        abort();
    }
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct server *s = arg;
    (void)what;
    cleanup_close int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (conn < 0) {
        cannot_accept(s, errno);
        return;
    }
    if (s->told) {
        log_info("clients are taken again");
        s->told = false;
    }
    if (s->n_clients == SERVER_CLIENTS_MAX) {
        return;
    }
    struct client *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    c->server = s;
    c->fd = TAKE_FD(conn);
    c->ev = event_new(s->base, c->fd, EV_READ | EV_PERSIST, on_client, c);
    if (!c->ev || event_add(c->ev, NULL) < 0) {
        abort();
    }
    LIST_INSERT_HEAD(&s->clients, c, link);
    s->n_clients++;
}

int server_new(struct event_base *base, const char *path, struct server **ret_server,
               struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof addr.sun_path) {
        return err_set(err, ERR_TOO_LARGE, "vmpool.socket: %s: longer than %zu bytes", path,
                       sizeof addr.sun_path - 1);
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return err_sys(err, "socket");
    }
    (void)unlink(path);
    mode_t old = umask(0117); /* the group is that of brood's services, or our own */
    int rc = bind(fd, (struct sockaddr *)&addr, sizeof addr);
    (void)umask(old);
    if (rc < 0 || listen(fd, BACKLOG) < 0) {
        return err_sys(err, "listen on %s", path);
    }
    struct server *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    s->base = base;
    s->fd = TAKE_FD(fd);
    memcpy(s->path, path, strlen(path) + 1);
    LIST_INIT(&s->clients);
    *ret_server = s;
    return 0;
}

void server_attach(struct server *s, struct pool *pool)
{
    assert(!s->pool && pool);
    s->pool = pool;
    s->ev = event_new(s->base, s->fd, EV_READ | EV_PERSIST, on_accept, s);
    s->again = evtimer_new(s->base, on_again, s);
    if (!s->again || !s->ev || event_add(s->ev, NULL) < 0) {
        abort();
    }
}

void server_free(struct server *s)
{
    if (!s) {
        return;
    }
    while (!LIST_EMPTY(&s->clients)) {
        client_free(LIST_FIRST(&s->clients));
    }
    if (s->ev) {
        event_free(s->ev);
        event_free(s->again);
    }
    (void)close(s->fd);
    (void)unlink(s->path);
    free(s);
}
