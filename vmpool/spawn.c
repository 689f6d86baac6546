/* fork and exec with a clean table of descriptors. vmpool maps little, so that fork is cheap;
 * between fork and exec only async-signal-safe calls are made, since helper threads may exist. A
 * QEMU in a jail comes the same way, with a prepare of its own (jail/start.c). */
#include "vmpool/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FD_FIRST 3
#define FD_PARK 64 /* children's numbers lie below, parked copies above */

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static void child_say(const char *what)
{
    const char *text = strerror(errno);
    (void)!write(2, what, strlen(what));
    (void)!write(2, ": ", 2);
    (void)!write(2, text, strlen(text));
    (void)!write(2, "\n", 1);
}

/* What a child outside of any jail is bound by. */
static int child_prepare(void *user)
{
    const pid_t parent = *(const pid_t *)user;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return -1;
    }
    if (getppid() != parent) { /* the parent died before prctl: no signal would ever come */
        errno = ESRCH;
        return -1;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -1;
    }
    (void)setsid();
    return 0;
}

_Noreturn void spawn_exec(const struct spawn_options *o, spawn_prepare *prepare, void *user)
{
    int park[SPAWN_FDS_MAX];
    int null = o->null_fd > 0 ? fcntl(o->null_fd, F_DUPFD_CLOEXEC, FD_PARK)
                              : open("/dev/null", O_RDWR | O_CLOEXEC);
    int errfd = fcntl(o->stderr_fd >= 0 ? o->stderr_fd : null, F_DUPFD_CLOEXEC, FD_PARK);
    int outfd = fcntl(o->stdout_fd > 0 ? o->stdout_fd : null, F_DUPFD_CLOEXEC, FD_PARK);
    if (null < 0 || errfd < 0 || outfd < 0) {
        _exit(127);
    }
    for (int i = 0; i < o->n_fds; i++) {
        park[i] = fcntl(o->fds[i].from, F_DUPFD_CLOEXEC, FD_PARK);
        if (park[i] < 0) {
            _exit(127);
        }
    }
    if (dup2(null, 0) < 0 || dup2(outfd, 1) < 0 || dup2(errfd, 2) < 0) {
        _exit(127);
    }
    for (int i = 0; i < o->n_fds; i++) {
        if (dup2(park[i], o->fds[i].to) < 0) {
            _exit(127);
        }
    }
    /* everything else is CLOEXEC already: this is for what a library may have opened without it */
    unsigned first = FD_FIRST;
    for (int i = 0; i < o->n_fds; i++) {
        first = (unsigned)o->fds[i].to >= first ? (unsigned)o->fds[i].to + 1 : first;
    }
    (void)syscall(SYS_close_range, first, ~0u, 0);

    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < 32; sig++) {
        (void)signal(sig, SIG_DFL);
    }
    if (prepare(user) < 0) {
        child_say("prepare");
        _exit(127);
    }
    (void)execve(o->path, o->argv, o->envp ? o->envp : environ);
    child_say(o->path);
    _exit(127);
}

int spawn_child(const struct spawn_options *options, pid_t *ret_pid, int *ret_pidfd,
                struct err *err)
{
    assert(options->path && options->argv && options->n_fds >= 0 &&
           options->n_fds <= SPAWN_FDS_MAX);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        return err_sys(err, "fork");
    }
    if (pid == 0) {
        spawn_exec(options, child_prepare, &parent);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        int rc = err_sys(err, "pidfd_open");
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return rc;
    }
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    return 0;
}

void spawn_kill(int pidfd)
{
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

int spawn_reap(int pidfd)
{
    siginfo_t info = { 0 };
    if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0) {
        return errno == ECHILD ? 1 : 0;
    }
    return info.si_pid != 0;
}
