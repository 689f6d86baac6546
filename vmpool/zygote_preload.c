/* Preloaded into QEMU (LD_PRELOAD): stops it at the first setvbuf(stdout), which QEMU calls when
 * its libraries are loaded and its types registered but before it has looked at an argument, and
 * copies the process from there by fork.
 *
 * Why: of a clone's start, two thirds of the CPU time are dynamic linking (51 libraries) and type
 * registration, the same for all; the copies also share those pages. QEMU itself forks no later
 * than this (-daemonize) and its RCU thread is recreated by pthread_atfork handlers of its own, so
 * that a fork here is something it is made for.
 *
 * Price: siblings of one zygote share their address layout. vmpool renews it every so many copies
 * (qemu_zygote.c). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmpool/zygote_wire.h"

typedef int main_fn(int, char **, char **);
typedef int start_main_fn(main_fn *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                          void *);
typedef int setvbuf_fn(FILE *, char *, int, size_t);

static main_fn *real_main;
static char *arguments[ZYGOTE_ARGC + 1];
static char request[ZYGOTE_REQUEST_MAX];
static bool armed;

int __libc_start_main(main_fn *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

/* The same number of arguments for every copy; QEMU reads them only after the fork. */
static int start(int argc, char **argv, char **envp)
{
    (void)argc;
    (void)unsetenv("LD_PRELOAD");
    arguments[0] = argv[0];
    for (int i = 1; i < ZYGOTE_ARGC; i++) {
        arguments[i] = (char *)ZYGOTE_FILLER;
    }
    armed = true;
    return real_main(ZYGOTE_ARGC, arguments, envp);
}

int __libc_start_main(main_fn *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    start_main_fn *next = (start_main_fn *)dlsym(RTLD_NEXT, "__libc_start_main");
    bool wanted = getenv("BROOD_ZYGOTE") != NULL;
    real_main = main;
    return next(wanted ? start : main, argc, argv, init, fini, rtld_fini, stack_end);
}

static void reply(int32_t pid, int pidfd)
{
    struct zygote_reply r = { .pid = pid };
    struct iovec iov = { .iov_base = &r, .iov_len = sizeof r };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (pidfd >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pidfd, sizeof pidfd);
    }
    if (sendmsg(ZYGOTE_FD, &msg, MSG_NOSIGNAL) < 0) {
        _exit(1);
    }
}

/* In the copy: take the arguments and the fds; false when the request makes no sense. */
static bool become(const int *fds, size_t len)
{
    int n = 1;
    for (size_t at = 0; at < len && n < ZYGOTE_ARGC;) {
        size_t size = strnlen(request + at, len - at);
        if (at + size == len) {
            return false; /* not ended by NUL */
        }
        arguments[n++] = request + at;
        at += size + 1;
    }
    if (dup2(fds[0], 2) < 0) {
        return false;
    }
    for (int i = 1; i < ZYGOTE_FDS; i++) {
        if (dup2(fds[i], ZYGOTE_FD + i - 1) < 0) { /* replaces the control socket too */
            return false;
        }
    }
    (void)syscall(SYS_close_range, ZYGOTE_FD + ZYGOTE_FDS - 1, ~0u, 0);
    return true;
}

static ssize_t receive(int fds[ZYGOTE_FDS])
{
    struct iovec iov = { .iov_base = request, .iov_len = sizeof request };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(ZYGOTE_FDS * sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    ssize_t n = recvmsg(ZYGOTE_FD, &msg, MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (n > 0 && (!c || c->cmsg_len != CMSG_LEN(ZYGOTE_FDS * sizeof(int)))) {
        _exit(1);
    }
    if (c) {
        memcpy(fds, CMSG_DATA(c), ZYGOTE_FDS * sizeof(int));
        /* out of the way of the numbers that the copies will use */
        for (int i = 0; i < ZYGOTE_FDS; i++) {
            int up = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
            (void)close(fds[i]);
            fds[i] = up;
        }
    }
    return n;
}

/* Returns only in a copy. */
static void serve(void)
{
    pid_t self = getpid();
    reply(0, -1);
    for (;;) {
        struct pollfd p = { .fd = ZYGOTE_FD, .events = POLLIN };
        int fds[ZYGOTE_FDS];
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (poll(&p, 1, 200) <= 0) {
            continue;
        }
        ssize_t n = receive(fds);
        if (n <= 0) {
            while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
            }
            _exit(0);
        }
        pid_t pid = fork();
        if (pid == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != self ||
                !become(fds, (size_t)n)) {
                _exit(127);
            }
            return;
        }
        int saved = errno;
        for (int i = 0; i < ZYGOTE_FDS; i++) {
            (void)close(fds[i]);
        }
        /* not reaped before this, so the number still means this child */
        int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        reply(pid > 0 ? (int32_t)pid : -saved, pidfd);
        if (pidfd >= 0) {
            (void)close(pidfd);
        }
    }
}

int setvbuf(FILE *f, char *buf, int mode, size_t size)
{
    setvbuf_fn *next = (setvbuf_fn *)dlsym(RTLD_NEXT, "setvbuf");
    if (armed && f == stdout) {
        armed = false;
        serve();
    }
    return next(f, buf, mode, size);
}
