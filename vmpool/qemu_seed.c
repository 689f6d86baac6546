/* Requests are answered in order; whatever breaks that order ends the seed's use: every open
 * request is told so, and the pool takes another seed. A copy that nobody waits for any more is
 * killed by its pidfd. */
#include "vmpool/qemu_seed.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/seed_wire.h"
#include "vmpool/spawn.h"

#define PENDING_MAX 64

struct pending {
    seed_copied *copied; /* NULL: forgotten */
    void *user;
};

struct seed {
    int fd;
    struct event *ev;
    struct pending pending[PENDING_MAX];
    int n_pending;
};

bool seed_library(char *out, size_t room)
{
    char self[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || getenv("BROOD_TEST_NO_SEED")) {
        return false;
    }
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) {
        return false;
    }
    *slash = 0;
    int len = snprintf(out, room, "%s/brood-qemu-seed.so", self);
    /* LD_PRELOAD cannot name a path with a blank or a colon */
    return len > 0 && (size_t)len < room && access(out, R_OK) == 0 && !strpbrk(out, " :");
}

static void answer(struct seed *s, const struct seed_reply *r, int pidfd, const char *why)
{
    assert(s->n_pending > 0);
    struct pending p = s->pending[0];
    s->n_pending--;
    memmove(&s->pending[0], &s->pending[1], (size_t)s->n_pending * sizeof p);
    if (p.copied) {
        p.copied(p.user, pidfd >= 0 ? r->pid : 0, pidfd, r->vcpu_tid, why);
    } else if (pidfd >= 0) {
        spawn_kill(pidfd);
        (void)close(pidfd);
    }
}

static void shut(struct seed *s)
{
    static const struct seed_reply none = { 0 };
    if (s->fd >= 0) {
        event_free(TAKE_PTR(s->ev));
        (void)close(TAKE_FD(s->fd));
    }
    while (s->n_pending > 0) {
        answer(s, &none, -1, "the seed ended");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct seed *s = arg;
    struct seed_reply r;
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
    int pidfd = -1;
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&pidfd, CMSG_DATA(c), sizeof pidfd);
    }
    if (n != sizeof r || s->n_pending == 0) {
        if (pidfd >= 0) {
            spawn_kill(pidfd);
            (void)close(pidfd);
        }
        shut(s);
        return;
    }
    r.why[sizeof r.why - 1] = 0;
    if (pidfd < 0 || r.pid <= 0 || r.vcpu_tid <= 0) {
        if (pidfd >= 0) {
            spawn_kill(pidfd); /* half a copy; it is ours to reap */
            (void)spawn_reap(pidfd);
            (void)close(pidfd);
        }
        answer(s, &r, -1, r.why[0] ? r.why : "the copy was not complete");
        return;
    }
    answer(s, &r, pidfd, NULL);
}

struct seed *seed_new(struct event_base *base, int control)
{
    struct seed *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    s->fd = control;
    s->ev = event_new(base, control, EV_READ | EV_PERSIST, on_readable, s);
    if (!s->ev || event_add(s->ev, NULL) < 0) {
        abort();
    }
    return s;
}

void seed_free(struct seed *s)
{
    if (s) {
        shut(s);
        free(s);
    }
}

int seed_copy(struct seed *s, pid_t vcpu_tid, const int *fds, seed_copied *copied, void *user,
              struct err *err)
{
    struct seed_request r = { .vcpu_tid = vcpu_tid };
    struct iovec iov = { .iov_base = &r, .iov_len = sizeof r };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(SEED_FDS * sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (s->fd < 0 || s->n_pending == PENDING_MAX) {
        return err_set(err, ERR_UNAVAILABLE, "the seed takes no more requests");
    }
    *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(SEED_FDS * sizeof(int)) };
    memcpy(CMSG_DATA(c), fds, SEED_FDS * sizeof(int));
    if (sendmsg(s->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        return err_sys(err, "seed");
    }
    s->pending[s->n_pending++] = (struct pending){ copied, user };
    return 0;
}

void seed_forget(struct seed *s, const void *user)
{
    for (int i = 0; s && i < s->n_pending; i++) {
        if (s->pending[i].user == user) {
            s->pending[i].copied = NULL;
        }
    }
}
