/* The system call filter of jails, in a process that has installed it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmpool/seed_filter.h"

#define UIDS 0x7fffd000u
#define COPY_FLAGS (CLONE_PARENT | CLONE_PIDFD | SIGCHLD)

struct attempt {
    const char *name;
    long number, a[6];
    int strict, start; /* errno wanted under each filter; 0: it is let through (whatever it says) */
};

static char text[] = "/proc/self/status";

static const struct attempt attempts[] = {
    { "read", SYS_read, { -1 }, 0, 0 },
    { "openat", SYS_openat, { AT_FDCWD, (long)text, O_RDONLY }, 0, 0 },
    { "execve", SYS_execve, { (long)text }, EPERM, EPERM },
    { "execveat", SYS_execveat, { AT_FDCWD, (long)text }, EPERM, EPERM },
    { "fork", SYS_fork, { 0 }, EPERM, EPERM },
    { "vfork", SYS_vfork, { 0 }, EPERM, EPERM },
    { "clone3", SYS_clone3, { 0 }, ENOSYS, ENOSYS },
    { "clone as fork does", SYS_clone, { SIGCHLD }, EPERM, EPERM },
    { "clone with namespaces", SYS_clone, { COPY_FLAGS | CLONE_NEWUSER }, EPERM, EPERM },
    { "unshare", SYS_unshare, { CLONE_NEWUSER }, EPERM, EPERM },
    { "setns", SYS_setns, { -1 }, EPERM, EPERM },
    { "kill", SYS_kill, { 1, 0 }, EPERM, EPERM },
    { "tgkill of another signal", SYS_tgkill, { 1, 1, SIGKILL }, EPERM, EPERM },
    { "tkill", SYS_tkill, { 1, SIGKILL }, EPERM, EPERM },
    { "rt_sigqueueinfo", SYS_rt_sigqueueinfo, { 1, SIGKILL }, EPERM, EPERM },
    { "rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, { 1, 1, SIGKILL }, EPERM, EPERM },
    { "pidfd_open", SYS_pidfd_open, { 1 }, EPERM, EPERM },
    { "pidfd_send_signal", SYS_pidfd_send_signal, { -1 }, EPERM, EPERM },
    { "pidfd_getfd", SYS_pidfd_getfd, { -1 }, EPERM, EPERM },
    { "ptrace", SYS_ptrace, { PTRACE_TRACEME }, EPERM, EPERM },
    { "process_vm_readv", SYS_process_vm_readv, { 1 }, EPERM, EPERM },
    { "process_vm_writev", SYS_process_vm_writev, { 1 }, EPERM, EPERM },
    { "kcmp", SYS_kcmp, { 1, 1 }, EPERM, EPERM },
    { "socket", SYS_socket, { AF_UNIX, SOCK_STREAM }, EPERM, EPERM },
    { "socketpair", SYS_socketpair, { AF_UNIX, SOCK_STREAM }, EPERM, EPERM },
    { "connect", SYS_connect, { -1 }, EPERM, EPERM },
    { "bind", SYS_bind, { -1 }, EPERM, EPERM },
    { "listen", SYS_listen, { -1 }, EPERM, EPERM },
    { "accept4", SYS_accept4, { -1 }, EPERM, EPERM },
    { "mount", SYS_mount, { 0 }, EPERM, EPERM },
    { "umount2", SYS_umount2, { 0 }, EPERM, EPERM },
    { "open_tree", SYS_open_tree, { -1 }, EPERM, EPERM },
    { "chroot", SYS_chroot, { (long)text }, EPERM, EPERM },
    { "pivot_root", SYS_pivot_root, { 0 }, EPERM, EPERM },
    { "unlinkat", SYS_unlinkat, { AT_FDCWD, (long)text }, EPERM, EPERM },
    { "renameat2", SYS_renameat2, { AT_FDCWD, (long)text }, EPERM, EPERM },
    { "mkdirat", SYS_mkdirat, { AT_FDCWD, (long)text }, EPERM, EPERM },
    { "fchmodat", SYS_fchmodat, { AT_FDCWD, (long)text }, EPERM, EPERM },
    { "mknodat", SYS_mknodat, { AT_FDCWD, (long)text }, EPERM, EPERM },
    { "symlinkat", SYS_symlinkat, { (long)text }, EPERM, EPERM },
    { "bpf", SYS_bpf, { -1 }, EPERM, EPERM },
    { "perf_event_open", SYS_perf_event_open, { 0 }, EPERM, EPERM },
    { "io_uring_setup", SYS_io_uring_setup, { 1 }, EPERM, 0 },
    { "io_uring_enter", SYS_io_uring_enter, { -1 }, EPERM, EPERM },
    { "epoll_create1", SYS_epoll_create1, { 0 }, EPERM, EPERM },
    { "userfaultfd", SYS_userfaultfd, { 0 }, EPERM, EPERM },
    { "keyctl", SYS_keyctl, { 0 }, EPERM, EPERM },
    { "add_key", SYS_add_key, { 0 }, EPERM, EPERM },
    { "init_module", SYS_init_module, { 0 }, EPERM, EPERM },
    { "shmget", SYS_shmget, { 0 }, EPERM, EPERM },
    { "msgget", SYS_msgget, { 0 }, EPERM, EPERM },
    { "memfd_create", SYS_memfd_create, { (long)text }, EPERM, EPERM },
    { "setrlimit", SYS_setrlimit, { RLIMIT_CORE }, EPERM, EPERM },
    { "prlimit64 of another", SYS_prlimit64, { 1, RLIMIT_CORE, 0 }, EPERM, EPERM },
    { "prlimit64 that sets", SYS_prlimit64, { 0, RLIMIT_CORE, 8 }, EPERM, EPERM },
    { "setuid", SYS_setuid, { 0 }, EPERM, EPERM },
    { "setgroups", SYS_setgroups, { 0 }, EPERM, EPERM },
    { "setresuid to root", SYS_setresuid, { 0, 0, 0 }, EPERM, EPERM },
    { "setresuid, one outside", SYS_setresuid, { UIDS, UIDS, UIDS + 4096 }, EPERM, EPERM },
    { "setresuid, one below", SYS_setresuid, { UIDS - 1, UIDS, UIDS }, EPERM, EPERM },
    { "setresuid that keeps", SYS_setresuid, { -1, -1, -1 }, EPERM, EPERM },
    { "setresgid to root", SYS_setresgid, { 0, 0, 0 }, EPERM, EPERM },
    { "PR_SET_DUMPABLE", SYS_prctl, { PR_SET_DUMPABLE, 0 }, EPERM, 0 },
    { "PR_SET_SECUREBITS", SYS_prctl, { PR_SET_SECUREBITS, 0 }, EPERM, EPERM },
    { "seccomp", SYS_seccomp, { 2, 0, (long)text }, EPERM, 0 },
    { "futex", SYS_futex, { 0 }, 0, 0 },
};

/* In a child: the index of the first that is not as wanted plus 1, else 0. */
static int run(bool strict)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!filter_prepare(UIDS) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            !filter_start() || (strict && !filter_strict())) {
            _exit(250);
        }
        int bad = 0;
        for (size_t i = 0; i < sizeof attempts / sizeof attempts[0] && !bad; i++) {
            const struct attempt *t = &attempts[i];
            int want = strict ? t->strict : t->start;
            errno = 0;
            long rc = syscall(t->number, t->a[0], t->a[1], t->a[2], t->a[3], t->a[4], t->a[5]);
            bool refused = rc < 0 && errno == want;
            bool blocked = rc < 0 && (errno == EPERM || errno == ENOSYS);
            bad = (want ? refused : !blocked) ? 0 : (int)i + 1;
        }
        _exit(bad);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "status %x", (unsigned)status);
    return WEXITSTATUS(status);
}

Test(filter, what_a_seed_may_not)
{
    int bad = run(false);
    cr_expect_eq(bad, 0, "%s", bad < 250 && bad > 0 ? attempts[bad - 1].name : "not installed");
}

Test(filter, what_a_copy_may_not)
{
    int bad = run(true);
    cr_expect_eq(bad, 0, "%s", bad < 250 && bad > 0 ? attempts[bad - 1].name : "not installed");
}

/* A seed may name users of its range, which the kernel then allows or not; a copy none. */
Test(filter, users_of_the_range)
{
    int status;
    if (geteuid() != 0) {
        cr_skip_test("needs root");
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!filter_prepare(UIDS) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            !filter_start()) {
            _exit(1);
        }
        long last = UIDS + 4095;
        if (syscall(SYS_setresgid, last, last, last) != 0) {
            _exit(2);
        }
        if (syscall(SYS_setresuid, last, last, last) != 0 || getuid() != (uid_t)last) {
            _exit(3);
        }
        if (!filter_strict() || syscall(SYS_setresuid, last, last, last) == 0 || errno != EPERM) {
            _exit(4);
        }
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "step %d", WEXITSTATUS(status));
}
