/* The probe's guest: a loop of seven instructions in 16-bit real mode that counts in ebx and writes
 * to one page after another of a fresh MiB, so that slow memory faults show as well as slow
 * instructions. A timer signal stops it (KVM_RUN returns EINTR) and the count is read back. Of a
 * few such windows the best counts, for a busy host may take the CPU away in any; each starts with
 * the memory taken back, so that faults are part of all. All in a child: an ioctl that never
 * returns must not hold up the pool. Source: Documentation/virt/kvm/api.rst. */
#include "vmpool/kvm_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

#define PROBE_TIMEOUT_MS 1500
#define WINDOW_US 10000
#define WINDOWS 5
/* With BROOD_TEST_KVM_ROUNDS_MIN, which replaces KVM_PROBE_ROUNDS_MIN: the nested test runs KVM
 * inside an emulator, where a memory fault takes 0.1 ms and a first ioctl a second. */
#define TEST_TIMEOUT_MS 30000
#define TEST_WINDOW_US 50000
#define GUEST_BYTES 0x100000u
#define CODE_AT 0x1000u

static const uint8_t code[] = {
    0x66, 0x43,             /* inc %ebx */
    0x8c, 0xc0,             /* mov %es, %ax */
    0x05, 0x00, 0x01,       /* add $0x100, %ax: the next page; wraps at 1 MiB */
    0x8e, 0xc0,             /* mov %ax, %es */
    0x26, 0xa2, 0x00, 0x08, /* mov %al, %es:0x800 */
    0xeb, 0xf1              /* jmp to the start */
};

struct answer {
    double rounds_per_s;
    int failed_errno;
    char step[32];
};

static void on_alarm(int sig)
{
    (void)sig;
}

static int fail_at(struct answer *a, const char *step)
{
    a->failed_errno = errno;
    (void)snprintf(a->step, sizeof a->step, "%s", step);
    return -1;
}

/* The guest's best progress in a few windows. Its memory but the first two pages, where its code
 * is, is taken back before each. */
static int run_windows(struct answer *a, int cpu, const struct kvm_run *run, uint8_t *mem,
                       int window_us)
{
    const uint32_t kept = CODE_AT + 0x1000u;
    struct sigaction sa = { .sa_handler = on_alarm };
    struct itimerval timer = { .it_value = { .tv_usec = window_us },
                               .it_interval = { .tv_usec = window_us } };
    struct kvm_regs regs;
    uint32_t before = 0;
    (void)sigaction(SIGALRM, &sa, NULL);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < WINDOWS; i++) {
        if (madvise(mem + kept, GUEST_BYTES - kept, MADV_REMOVE) < 0) {
            return fail_at(a, "madvise");
        }
        int64_t t0 = mono_us();
        int rc = ioctl(cpu, KVM_RUN, 0);
        int64_t us = mono_us() - t0;
        if (rc == 0 || errno != EINTR) {
            (void)snprintf(a->step, sizeof a->step, "KVM_RUN exit %u",
                           rc == 0 ? run->exit_reason : 0u);
            a->failed_errno = rc < 0 ? errno : EIO;
            return -1;
        }
        if (ioctl(cpu, KVM_GET_REGS, &regs) < 0) {
            return fail_at(a, "KVM_GET_REGS");
        }
        uint32_t rounds = (uint32_t)regs.rbx - before; /* the guest's counter wraps */
        before = (uint32_t)regs.rbx;
        double rate = us > 0 ? (double)rounds * 1e6 / (double)us : 0;
        a->rounds_per_s = rate > a->rounds_per_s ? rate : a->rounds_per_s;
    }
    return 0;
}

static int run_guest(struct answer *a, int window_us)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (kvm < 0) {
        return fail_at(a, "open");
    }
    if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION) {
        return fail_at(a, "KVM_GET_API_VERSION");
    }
    int vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0) {
        return fail_at(a, "KVM_CREATE_VM");
    }
    uint8_t *mem =
        mmap(NULL, GUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED) {
        return fail_at(a, "mmap");
    }
    memcpy(mem + CODE_AT, code, sizeof code);
    struct kvm_userspace_memory_region region = { .memory_size = GUEST_BYTES,
                                                  .userspace_addr = (uintptr_t)mem };
    if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0) {
        return fail_at(a, "KVM_SET_USER_MEMORY_REGION");
    }
    int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
    int run_bytes = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (cpu < 0 || run_bytes <= 0) {
        return fail_at(a, "KVM_CREATE_VCPU");
    }
    struct kvm_run *run = mmap(NULL, (size_t)run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
    struct kvm_sregs sregs;
    if (run == MAP_FAILED || ioctl(cpu, KVM_GET_SREGS, &sregs) < 0) {
        return fail_at(a, "KVM_GET_SREGS");
    }
    sregs.cs.base = 0;
    sregs.cs.selector = 0;
    struct kvm_regs regs = { .rip = CODE_AT, .rflags = 2 };
    if (ioctl(cpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(cpu, KVM_SET_REGS, &regs) < 0) {
        return fail_at(a, "KVM_SET_REGS");
    }
    return run_windows(a, cpu, run, mem, window_us);
}

bool kvm_probe(char *why, size_t room)
{
    if (access("/dev/kvm", F_OK) != 0) {
        (void)snprintf(why, room, "no /dev/kvm");
        return false;
    }
    const char *test = getenv("BROOD_TEST_KVM_ROUNDS_MIN");
    int timeout_ms = test ? TEST_TIMEOUT_MS : PROBE_TIMEOUT_MS;
    double needed = test ? strtod(test, NULL) : KVM_PROBE_ROUNDS_MIN;
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        (void)snprintf(why, room, "pipe: %s", strerror(errno));
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        struct answer a = { 0 };
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)run_guest(&a, test ? TEST_WINDOW_US : WINDOW_US);
        (void)!write(pipe_fds[1], &a, sizeof a);
        _exit(0);
    }
    (void)close(pipe_fds[1]);
    struct answer a = { 0 };
    struct pollfd p = { .fd = pipe_fds[0], .events = POLLIN };
    bool answered =
        pid > 0 && poll(&p, 1, timeout_ms) == 1 && read(pipe_fds[0], &a, sizeof a) == sizeof a;
    (void)close(pipe_fds[0]);
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        /* a child stuck in the device cannot be reaped at once: init does it when we are gone */
        for (int i = 0; i < 100 && waitpid(pid, NULL, WNOHANG) == 0; i++) {
            sleep_ms(1);
        }
    }
    if (!answered) {
        (void)snprintf(why, room,
                       "/dev/kvm: a guest of seven instructions did not stop within %d ms",
                       timeout_ms);
        return false;
    }
    if (a.failed_errno) {
        (void)snprintf(why, room, "/dev/kvm: %s: %s", a.step, strerror(a.failed_errno));
        return false;
    }
    bool usable = a.rounds_per_s >= needed;
    (void)snprintf(why, room, "/dev/kvm ran a test guest at %.3g million rounds/s (%s %.3g)",
                   a.rounds_per_s / 1e6, usable ? "needed:" : "too slow, needed:", needed / 1e6);
    return usable;
}
