#include "guest/warm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/wire/frame.h"
#include "guest/cell.h"

#define WARM_SOCKET_FD 3
#define FDS_MAX 6
#define WARM_REQUEST_MAX (GUEST_ARGV_MAX + GUEST_ENV_MAX + 8192u)

static ssize_t recv_retry(int fd, void *to, size_t room)
{
    for (;;) {
        ssize_t n = recv(fd, to, room, 0);
        if (n >= 0 || errno != EINTR) {
            return n;
        }
    }
}

static void close_warm(struct warm *w)
{
    if (w->sock >= 0) {
        (void)close(w->sock);
    }
    *w = (struct warm){ .sock = -1 };
}

/* In the child, before exec. */
_Noreturn static void exec_warm(int sock, char *const *defaults, size_t n)
{
    char *env[STRS_DEFAULTS_MAX + 1];
    memcpy(env, defaults, n * sizeof env[0]);
    env[n] = NULL;
    static char *const argv[] = { WARM_PROGRAM, NULL };
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)setsid();
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); /* a spare takes it back */
    if (fd >= 0) {
        (void)!write(fd, "-1000", 5);
    }
    if (dup3(sock, WARM_SOCKET_FD, 0) == WARM_SOCKET_FD) {
        (void)execve(WARM_PROGRAM, argv, env);
    }
    _exit(127);
}

int warm_start(struct warm *w, char *const *env_defaults, size_t env_defaults_n, struct err *err)
{
    assert(env_defaults_n <= STRS_DEFAULTS_MAX);
    *w = (struct warm){ .sock = -1 };
    if (access(WARM_PROGRAM, X_OK) < 0) {
        return 0;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_sys(err, "socketpair");
    }
    if (pair[1] ==
        WARM_SOCKET_FD) { /* dup3 onto itself fails: cannot be, 3 is the port or an older one */
        return err_set(err, ERR_INTERNAL, "fd %d is free", WARM_SOCKET_FD);
    }
    w->sock = pair[0];
    w->pid = fork();
    if (w->pid == 0) {
        exec_warm(pair[1], env_defaults, env_defaults_n);
    }
    (void)close(pair[1]);
    char ready;
    if (w->pid < 0 || recv_retry(w->sock, &ready, 1) != 1) {
        close_warm(w);
        return err_set(err, ERR_CLOSED, "%s ended before it was ready", WARM_PROGRAM);
    }
    return 0;
}

static int send_fds(int sock, const struct iovec *iov, size_t n_iov, const int *fds, size_t n)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = { 0 };
    size_t len = 0;
    for (size_t i = 0; i < n_iov; i++) {
        len += iov[i].iov_len;
    }
    struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov,
                          .msg_iovlen = n_iov,
                          .msg_control = &control,
                          .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    return sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -1;
}

int warm_arm(struct warm *w, int cgroup_procs_fd, const int pipes[3], struct warm_spare *ret_spare,
             struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_sys(err, "socketpair");
    }
    cleanup_close int mine = pair[0];
    int fds[5] = { cgroup_procs_fd, pair[1], pipes[0], pipes[1], pipes[2] };
    struct iovec iov = { "A", 1 };
    int sent = send_fds(w->sock, &iov, 1, fds, 5);
    (void)close(pair[1]);
    char text[16] = "";
    ssize_t n = sent < 0 ? -1 : recv_retry(mine, text, sizeof text - 1);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid <= 1) {
        close_warm(w);
        return err_set(err, ERR_CLOSED, "the warm interpreter is gone");
    }
    *ret_spare = (struct warm_spare){ .pid = (pid_t)pid, .sock = TAKE_FD(mine) };
    return 0;
}

/* A message and who sent it: the spare's pid as it is here, which it does not know itself. */
static pid_t recv_sender(int sock)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control = { 0 };
    char text[16];
    struct iovec iov = { text, sizeof text };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    ssize_t n;
    do {
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    struct ucred who = { 0 };
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
        memcpy(&who, CMSG_DATA(c), sizeof who);
    }
    return who.pid;
}

int warm_arm_cell(struct warm *w, int cgroup_dir_fd, const int pipes[3], int pidfd,
                  struct warm_spare *ret_spare, struct err *err)
{
    int pair[2], on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_sys(err, "socketpair");
    }
    cleanup_close int mine = pair[0];
    size_t len;
    const void *filter = cell_filter_bytes(&len);
    const struct iovec iov[2] = { { "C", 1 }, { (void *)(uintptr_t)filter, len } };
    int fds[FDS_MAX] = { cgroup_dir_fd, pair[1], pipes[0], pipes[1], pipes[2], pidfd };
    int sent = setsockopt(mine, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    sent = sent < 0 ? sent : send_fds(w->sock, iov, 2, fds, FDS_MAX);
    (void)close(pair[1]);
    pid_t pid = sent < 0 ? 0 : recv_sender(mine);
    if (pid <= 1) {
        close_warm(w);
        return err_set(err, ERR_CLOSED, "the warm interpreter starts nothing in a cell");
    }
    *ret_spare = (struct warm_spare){ .pid = pid, .sock = TAKE_FD(mine) };
    return 0;
}

int warm_run(struct warm_spare *spare, const struct strs *argv, const struct strs *env,
             const char *cwd, uint64_t open_files, uint64_t stack_bytes, struct err *err)
{
    static struct buf request; /* keeps its memory from run to run */
    if (request.max == 0) {
        buf_init(&request, WARM_REQUEST_MAX);
    }
    buf_reset(&request);
    int rc = buf_addf(&request, err, "%zu%c%zu%c%" PRIu64 "%c%" PRIu64 "%c%s%c", argv->n, 0, env->n,
                      0, open_files, 0, stack_bytes, 0, cwd, 0);
    for (size_t i = 0; rc == 0 && i < argv->n; i++) {
        rc = buf_add(&request, argv->v[i], strlen(argv->v[i]) + 1, err);
    }
    for (size_t i = 0; rc == 0 && i < env->n; i++) {
        rc = buf_add(&request, env->v[i], strlen(env->v[i]) + 1, err);
    }
    if (rc == 0 &&
        send(spare->sock, request.data, request.len, MSG_NOSIGNAL) != (ssize_t)request.len) {
        rc = err_set(err, ERR_CLOSED, "the spare interpreter is gone");
    }
    (void)close(TAKE_FD(spare->sock));
    return rc;
}

void warm_ended(struct warm *w, pid_t pid)
{
    if (w->pid == pid) {
        close_warm(w);
    }
}
