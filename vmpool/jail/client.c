#include "vmpool/jail/client.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/fd_pass.h"

#define AHEAD 4
#define ANSWER_MS_MAX 10000

struct jail {
    int fd;
    struct event *closed;
    jail_gone *gone;
    void *user;
    int asked; /* JAIL_RESERVE without an answer read */
    struct jail_slot stock[AHEAD];
    int n_stock;
};

static void on_closed(evutil_socket_t fd, short what, void *arg)
{
    struct jail *j = arg;
    (void)fd;
    (void)what;
    (void)event_del(j->closed);
    j->gone(j->user);
}

static int ask(const struct jail *j, const struct jail_request *r, const int *fds, unsigned n_fds,
               struct err *err)
{
    static_assert(JAIL_FDS_MAX <= FD_PASS_MAX, "the largest request");
    assert(n_fds <= JAIL_FDS_MAX);
    return fds_send(j->fd, r, sizeof *r, fds, n_fds, 0) ? 0 : err_sys(err, "jailer");
}

static void ask_slots(struct jail *j)
{
    const struct jail_request r = { .kind = JAIL_RESERVE };
    while (j->asked + j->n_stock < AHEAD && ask(j, &r, NULL, 0, NULL) == 0) {
        j->asked++;
    }
}

static void close_all(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        (void)close(fds[i]);
    }
}

/* The next answer; the fds are the caller's. -ERR_UNAVAILABLE: it came, but there are no
 * descriptors left for its fds. */
static int take_reply(const struct jail *j, struct jail_reply *ret, int fds[JAIL_CGROUPS_MAX],
                      struct err *err)
{
    struct iovec iov = { .iov_base = ret, .iov_len = sizeof *ret };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(JAIL_CGROUPS_MAX * sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    struct pollfd p = { .fd = j->fd, .events = POLLIN };
    if (poll(&p, 1, ANSWER_MS_MAX) != 1) {
        return err_set(err, ERR_TIMEOUT, "the jailer does not answer");
    }
    ssize_t n = recvmsg(j->fd, &msg, MSG_CMSG_CLOEXEC);
    if (n != (ssize_t)sizeof *ret) {
        return err_set(err, ERR_CLOSED, "the jailer has ended");
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    unsigned have =
        c && c->cmsg_type == SCM_RIGHTS ? (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
    assert(have <= ret->n_fds && ret->n_fds <= JAIL_CGROUPS_MAX); /* the jailer is trusted */
    if (have > 0) {
        memcpy(fds, CMSG_DATA(c), have * sizeof(int));
    }
    if (have < ret->n_fds) {
        close_all(fds, have);
        int rc = err_set(err, ERR_UNAVAILABLE, "jailer: %s", strerror(EMFILE));
        err->saved_errno = EMFILE;
        return rc;
    }
    if (ret->error) {
        errno = ret->error;
        return err_sys(err, "jailer");
    }
    return 0;
}

static int take_slot(struct jail *j, struct jail_slot *ret, struct err *err)
{
    struct jail_reply reply;
    struct jail_slot s;
    int rc = take_reply(j, &reply, s.fds, err);
    j->asked--;
    if (rc == 0) {
        s.slot = reply.slot;
        s.uid = reply.uid;
        s.n_fds = (int)reply.n_fds;
        *ret = s;
    } else if (rc == -ERR_UNAVAILABLE) {
        jail_release(j, reply.slot);
    }
    return rc;
}

struct jail *jail_new(struct event_base *base, int fd, jail_gone *gone, void *user)
{
    struct jail *j = calloc(1, sizeof *j);
    if (!j) {
        abort();
    }
    j->fd = fd;
    j->gone = gone;
    j->user = user;
    j->closed = event_new(base, fd, EV_CLOSED | EV_PERSIST, on_closed, j);
    if (!j->closed || event_add(j->closed, NULL) < 0) {
        abort();
    }
    ask_slots(j);
    return j;
}

void jail_slot_done(struct jail_slot *s)
{
    close_all(s->fds, (unsigned)s->n_fds);
    s->n_fds = 0;
}

void jail_free(struct jail *j)
{
    if (j) {
        while (j->n_stock > 0) {
            jail_slot_done(&j->stock[--j->n_stock]);
        }
        event_free(j->closed);
        (void)close(j->fd);
        free(j);
    }
}

int jail_ask_start(struct jail *j, const struct jail_request *r, const int fds[JAIL_FD_END],
                   struct err *err)
{
    int packed[JAIL_FD_END];
    unsigned n = 0;
    for (int i = 0; i < JAIL_FD_END; i++) {
        if (fds[i] >= 0) {
            packed[n++] = fds[i];
        }
    }
    return ask(j, r, packed, n, err);
}

int jail_reserve(struct jail *j, struct jail_slot *ret_slot, struct err *err)
{
    int rc = 0;
    ask_slots(j);
    if (j->n_stock > 0) {
        *ret_slot = j->stock[--j->n_stock];
    } else if (j->asked > 0) {
        rc = take_slot(j, ret_slot, err);
    } else {
        rc = err_set(err, ERR_CLOSED, "the jailer has ended");
    }
    ask_slots(j);
    return rc;
}

static void tell(struct jail *j, const struct jail_request *r, const int *fds, unsigned n_fds)
{
    (void)!ask(j, r, fds, n_fds, NULL); /* when it has gone everything has ended anyway */
}

void jail_limit(struct jail *j, uint32_t slot, uint32_t memory_mib, uint32_t vcpus)
{
    const struct jail_request r = {
        .kind = JAIL_LIMIT, .slot = slot, .memory_mib = memory_mib, .vcpus = vcpus
    };
    tell(j, &r, NULL, 0);
}

void jail_release(struct jail *j, uint32_t slot)
{
    const struct jail_request r = { .kind = JAIL_RELEASE, .slot = slot };
    tell(j, &r, NULL, 0);
}

void jail_kill(struct jail *j, int pidfd)
{
    const struct jail_request r = { .kind = JAIL_KILL };
    tell(j, &r, &pidfd, 1);
}

int jail_look(struct jail *j, int pidfd, int ret_fds[JAIL_LOOK_FDS], struct err *err)
{
    const struct jail_request r = { .kind = JAIL_LOOK };
    struct jail_reply reply;
    int fds[JAIL_CGROUPS_MAX];
    while (j->asked > 0) { /* these answers come first */
        struct err lost;
        assert(j->n_stock < AHEAD);
        j->n_stock += take_slot(j, &j->stock[j->n_stock], &lost) == 0;
    }
    int rc = ask(j, &r, &pidfd, 1, err);
    rc = rc < 0 ? rc : take_reply(j, &reply, fds, err);
    if (rc == 0) {
        assert(reply.n_fds == JAIL_LOOK_FDS);
        memcpy(ret_fds, fds, JAIL_LOOK_FDS * sizeof(int));
    }
    return rc;
}

int jail_take_report(int fd, struct jail_report *ret_report, int *ret_pidfd, struct err *err)
{
    cleanup_close int pidfd = -1;
    ssize_t n = fd_take(fd, ret_report, sizeof *ret_report, MSG_DONTWAIT, &pidfd);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (n != (ssize_t)sizeof *ret_report) {
        *ret_report = (struct jail_report){ .slot = JAIL_SLOTS_MAX };
        return err_set(err, ERR_UNAVAILABLE,
                       "the jailer started no QEMU; its reason is in the log");
    }
    ret_report->step[sizeof ret_report->step - 1] = 0;
    if (ret_report->error) {
        errno = ret_report->error;
        return err_sys(err, "jail: %s", ret_report->step);
    }
    if (pidfd < 0) {
        return err_set(err, ERR_PROTOCOL, "jail: a report without a process");
    }
    *ret_pidfd = TAKE_FD(pidfd);
    return 1;
}

static int read_text(const char *path, char *text, size_t room)
{
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    text[n > 0 ? n : 0] = 0;
    return n > 0 ? 0 : -1;
}

pid_t jail_pid(int pidfd)
{
    char path[64], text[512];
    int pid = 0;
    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    const char *at = read_text(path, text, sizeof text) == 0 ? strstr(text, "\nPid:") : NULL;
    return at && sscanf(at, " Pid: %d", &pid) == 1 && pid > 0 ? (pid_t)pid : 0;
}

pid_t jail_tid(pid_t pid, pid_t tid)
{
    char path[320], text[2048];
    pid_t found = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *e;
    while (dir && !found && (e = readdir(dir))) {
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, e->d_name);
        if (e->d_name[0] == '.' || read_text(path, text, sizeof text) < 0) {
            continue;
        }
        char *line = strstr(text, "\nNSpid:");
        char *last = line ? line + 7 : NULL;
        if (last) {
            last[strcspn(last, "\n")] = 0;
            char *tab = strrchr(last, '\t');
            if (tab && strtol(tab + 1, NULL, 10) == tid) {
                found = (pid_t)strtol(e->d_name, NULL, 10);
            }
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    return found;
}
