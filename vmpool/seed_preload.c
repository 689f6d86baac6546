/* Preloaded into a QEMU that is to be a seed (LD_PRELOAD): lets the whole process, with all its
 * threads, be copied by fork while its machine stands still.
 *
 * Why. What a run costs under emulation is not the machine's memory, which is copied on write
 * anyway, but translating the guest's code: a clone that is loaded from a file starts with an empty
 * translation buffer and pays some hundred milliseconds for the first program, whatever it does. A
 * copy of a process that has run such programs before has the buffer, the page tables and the
 * device state already; it costs one fork.
 *
 * How. fork(2) copies only the calling thread. So a thread of ours (serve) asks every other thread,
 * by a signal, to wait inside the handler (park), with its registers in the signal frame on its own
 * stack. Then it forks by the bare system call: glibc's fork would run handlers and give the other
 * threads' stacks away. In the copy each waiting thread is made again by clone with the same thread
 * pointer (CLONE_SETTLS), jumps back into its handler on its own stack, and returns from the
 * signal: its system call is restarted by the frame that the kernel wrote. A copy is made only when
 * every thread was found waiting in the kernel. Nothing that the threads
 * hold (locks, thread-local data, buffers) is lost, for no thread is. In the original the threads
 * just return from the handler.
 *
 * What is shared by fork but must not be is replaced in the copy before any thread runs: QMP
 * socket, agent channel and stderr by the fds of the request, each eventfd by one of its own. A
 * process with an epoll, io_uring or timerfd descriptor is refused: such an object would keep
 * acting on the original.
 *
 * In a jail a seed runs only what its template's maker wrote; its copies run code of tenants. So a
 * copy's first act, before it has a second thread, is to leave the seed's cgroup for its own, to
 * take a user of its own, to drop the two capabilities which that took, and to install the strict
 * filter (seed_bind_copy). A fork of a frozen sandbox finds user and filter as they were: it is the
 * same job's. Where there is no seed a tenant's code runs in what was started itself: that has a
 * user of its own already, and drops the rest in every thread, with them all parked (SEED_BIND).
 *
 * A copy writes mostly the same pages as its siblings. Each first write is a fault, and a dear one
 * where another thread of the process runs on another processor (its translations must be
 * flushed). vmpool tells which pages an earlier copy has written (SEED_PAGES); a new copy takes
 * them for its own in one go while it still has a single thread.
 *
 * What of guest RAM is whose, and how it is written out: seed_ram.h. Where no copy can be made
 * (with KVM: its descriptors belong to one address space) the library is there for guest RAM alone,
 * and for the filter (SEED_ENV_WRITE): no thread of it stays.
 *
 * Rules for this file: between the first park and the last release no call may take a lock of libc
 * or allocate. The signal is 33, glibc's own SIGSETXID: no code can block it by the library's
 * functions, and QEMU blocks all others in its threads. QEMU does not change its user after start,
 * so that the number is free. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "vmpool/fd_pass.h"
#include "vmpool/seed_bind.h"
#include "vmpool/seed_fds.h"
#include "vmpool/seed_filter.h"
#include "vmpool/seed_ram.h"
#include "vmpool/seed_wire.h"

#ifndef MADV_POPULATE_WRITE /* glibc 2.36 has it, older ones do not */
#define MADV_POPULATE_WRITE 23
#endif

#define PARK_SIGNAL 33
#define GATE_SHUT 0x8000u /* more than there are threads */
#define THREADS_MAX 32
#define PARK_MS_MAX 1000
#define BIND_TRIES 5
#define COPY_MS_MAX 5000
#define REST_TRIES_MAX 2000
#define REST_AGAIN_NS 1000000
#define HELPER_STACK_BYTES 16384
#define KERNEL_SA_RESTORER 0x04000000

struct thread {
    pid_t tid;
    bool at_rest; /* it was waiting in the kernel when it was asked */
    unsigned long tls;
    void *context[5]; /* of __builtin_setjmp */
};

/* Shared with the copy for the time of one fork. */
struct shared {
    _Atomic uint32_t done; /* futex: the copy is complete (1) or given up (2) */
    int32_t vcpu_tid;
};

static struct thread threads[THREADS_MAX];
static _Atomic uint32_t n_parked; /* futex */
static _Atomic uint32_t n_left;
static _Atomic bool binding; /* who is released drops its rights first */
static _Atomic uint32_t n_bound;
static _Atomic uint32_t released; /* futex: generation */
static _Atomic uint32_t n_made;   /* in the copy: threads that exist again */
static _Atomic uint32_t n_back;   /* in the copy: threads that are off their helper stacks */
static char stacks[THREADS_MAX][HELPER_STACK_BYTES] __attribute__((aligned(64)));
static size_t
    tid_offset; /* of the field in glibc's struct pthread that holds the thread's number */
static struct shared *shared;
static struct seed_range ranges[SEED_RANGES_MAX];
static int n_ranges;
static pid_t parent_pid;

static long futex(_Atomic uint32_t *at, int op, uint32_t value, int ms)
{
    struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    return syscall(SYS_futex, at, op, value, ms < 0 ? NULL : &ts, NULL, 0);
}

static pid_t own_tid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static _Atomic int32_t *tid_field(unsigned long tls)
{
    return (_Atomic int32_t *)(tls + tid_offset);
}

/* ---- in every thread but ours ---- */

static void __attribute__((noinline)) wait_released(struct thread *t, uint32_t round)
{
    uint32_t now;
    if (__builtin_setjmp(t->context) != 0) {
        (void)atomic_fetch_add(&n_back, 1);
        return; /* in the copy, made again: return from the signal at once */
    }
    (void)atomic_fetch_add(&n_parked, 1);
    (void)futex(&n_parked, FUTEX_WAKE, INT_MAX, -1);
    while (((now = atomic_load(&released)) & 0xffff) == round) {
        (void)futex(&released, FUTEX_WAIT, now, -1);
    }
    if (atomic_load(&binding) && seed_bind_thread()) {
        (void)atomic_fetch_add(&n_bound, 1);
    }
    (void)atomic_fetch_add(&n_left, 1);
}

/* The number of the round, and below it how many threads have come in: a thread that comes late is
 * counted for the round it waits in, or for none. */
static _Atomic uint32_t gate = GATE_SHUT;

/* Where the signal found the thread: at a system call that the kernel will start again, or behind
 * one that ended because of the signal. */
static bool waits_in_kernel(const void *context)
{
    const ucontext_t *uc = context;
    const uint8_t *ip = (const uint8_t *)uc->uc_mcontext.gregs[REG_RIP];
    long long rax = uc->uc_mcontext.gregs[REG_RAX];
    bool again = ip[0] == 0x0f && ip[1] == 0x05 && rax >= 0;
    bool ended = ip[-2] == 0x0f && ip[-1] == 0x05 && rax == -EINTR;
    return again || ended;
}

static void park(int signo, siginfo_t *info, void *context)
{
    int saved = errno;
    (void)signo;
    (void)info;
    uint32_t ticket = atomic_fetch_add(&gate, 1), slot = ticket & 0xffff;
    if (slot < THREADS_MAX) {
        threads[slot].tid = own_tid();
        threads[slot].at_rest = waits_in_kernel(context);
        threads[slot].tls = (unsigned long)pthread_self();
        wait_released(&threads[slot], ticket >> 16);
    }
    errno = saved;
}

/* ---- in our thread ---- */

/* Every thread of this process but ours, by bare system calls. -1: too many, or /proc failed. */
static int list_threads(pid_t self, pid_t *tids)
{
    char buffer[4096] __attribute__((aligned(8)));
    int n = 0;
    int dir = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/task",
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    long got;
    if (dir < 0) {
        return -1;
    }
    while ((got = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < got;) {
            const struct dirent64 *e = (const struct dirent64 *)(const void *)(buffer + at);
            int tid = 0;
            for (const char *c = e->d_name; *c >= '0' && *c <= '9'; c++) {
                tid = tid * 10 + (*c - '0');
            }
            if (tid > 0 && tid != self) {
                if (n == THREADS_MAX) {
                    (void)syscall(SYS_close, dir);
                    return -1;
                }
                tids[n++] = tid;
            }
            at += e->d_reclen;
        }
    }
    (void)syscall(SYS_close, dir);
    return got < 0 ? -1 : n;
}

/* All threads wait in their handlers. NULL, or why not. Each is signalled once: a second signal
 * would stay pending and park it again after the release. */
static const char *park_all(pid_t self, int *ret_n)
{
    pid_t tids[THREADS_MAX], told[THREADS_MAX];
    int n_told = 0;
    atomic_store(&gate, atomic_load(&released) << 16);
    for (;;) {
        int n = list_threads(self, tids);
        int before = n_told;
        if (n < 0) {
            return "more threads than can be copied";
        }
        for (int i = 0; i < n; i++) {
            bool known = false;
            for (int j = 0; j < n_told; j++) {
                known = known || told[j] == tids[i];
            }
            if (!known && n_told < THREADS_MAX &&
                syscall(SYS_tgkill, getpid(), tids[i], PARK_SIGNAL) == 0) {
                told[n_told++] = tids[i];
            }
        }
        if (n_told == before) {
            *ret_n = n;
            return n == n_told ? NULL : "a thread came or went while it was copied";
        }
        uint32_t have;
        for (int waited = 0; (have = atomic_load(&n_parked)) < (uint32_t)n_told;) {
            if (futex(&n_parked, FUTEX_WAIT, have, 10) < 0 && errno == ETIMEDOUT &&
                (waited += 10) > PARK_MS_MAX) {
                return "a thread did not stop";
            }
        }
    }
}

/* In a thread that runs the signal may have come while it holds a lock with its own number in it
 * (QEMU's recursive ones), and the copy of the thread has another number. A paused machine's
 * threads come to wait within moments. */
static bool all_at_rest(int n)
{
    for (int i = 0; i < n; i++) {
        if (!threads[i].at_rest) {
            return false;
        }
    }
    return true;
}

static void release_all(void)
{
    uint32_t came = atomic_exchange(&gate, GATE_SHUT) & 0xffff;
    (void)atomic_fetch_add(&released, 1);
    (void)futex(&released, FUTEX_WAKE, INT_MAX, -1);
    while (atomic_load(&n_left) < came) {
        (void)sched_yield();
    }
    atomic_store(&n_parked, 0);
    atomic_store(&n_left, 0);
}

static const char *bind_all(pid_t self)
{
    const char *why;
    int n = 0;
    for (int tries = 0; (why = park_all(self, &n)) && tries < BIND_TRIES; tries++) {
        release_all();
    }
    atomic_store(&n_bound, 0);
    atomic_store(&binding, !why);
    release_all();
    atomic_store(&binding, false);
    if (why) {
        return why;
    }
    /* of all threads at once */
    return atomic_load(&n_bound) == (uint32_t)n && seed_bind_thread() && filter_strict()
               ? NULL
               : "rights cannot be dropped";
}

/* ---- in the copy ---- */

static int come_back(void *arg)
{
    struct thread *t = arg;
    (void)atomic_fetch_add(&n_made, 1);
    /* run on when all are there, so that nobody signals a thread that does not exist yet */
    while (atomic_load(&released) == 0) {
        (void)futex(&released, FUTEX_WAIT, 0, -1);
    }
    __builtin_longjmp(t->context, 1);
}

/* Returns in the copy, which is then what the original is: paused, with a thread that serves. */
static void become(const int *fds, int n, const struct seed_request *request)
{
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    atomic_store(tid_field((unsigned long)pthread_self()), own_tid());
    atomic_store(&n_made, 0);
    atomic_store(&n_back, 0);
    atomic_store(&released, 0);
    if (!seed_bind_copy(request, fds + SEED_FDS, parent_pid)) {
        _exit(127);
    }
    for (int i = 0; i < n_ranges; i++) { /* what fails is faulted in when it is written */
        (void)syscall(SYS_madvise, ranges[i].at, ranges[i].len, MADV_POPULATE_WRITE);
    }
    struct shared *own =
        mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED || !seed_fds_own(fds)) {
        _exit(127);
    }
    for (int i = 0; i < n; i++) {
        void *tid = (void *)tid_field(threads[i].tls);
        int made = clone(come_back, stacks[i] + HELPER_STACK_BYTES, flags, &threads[i], tid,
                         (void *)threads[i].tls, tid);
        if (made < 0) {
            _exit(127);
        }
        if (threads[i].tid == request->vcpu_tid) {
            shared->vcpu_tid = made;
        }
    }
    while (atomic_load(&n_made) < (uint32_t)n) {
        (void)sched_yield();
    }
    atomic_store(&shared->done, 1);
    (void)futex(&shared->done, FUTEX_WAKE, 1, -1);
    (void)munmap(shared, sizeof *shared);
    shared = own;
    atomic_store(&gate, GATE_SHUT);
    atomic_store(&n_parked, 0);
    atomic_store(&n_left, 0);
    atomic_store(&released, 1);
    (void)futex(&released, FUTEX_WAKE, INT_MAX, -1);
    while (atomic_load(&n_back) < (uint32_t)n) { /* the helper stacks may be needed again */
        (void)sched_yield();
    }
}

/* ---- serving ---- */

static const char *copy(pid_t self, const struct seed_request *request, const int *fds,
                        struct seed_reply *reply, int *ret_pidfd, bool *ret_copied)
{
    int n = 0, pidfd = -1;
    const char *why = seed_fds_look();
    if (why) {
        return why;
    }
    atomic_store(&shared->done, 0);
    shared->vcpu_tid = 0;
    for (int tries = 0;; tries++) {
        why = park_all(self, &n);
        if (why || all_at_rest(n)) {
            break;
        }
        if (tries == REST_TRIES_MAX) {
            why = "QEMU does not come to rest";
            break;
        }
        release_all();
        (void)syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = REST_AGAIN_NS }, NULL);
    }
    if (!why) {
        /* CLONE_PARENT: the copy is a child of our parent, and does not die with the seed */
        long pid = syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
        if (pid == 0) {
            become(fds, n, request);
            *ret_copied = true;
            return NULL;
        }
        if (pid < 0) {
            why = "fork failed";
        }
        reply->pid = (int32_t)pid;
    }
    release_all();
    if (why) {
        return why;
    }
    for (int waited = 0; atomic_load(&shared->done) == 0 && waited < COPY_MS_MAX;) {
        if (futex(&shared->done, FUTEX_WAIT, 0, 50) < 0 && errno == ETIMEDOUT) {
            struct pollfd p = { .fd = pidfd, .events = POLLIN };
            waited = poll(&p, 1, 0) > 0 ? COPY_MS_MAX : waited + 50;
        }
    }
    if (atomic_load(&shared->done) != 1) {
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    }
    reply->vcpu_tid = shared->vcpu_tid;
    *ret_pidfd = pidfd;
    return NULL;
}

/* The ranges become ours; a list that is not right is as good as none. */
static void take_pages(const struct seed_request *request, int fd)
{
    size_t len = (size_t)request->n_ranges * sizeof ranges[0];
    n_ranges = 0;
    if (request->n_ranges > 0 && request->n_ranges <= SEED_RANGES_MAX &&
        pread(fd, ranges, len, 0) == (ssize_t)len) {
        n_ranges = request->n_ranges;
    }
}

static size_t fds_of(const struct seed_request *request)
{
    switch (request->kind) {
    case SEED_COPY:
        return SEED_FDS + (size_t)request->n_cgroups;
    case SEED_DUMP:
        return request->n_ranges == 1 ? 2 : 1;
    case SEED_BIND:
        return 0;
    case SEED_LAYERS:
        return request->n_ranges >= 0 ? (size_t)request->n_ranges : SEED_LAYERS_MAX + 1;
    default:
        return 1;
    }
}

/* Returns how many fds came, all that the request needs; -1: there are no more requests. */
static int receive(struct seed_request *request, int fds[SEED_LAYERS_MAX])
{
    struct iovec iov = { .iov_base = request, .iov_len = sizeof *request };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(SEED_LAYERS_MAX * sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    ssize_t n;
    do {
        n = recvmsg(SEED_FD, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (n != sizeof *request || request->n_cgroups < 0 || request->n_cgroups > SEED_CGROUPS_MAX) {
        return -1;
    }
    size_t n_fds = fds_of(request);
    if (n_fds > SEED_LAYERS_MAX ||
        (c ? c->cmsg_len : CMSG_LEN(0)) != CMSG_LEN(n_fds * sizeof(int))) {
        return -1;
    }
    if (n_fds > 0) {
        memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
    }
    return (int)n_fds;
}

static bool answer(const struct seed_reply *reply, int pidfd)
{
    return fd_send(SEED_FD, reply, sizeof *reply, pidfd, 0);
}

/* glibc puts its own handler for this signal at the first pthread_create, and unblocks it there:
 * ours comes after that, and before the first request, by the thread that sends it. The kernel
 * wants libc's restorer; it is borrowed from a handler that libc installs. */
static bool install_handler(void)
{
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = { 0 }, libc = { 0 };
    struct sigaction borrowed, before;
    memset(&borrowed, 0, sizeof borrowed);
    borrowed.sa_sigaction = park;
    borrowed.sa_flags = SA_SIGINFO;
    if (sigaction(SIGRTMAX, &borrowed, &before) < 0 ||
        syscall(SYS_rt_sigaction, SIGRTMAX, NULL, &libc, sizeof libc.mask) < 0 ||
        sigaction(SIGRTMAX, &before, NULL) < 0) {
        return false;
    }
    action.handler = park;
    action.flags = SA_SIGINFO | SA_RESTART | KERNEL_SA_RESTORER;
    action.restorer = libc.restorer;
    action.mask = ~(uint64_t)0;
    return syscall(SYS_rt_sigaction, PARK_SIGNAL, &action, NULL, sizeof action.mask) == 0;
}

static void *serve(void *arg)
{
    (void)arg;
    pid_t self = own_tid();
    struct seed_request request;
    int fds[SEED_LAYERS_MAX], n_fds;
    bool usable =
        install_handler() && atomic_load(tid_field((unsigned long)pthread_self())) == self;
    (void)prctl(PR_SET_NAME, "brood-seed");
    while ((n_fds = receive(&request, fds)) >= 0) {
        struct seed_reply reply = { 0 };
        int pidfd = -1;
        if (request.kind == SEED_PAGES) {
            take_pages(&request, fds[0]);
            (void)close(fds[0]);
            continue;
        }
        if (request.kind == SEED_DUMP || request.kind == SEED_BIND) {
            const char *not_done = request.kind == SEED_BIND
                                       ? bind_all(self)
                                       : seed_ram_dump(fds[0], n_fds > 1 ? fds[1] : -1);
            if (n_fds > 0) {
                (void)close(fds[0]);
            }
            (void)snprintf(reply.why, sizeof reply.why, "%s", not_done ? not_done : "");
            if (!answer(&reply, -1)) {
                break;
            }
            continue;
        }
        bool copied = false;
        const char *why = usable ? copy(self, &request, fds, &reply, &pidfd, &copied)
                                 : "this C library is laid out otherwise";
        if (copied) {
            self = own_tid();
            continue; /* this is the copy: its requests come on its own socket */
        }
        if (why) {
            reply.pid = 0;
            (void)snprintf(reply.why, sizeof reply.why, "%s", why);
        }
        for (int i = 0; i < n_fds; i++) {
            (void)close(fds[i]);
        }
        bool told = answer(&reply, pidfd);
        if (pidfd >= 0) {
            (void)close(pidfd);
        }
        if (!told) {
            break;
        }
    }
    while (own_tid() == getpid()) { /* in a copy this is the first thread: it may not end */
        (void)pause();
    }
    return NULL;
}

/* Where in glibc's struct pthread the thread's number stands; serve checks it against a second
 * thread. */
static bool find_tid_offset(void)
{
    const int32_t *words = (const int32_t *)pthread_self();
    pid_t tid = own_tid();
    for (size_t i = 64; i < 512; i++) {
        if (words[i] == tid) {
            tid_offset = i * sizeof words[0];
            return true;
        }
    }
    return false;
}

static _Noreturn void give_up(const char *why)
{
    (void)!write(2, "brood-qemu-seed: ", 17);
    (void)!write(2, why, strlen(why));
    (void)!write(2, "\n", 1);
    _exit(127);
}

/* BROOD_JAIL: the first user id of the copies. Without the filter nothing may run. */
static void lock_in(bool copied)
{
    const char *jail = getenv("BROOD_JAIL");
    if (!jail) {
        return;
    }
    uint32_t uids = copied ? (uint32_t)strtoul(jail, NULL, 10) : 0;
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || !filter_prepare(uids) || !filter_start()) {
        give_up("the system call filter cannot be installed");
    }
    (void)unsetenv("BROOD_JAIL");
}

/* Without what lies over its RAM's file the machine would be another one. */
static void take_layers(void)
{
    struct seed_request request;
    int fds[SEED_LAYERS_MAX], n = receive(&request, fds);
    if (n < 0 || request.kind != SEED_LAYERS) {
        give_up("no list of layers");
    }
    if (!seed_ram_layers(fds, n)) {
        give_up("guest RAM is not known");
    }
    (void)close(SEED_FD);
}

static void __attribute__((constructor)) begin(void)
{
    pthread_t thread;
    uint64_t all = ~(uint64_t)0, mask = 0;
    const char *mode = getenv("BROOD_SEED");
    bool written = mode && strcmp(mode, "write") == 0;
    lock_in(mode && !written);
    if (!mode || fcntl(SEED_FD, F_GETFD) < 0 || (!written && !find_tid_offset())) {
        return;
    }
    seed_ram_init();
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("BROOD_SEED");
    if (written) {
        take_layers();
        return;
    }
    (void)fcntl(SEED_FD, F_SETFD, FD_CLOEXEC);
    parent_pid = getppid();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return;
    }
    /* our thread takes no signal at all, not even this one */
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof all);
    if (pthread_create(&thread, NULL, serve, NULL) == 0) {
        (void)pthread_detach(thread);
    }
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
}
