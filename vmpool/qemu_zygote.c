/* vmpool's side of the zygote. It is renewed every COPIES_MAX copies, since copies of one share
 * their address layout; the old one lives on without a socket until its last child has ended. One
 * that dies or stays silent is not tried again for RETRY_MS. */
#include "vmpool/qemu_zygote.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "vmpool/spawn.h"
#include "vmpool/zygote_wire.h"

#define COPIES_MAX 256
#define PENDING_MAX 64
#define RETRY_MS 10000
#define OLD_MAX 64

struct pending {
    zygote_started *started; /* NULL: forgotten */
    void *user;
};

struct zygote {
    struct event_base *base;
    const char *binary;
    char preload[512];
    int fd, pidfd;
    struct event *ev;
    bool ready;
    int copies;
    int64_t retry_at_ms;
    struct pending pending[PENDING_MAX];
    int n_pending;
    int old[OLD_MAX]; /* pidfds of retired ones, to be reaped */
    int n_old;
};

static void reap_old(struct zygote *z)
{
    for (int i = 0; i < z->n_old; i++) {
        if (spawn_reap(z->old[i])) {
            (void)close(z->old[i]);
            z->old[i--] = z->old[--z->n_old];
        }
    }
}

/* Take pending[0] and answer it. */
static void answer(struct zygote *z, pid_t pid, int pidfd, const char *why)
{
    struct pending p = z->pending[0];
    assert(z->n_pending > 0);
    z->n_pending--;
    memmove(&z->pending[0], &z->pending[1], (size_t)z->n_pending * sizeof p);
    if (p.started) {
        p.started(p.user, pid, pidfd, why);
    } else if (pidfd >= 0) {
        spawn_kill(pidfd);
        (void)close(pidfd);
    }
}

static void retire(struct zygote *z, bool kill_it)
{
    if (z->fd < 0) {
        return;
    }
    event_free(TAKE_PTR(z->ev));
    (void)close(TAKE_FD(z->fd));
    if (kill_it) {
        spawn_kill(z->pidfd);
    }
    if (z->n_old == OLD_MAX) {
        (void)close(z->old[--z->n_old]);
    }
    z->old[z->n_old++] = TAKE_FD(z->pidfd);
    z->ready = false;
    z->copies = 0;
    while (z->n_pending > 0) {
        answer(z, 0, -1, "QEMU's zygote ended");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg);

static void start(struct zygote *z)
{
    int pair[2];
    struct err err;
    char env_preload[600];
    (void)snprintf(env_preload, sizeof env_preload, "LD_PRELOAD=%s", z->preload);
    char *argv[] = { (char *)z->binary, NULL };
    char *envp[] = { env_preload, (char *)ZYGOTE_ENV, (char *)"PATH=/usr/bin:/bin", NULL };
    reap_old(z);
    if (mono_ms() < z->retry_at_ms ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return;
    }
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    struct spawn_fd fds[] = { { theirs, ZYGOTE_FD } };
    struct spawn_options o = {
        .path = z->binary, .argv = argv, .envp = envp, .fds = fds, .n_fds = 1, .stderr_fd = -1
    };
    pid_t pid;
    z->retry_at_ms = mono_ms() + RETRY_MS; /* until it says that it waits */
    if (spawn_child(&o, &pid, &z->pidfd, &err) < 0) {
        return;
    }
    z->fd = TAKE_FD(ours);
    z->ev = event_new(z->base, z->fd, EV_READ | EV_PERSIST, on_readable, z);
    if (!z->ev || event_add(z->ev, NULL) < 0) {
        abort();
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct zygote *z = arg;
    struct zygote_reply r;
    struct iovec iov = { .iov_base = &r, .iov_len = sizeof r };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    (void)what;
    ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n != sizeof r) {
        retire(z, true);
        return;
    }
    if (r.pid == 0) {
        z->ready = true;
        z->retry_at_ms = 0;
        return;
    }
    int pidfd = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_type == SCM_RIGHTS) {
        memcpy(&pidfd, CMSG_DATA(c), sizeof pidfd);
    }
    if (z->n_pending == 0) {
        retire(z, true);
        return;
    }
    answer(z, r.pid, pidfd, pidfd < 0 ? "QEMU's zygote could not fork" : NULL);
    if (z->fd >= 0 && z->copies >= COPIES_MAX && z->n_pending == 0) {
        retire(z, false);
        start(z);
    }
}

struct zygote *zygote_new(struct event_base *base, const char *binary)
{
    char self[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    struct zygote *z = calloc(1, sizeof *z);
    if (!z) {
        abort();
    }
    self[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(self, '/');
    *z = (struct zygote){ .base = base, .binary = binary, .fd = -1, .pidfd = -1 };
    if (slash) {
        *slash = 0;
        (void)snprintf(z->preload, sizeof z->preload, "%s/brood-qemu-zygote.so", self);
    }
    if (!slash || getenv("BROOD_TEST_NO_ZYGOTE") || access(z->preload, R_OK) < 0 ||
        strchr(z->preload, ' ') ||
        strchr(z->preload, ':')) { /* LD_PRELOAD cannot name such a path */
        free(z);
        return NULL;
    }
    start(z);
    return z;
}

void zygote_free(struct zygote *z)
{
    if (!z) {
        return;
    }
    for (int i = 0; i < z->n_pending; i++) {
        z->pending[i].started = NULL;
    }
    retire(z, true);
    for (int i = 0; i < z->n_old; i++) {
        (void)close(z->old[i]);
    }
    free(z);
}

bool zygote_ready(const struct zygote *z)
{
    return z && z->ready;
}

int zygote_spawn(struct zygote *z, char *const *argv, const int *fds, zygote_started *started,
                 void *user, struct err *err)
{
    char text[ZYGOTE_REQUEST_MAX];
    size_t len = 0;
    if (z->fd < 0) {
        start(z);
    }
    if (!z->ready || z->n_pending == PENDING_MAX) {
        return err_set(err, ERR_UNAVAILABLE, "QEMU's zygote is not ready");
    }
    int n = 1;
    for (; argv[n]; n++) {
        size_t size = strlen(argv[n]) + 1;
        if (len + size > sizeof text || n == ZYGOTE_ARGC) {
            return err_set(err, ERR_TOO_LARGE, "too many arguments for QEMU's zygote");
        }
        memcpy(text + len, argv[n], size);
        len += size;
    }
    struct iovec iov = { .iov_base = text, .iov_len = len };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(ZYGOTE_FDS * sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(ZYGOTE_FDS * sizeof(int)) };
    memcpy(CMSG_DATA(c), fds, ZYGOTE_FDS * sizeof(int));
    if (sendmsg(z->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        return err_sys(err, "QEMU's zygote");
    }
    z->pending[z->n_pending++] = (struct pending){ started, user };
    z->copies++;
    return 0;
}

void zygote_forget(struct zygote *z, void *user)
{
    for (int i = 0; z && i < z->n_pending; i++) {
        if (z->pending[i].user == user) {
            z->pending[i].started = NULL;
        }
    }
}
