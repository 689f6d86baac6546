#include "tests/support/fake_guest_pool.h"

#include <assert.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "schemas/proto/pool.pb.h"

#define CONNECTIONS_MAX 64
#define LEASES_MAX 64

struct connection {
    int fd;
    struct fake_guest *guests[LEASES_MAX];
};

struct fake_pool {
    int listen_fd;
    char path[108];
    enum fake_pool_mode mode;
    void (*script)(struct fake_guest *g, void *arg);
    void *arg;
    atomic_int leases, releases;
    atomic_bool stopping;
    pthread_t thread;
    struct connection connections[CONNECTIONS_MAX];
    int n;
    int refusals;
};

static void reply(int fd, const pool_PoolMessage *m, const int *fds, int n_fds)
{
    uint8_t data[512];
    pb_ostream_t os = pb_ostream_from_buffer(data, sizeof data);
    bool ok = pb_encode(&os, pool_PoolMessage_fields, m);
    assert(ok);
    (void)ok;
    struct iovec iov = { data, os.bytes_written };
    union {
        char space[CMSG_SPACE(sizeof(int) * 2)];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (n_fds > 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)n_fds);
    }
    (void)sendmsg(fd, &msg, MSG_NOSIGNAL);
}

static void end_lease(struct fake_pool *p, struct connection *c, int i)
{
    if (c->guests[i]) {
        fake_guest_join(c->guests[i]);
        c->guests[i] = NULL;
        (void)atomic_fetch_add(&p->releases, 1);
    }
}

static void lease(struct fake_pool *p, struct connection *c, uint32_t id)
{
    int i = 0;
    while (c->guests[i]) {
        i++;
        assert(i < LEASES_MAX);
    }
    struct fake_guest *g = c->guests[i] = fake_guest_start(p->script, p->arg);
    (void)atomic_fetch_add(&p->leases, 1);
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    m.id = p->mode == POOL_WRONG_ID ? id + 7 : id;
    m.which_body = pool_PoolMessage_lease_reply_tag;
    m.body.lease_reply = (pool_LeaseReply){ .lease = (uint64_t)i + 1,
                                            .vcpus = 1,
                                            .memory_mib = p->mode == POOL_SMALL ? 128 : 512,
                                            .snapshot = "sha256:fake",
                                            .engine = "fake",
                                            .warm = true };
    int fds[2] = { g->host_fd, g->cpu_fd };
    reply(c->fd, &m, fds, p->mode == POOL_NO_FDS ? 0 : g->cpu_fd >= 0 ? 2 : 1);
    (void)close(g->host_fd);
    g->host_fd = -1;
}

/* false: the connection is over. */
static bool serve(struct fake_pool *p, struct connection *c)
{
    uint8_t data[pool_PoolMessage_size];
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n <= 0) {
        return false;
    }
    pool_PoolMessage m = pool_PoolMessage_init_zero;
    pb_istream_t is = pb_istream_from_buffer(data, (size_t)n);
    bool ok = pb_decode(&is, pool_PoolMessage_fields, &m);
    assert(ok);
    (void)ok;
    if (m.which_body == pool_PoolMessage_release_tag) {
        end_lease(p, c, (int)m.body.release.lease - 1);
        return true;
    }
    if (m.which_body == pool_PoolMessage_freeze_tag) {
        pool_PoolMessage frozen = pool_PoolMessage_init_zero;
        frozen.id = m.id;
        frozen.which_body = pool_PoolMessage_freeze_reply_tag;
        reply(c->fd, &frozen, NULL, 0);
        return true;
    }
    assert(m.which_body == pool_PoolMessage_lease_tag); /* a fork's too: a guest of its own */
    pool_PoolMessage refusal = pool_PoolMessage_init_zero;
    switch (p->mode) {
    case POOL_SILENT:
        return true;
    case POOL_GARBAGE:
        return send(c->fd, "\xff\xff\xff", 3, MSG_NOSIGNAL) == 3;
    case POOL_REFUSES:
        refusal.id = m.id;
        refusal.which_body = pool_PoolMessage_error_tag;
        refusal.body.error =
            (pool_PoolError){ .code = "not_found", .text = "no template of that name" };
        reply(c->fd, &refusal, NULL, 0);
        return true;
    case POOL_ONE:
    case POOL_FULL_TWICE:
        if (p->mode == POOL_ONE ? atomic_load(&p->leases) == atomic_load(&p->releases)
                                : p->refusals++ >= 2) {
            lease(p, c, m.id);
            return true;
        }
        refusal.id = m.id;
        refusal.which_body = pool_PoolMessage_error_tag;
        refusal.body.error = (pool_PoolError){ .code = "no_capacity", .text = "the host is full" };
        reply(c->fd, &refusal, NULL, 0);
        return true;
    case POOL_BROKEN:
        refusal.id = m.id;
        refusal.which_body = pool_PoolMessage_error_tag;
        refusal.body.error = (pool_PoolError){ .code = "unavailable",
                                               .text = "template: still loading after its time" };
        reply(c->fd, &refusal, NULL, 0);
        return true;
    case POOL_LATE_FORKS:
        if (m.body.lease.fork_of == 0 || p->refusals++ >= 3) {
            lease(p, c, m.id);
            return true;
        }
        refusal.id = m.id;
        refusal.which_body = pool_PoolMessage_error_tag;
        refusal.body.error = (pool_PoolError){ .code = "unavailable", .text = "not now" };
        reply(c->fd, &refusal, NULL, 0);
        return true;
    case POOL_CLOSES:
        p->mode = POOL_GOOD;
        return false;
    default:
        lease(p, c, m.id);
        return true;
    }
}

static void close_connection(struct fake_pool *p, int i)
{
    struct connection *c = &p->connections[i];
    for (int j = 0; j < LEASES_MAX; j++) {
        end_lease(p, c, j);
    }
    (void)close(c->fd);
    p->connections[i] = p->connections[--p->n];
}

static void *pool_main(void *arg)
{
    struct fake_pool *p = arg;
    while (!atomic_load(&p->stopping)) {
        struct pollfd fds[CONNECTIONS_MAX + 1] = { { .fd = p->listen_fd, .events = POLLIN } };
        int n = p->n;
        for (int i = 0; i < n; i++) {
            fds[i + 1] = (struct pollfd){ .fd = p->connections[i].fd, .events = POLLIN };
        }
        if (poll(fds, (nfds_t)n + 1, 20) <= 0) {
            continue;
        }
        for (int i = n - 1; i >= 0; i--) {
            if (fds[i + 1].revents && !serve(p, &p->connections[i])) {
                close_connection(p, i);
            }
        }
        if (fds[0].revents) {
            assert(p->n < CONNECTIONS_MAX);
            p->connections[p->n++] =
                (struct connection){ .fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC) };
        }
    }
    return NULL;
}

struct fake_pool *fake_pool_start(const char *path, enum fake_pool_mode mode,
                                  void (*script)(struct fake_guest *g, void *arg), void *arg)
{
    struct fake_pool *p = calloc(1, sizeof *p);
    assert(p && strlen(path) < sizeof p->path);
    memcpy(p->path, path, strlen(path) + 1);
    p->mode = mode;
    p->script = script;
    p->arg = arg;
    p->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    memcpy(addr.sun_path, path, strlen(path) + 1);
    (void)unlink(path);
    if (p->listen_fd < 0 || bind(p->listen_fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
        listen(p->listen_fd, 16) < 0 || pthread_create(&p->thread, NULL, pool_main, p) != 0) {
        perror("fake pool");
        abort();
    }
    return p;
}

int fake_pool_leases(struct fake_pool *p)
{
    return atomic_load(&p->leases);
}

int fake_pool_releases(struct fake_pool *p)
{
    return atomic_load(&p->releases);
}

void fake_pool_stop(struct fake_pool *p)
{
    atomic_store(&p->stopping, true);
    (void)pthread_join(p->thread, NULL);
    while (p->n > 0) {
        close_connection(p, p->n - 1);
    }
    (void)close(p->listen_fd);
    (void)unlink(p->path);
    free(p);
}
