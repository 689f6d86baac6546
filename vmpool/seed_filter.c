/* An allow-list: what QEMU 7.2 was seen to use as a microvm under TCG and KVM, from its first
 * instruction to its end, and its neighbours (readv beside read). Everything else is EPERM, so that
 * a library that tries takes its other way; clone3 is ENOSYS, for glibc then uses clone, whose
 * flags can be looked at. Not in it: execve, fork and vfork, kill and its relatives, ptrace and
 * process_vm_*, pidfd_*, mount and everything of namespaces, socket, connect, bind, listen, accept,
 * SysV IPC, keys, bpf, perf, io_uring, userfaultfd, modules, memfd_create, chmod, unlink, rename,
 * mkdir, symlink and whatever changes a file's name.
 *
 * QEMU sets up an io_uring, or else an epoll, for its main loop and lets go of it. A copy could
 * have neither as its own. So a seed may have the ring, which is gone before it is copied and which
 * its copies may not set up again; where the host has none, it says that it has no epoll, and
 * polls. A QEMU that is never copied has epoll.
 *
 * tgkill may send one signal: in a seed and its copies 33, by which the preloaded half parks
 * threads; a thread that nobody asked goes on at once, so that it cannot hurt a process of the same
 * user (forks of one frozen sandbox have the same). In any other QEMU it is SIGUSR1, which kicks a
 * vCPU of KVM; nobody else in its jail has its user. abort() ends by its illegal instruction. */
#include "vmpool/seed_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <seccomp.h>

#define FILTER_BLOCK 4096u /* user ids of a range: JAIL_UIDS */
#define PROGRAM_MAX 1024
#define PARK_SIGNAL 33
#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |            \
     CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)
#define COPY_FLAGS (CLONE_PARENT | CLONE_PIDFD | SIGCHLD)

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short n;
};

static struct program start_program, strict_program;

static const int allowed[] = {
    /* files and sockets that are open */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(preadv),
    SCMP_SYS(pwritev),
    SCMP_SYS(preadv2),
    SCMP_SYS(pwritev2),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(fcntl),
    SCMP_SYS(ioctl),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fallocate),
    SCMP_SYS(fadvise64),
    SCMP_SYS(flock),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendto),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    /* the jail's root, read-only, and its /proc */
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(fstatfs),
    SCMP_SYS(statfs),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getdents64),
    SCMP_SYS(getcwd),
    /* waiting */
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2),
    SCMP_SYS(signalfd4),
    SCMP_SYS(futex),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(pause),
    SCMP_SYS(sched_yield),
    SCMP_SYS(restart_syscall),
    /* memory */
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(msync),
    SCMP_SYS(membarrier),
    SCMP_SYS(mincore),
    /* signals of one's own */
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(rt_sigpending),
    SCMP_SYS(rt_sigsuspend),
    SCMP_SYS(sigaltstack),
    /* threads and what a process asks about itself */
    SCMP_SYS(set_robust_list),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(rseq),
    SCMP_SYS(arch_prctl),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getresuid),
    SCMP_SYS(getresgid),
    SCMP_SYS(getgroups),
    SCMP_SYS(getpgrp),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(getrlimit),
    SCMP_SYS(getrusage),
    SCMP_SYS(times),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(getcpu),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    /* clocks and entropy */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrandom),
};

static bool add_strict(scmp_filter_ctx c, bool seed)
{
    static const int prctls[] = { PR_SET_NAME,      PR_GET_NAME,         PR_SET_TIMERSLACK,
                                  PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_GET_DUMPABLE };
    bool ok = true;
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, allowed[i], 0) == 0;
    }
    for (size_t i = 0; i < sizeof prctls / sizeof prctls[0]; i++) {
        ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                                    SCMP_A0_32(SCMP_CMP_EQ, (uint32_t)prctls[i])) == 0;
    }
    ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                                SCMP_A2_32(SCMP_CMP_EQ, seed ? PARK_SIGNAL : SIGUSR1)) == 0;
    static const int polls[] = { SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
                                 SCMP_SYS(epoll_pwait) };
    for (size_t i = 0; i < sizeof polls / sizeof polls[0] && !seed; i++) {
        ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, polls[i], 0) == 0;
    }
    /* limits may be read; of this process only */
    ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2, SCMP_A0(SCMP_CMP_EQ, 0),
                                SCMP_A2(SCMP_CMP_EQ, 0)) == 0;
    ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                SCMP_A0(SCMP_CMP_EQ, THREAD_FLAGS)) == 0;
    ok = ok && (!seed || seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                          SCMP_A0(SCMP_CMP_EQ, COPY_FLAGS)) == 0);
    return ok && seccomp_rule_add(c, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
}

/* seccomp itself only ever narrows; QEMU's -sandbox needs it as well. */
static bool add_start(scmp_filter_ctx c, uint32_t uids)
{
    const scmp_datum_t mask = ~(scmp_datum_t)(FILTER_BLOCK - 1);
    static const int changes[] = { SCMP_SYS(setresuid), SCMP_SYS(setresgid) };
    bool ok = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(seccomp), 0) == 0 &&
              seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                               SCMP_A0_32(SCMP_CMP_EQ, PR_SET_DUMPABLE)) == 0 &&
              seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                               SCMP_A0_32(SCMP_CMP_EQ, PR_SET_SECCOMP)) == 0;
    for (int i = 0; i < 2 && uids; i++) {
        ok = ok && seccomp_rule_add(c, SCMP_ACT_ALLOW, changes[i], 3,
                                    SCMP_A0(SCMP_CMP_MASKED_EQ, mask, uids),
                                    SCMP_A1(SCMP_CMP_MASKED_EQ, mask, uids),
                                    SCMP_A2(SCMP_CMP_MASKED_EQ, mask, uids)) == 0;
    }
    ok = ok && (!uids || seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(io_uring_setup), 0) == 0);
    /* capabilities can only be dropped: none of a seed's is one that gives others */
    return ok && (!uids || seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(capset), 0) == 0);
}

static bool export(scmp_filter_ctx c, struct program *p)
{
    int fd = memfd_create("brood-filter", MFD_CLOEXEC);
    ssize_t n = -1;
    if (fd >= 0 && seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2) == 0 &&
        seccomp_export_bpf(c, fd) == 0 && lseek(fd, 0, SEEK_SET) == 0) {
        n = read(fd, p->code, sizeof p->code);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    bool whole = n > 0 && (size_t)n < sizeof p->code && n % (ssize_t)sizeof p->code[0] == 0;
    p->n = whole ? (unsigned short)((size_t)n / sizeof p->code[0]) : 0;
    return whole;
}

bool filter_prepare(uint32_t uids)
{
    scmp_filter_ctx strict = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    scmp_filter_ctx start = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    bool ok = strict && start && add_strict(strict, uids) && add_strict(start, uids) &&
              add_start(start, uids) && export(strict, &strict_program) &&
              export(start, &start_program);
    if (strict) {
        seccomp_release(strict);
    }
    if (start) {
        seccomp_release(start);
    }
    return ok;
}

static bool install(struct program *p, unsigned flags)
{
    struct sock_fprog prog = { .len = p->n, .filter = p->code };
    return p->n > 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog) == 0;
}

bool filter_start(void)
{
    return install(&start_program, 0);
}

bool filter_strict(void)
{
    return install(&strict_program, SECCOMP_FILTER_FLAG_TSYNC);
}
