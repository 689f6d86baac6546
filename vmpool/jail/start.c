/* Two processes a jail.
 *
 * The first (pid 1 of the jail's pid namespace) is a copy of the jailer that has set up the
 * namespaces, the root and the cgroup. It stays, as root without any capability but CAP_KILL, does
 * nothing but reap, and ends when nobody is left. It has the parent-death signal of the jailer, and
 * with it ends everything in its namespace: no machine can outlive the jailer, whatever it does.
 *
 * The second becomes QEMU: user and group of its own, no other group, no capability, no new
 * privileges, limits, then exec. A seed keeps CAP_SETUID and CAP_SETGID (as ambient ones), by which
 * its copies take their own users at birth; the filter of seed_filter.c lets it name only those of
 * the range, and a copy has dropped both before its guest runs. What is started so and is no seed
 * drops them itself, when it is loaded (SEED_BIND). */
#include "vmpool/jail/start.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/fd_pass.h"
#include "vmpool/engine_qemu.h"
#include "vmpool/jail/cgroup.h"
#include "vmpool/jail/root.h"
#include "vmpool/seed_wire.h"
#include "vmpool/spawn.h"

#define LIMIT_FILES 256
/* Of a user, and that is all machines of one job: parallel runs and frozen states, five threads
 * each. One machine is bounded by its cgroup. */
#define LIMIT_PROCESSES 4096
#define LIMIT_FILE_MIB 64ull    /* beside the guest's RAM, which may be dumped */
#define LIMIT_SPACE_MIB 2048ull /* address space beside the guest's RAM */
#define ENV_BYTES 640

struct start {
    const struct jail_host *host;
    const struct jail_place *place;
    const struct jail_request *request;
    const int *fds;
    pid_t parent; /* the first process, as the second sees it */
};

/* others: what else stays effective and permitted; as they are when it is ~0 */
static int set_caps(uint64_t keep, uint64_t others)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0) {
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        uint32_t half = (uint32_t)(keep >> 32 * i), rest = (uint32_t)(others >> 32 * i);
        data[i].inheritable = half;
        data[i].permitted &= half | rest;
        data[i].effective = data[i].permitted;
    }
    return (int)syscall(SYS_capset, &head, data);
}

int jail_drop(uint32_t uid, const gid_t *groups, int n_groups, uint64_t keep, struct err *err)
{
    /* what is to be inheritable has to be so before the bounding set is gone */
    if (set_caps(keep, ~0ull) < 0) {
        return err_sys(err, "capset");
    }
    for (int cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL) {
            return err_sys(err, "drop the bounding set");
        }
    }
    if (setgroups((size_t)n_groups, groups) < 0) {
        return err_sys(err, "setgroups");
    }
    if (uid != 0 &&
        (syscall(SYS_setresgid, uid, uid, uid) < 0 || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
         syscall(SYS_setresuid, uid, uid, uid) < 0)) {
        return err_sys(err, "become user %u", uid);
    }
    if (set_caps(keep, 0) < 0) {
        return err_sys(err, "capset");
    }
    for (int cap = 0; uid != 0 && cap < 64; cap++) {
        if (keep >> cap & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0) {
            return err_sys(err, "ambient capability %d", cap);
        }
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? err_sys(err, "no_new_privs") : 0;
}

static int set_limits(const struct jail_request *r, struct err *err)
{
    const struct {
        int what;
        rlim_t value;
    } limits[] = {
        { RLIMIT_CORE, 0 },
        { RLIMIT_NOFILE, LIMIT_FILES },
        { RLIMIT_NPROC, LIMIT_PROCESSES },
        { RLIMIT_FSIZE, (r->memory_mib + LIMIT_FILE_MIB) << 20 },
        { RLIMIT_AS, (r->memory_mib + LIMIT_SPACE_MIB) << 20 },
        { RLIMIT_MSGQUEUE, 0 },
        { RLIMIT_RTPRIO, 0 },
        { RLIMIT_NICE, 0 },
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit l = { limits[i].value, limits[i].value };
        if (setrlimit((__rlimit_resource_t)limits[i].what, &l) < 0) {
            return err_sys(err, "limit %d", limits[i].what);
        }
    }
    return 0;
}

/* In the second process, by spawn_exec: the last thing before the exec. */
static int before_exec(void *user)
{
    const struct start *s = user;
    bool copyable = s->request->flags & JAIL_COPYABLE, kvm = s->request->flags & JAIL_KVM;
    uint64_t keep = copyable ? 1ull << CAP_SETUID | 1ull << CAP_SETGID : 0;
    struct err err;
    (void)setsid();
    if (set_limits(s->request, &err) < 0 ||
        jail_drop(s->place->uid, &s->host->kvm_gid, kvm ? 1 : 0, keep, &err) < 0) {
        (void)!write(2, err.text, strlen(err.text));
        return -1;
    }
    /* after the change of user, which clears it */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return -1;
    }
    if (getppid() != s->parent) {
        errno = ESRCH;
        return -1;
    }
    return 0;
}

static void become_qemu(struct start *s)
{
    const struct jail_request *r = s->request;
    bool inside = s->host->root >= 0, kvm = r->flags & JAIL_KVM;
    struct engine_host engine = { .kvm = kvm };
    struct machine_options o = { .memory_mib = r->memory_mib,
                                 .vcpus = r->vcpus,
                                 /* with the preloaded half it is only said (seed_ram.h) */
                                 .share = !(r->flags & JAIL_CLONE) ||
                                          r->flags & (JAIL_COPYABLE | JAIL_WRITABLE),
                                 .clone = r->flags & JAIL_CLONE,
                                 .freeze = r->flags & JAIL_COPYABLE   ? FREEZE_COPY
                                           : r->flags & JAIL_WRITABLE ? FREEZE_WRITE
                                                                      : FREEZE_NONE,
                                 .disk = r->flags & JAIL_DISK ? "" : NULL,
                                 .cmdline = r->cmdline };
    struct qemu_args args;
    struct err err;
    const int to[JAIL_FD_END] = { [JAIL_FD_RAM] = QEMU_FD_RAM,
                                  [JAIL_FD_QMP] = QEMU_FD_QMP,
                                  [JAIL_FD_CHANNEL] = QEMU_FD_CHANNEL,
                                  [JAIL_FD_STATE] = QEMU_FD_STATE,
                                  [JAIL_FD_SEED] = SEED_FD,
                                  [JAIL_FD_DISK] = QEMU_FD_DISK,
                                  [JAIL_FD_KERNEL] = QEMU_FD_KERNEL,
                                  [JAIL_FD_INITRD] = QEMU_FD_INITRD };
    struct spawn_fd fds[JAIL_FD_END];
    int n_fds = 0;
    for (int i = JAIL_FD_RAM; i < JAIL_FD_END; i++) {
        if (s->fds[i] >= 0) {
            fds[n_fds++] = (struct spawn_fd){ s->fds[i], to[i] };
        }
    }
    char preload[ENV_BYTES], range[64];
    (void)snprintf(preload, sizeof preload, "LD_PRELOAD=%s",
                   inside ? JAIL_PRELOAD_PATH : s->host->preload);
    (void)snprintf(range, sizeof range, JAIL_ENV "=%u", s->host->uid_first);
    char *envp[QEMU_ENV_MAX];
    int n = qemu_environment(envp, o.freeze);
    if (*s->host->preload) {
        envp[n++] = preload;
        envp[n++] = range;
    }
    envp[n] = NULL;
    qemu_describe(&engine, s->host->qemu);
    const char *binary = inside ? JAIL_QEMU_PATH : s->host->qemu;
    if (qemu_arguments(&args, binary, &engine, &o, &err) < 0) {
        (void)!write(s->fds[JAIL_FD_STDERR], err.text, strlen(err.text));
        _exit(127);
    }
    struct spawn_options so = { .path = binary,
                                .argv = args.argv,
                                .envp = envp,
                                .fds = fds,
                                .n_fds = n_fds,
                                .null_fd = s->host->null,
                                .stderr_fd = s->fds[JAIL_FD_STDERR] };
    spawn_exec(&so, before_exec, s);
}

static void report(int fd, const struct jail_report *r, int pidfd)
{
    (void)fd_send(fd, r, sizeof *r, pidfd, MSG_DONTWAIT);
}

/* The jail around both processes. The jailer may have died before the signal was asked for: then
 * its end of the pipe is closed. */
static int enter(const struct start *s, struct err *err)
{
    struct pollfd life = { .fd = s->host->life, .events = POLLIN };
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return err_sys(err, "prctl");
    }
    (void)close(s->host->life_end);
    if (poll(&life, 1, 0) != 0) {
        return err_set(err, ERR_CLOSED, "the jailer has ended");
    }
    for (int i = 0; i < s->place->n_cgroups; i++) {
        if (write(s->place->cgroups[i], "0", 1) != 1) {
            return err_sys(err, "join the cgroup");
        }
    }
    if (s->host->spaces & CLONE_NEWUTS && sethostname("brood", 5) < 0) {
        return err_sys(err, "sethostname");
    }
    return s->host->root >= 0 ? jail_root_enter(err) : 0;
}

static void close_but(const int *keep, int n)
{
    /* both processes need few: everything else of the jailer's goes */
    for (int fd = 3; fd < 256; fd++) {
        bool kept = false;
        for (int i = 0; i < n; i++) {
            kept = kept || keep[i] == fd;
        }
        if (!kept) {
            (void)close(fd);
        }
    }
}

/* Nothing but reaping from here on. */
static _Noreturn void tend(void)
{
    static const char name[] = "brood-jail-init";
    struct err err;
    (void)prctl(PR_SET_NAME, name);
    (void)syscall(SYS_close_range, 0, ~0u, 0);
    if (jail_drop(0, NULL, 0, 1ull << CAP_KILL, &err) < 0) {
        _exit(1);
    }
    for (;;) {
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD) {
            _exit(0);
        }
    }
}

static _Noreturn void first_process(struct start *s)
{
    struct err err;
    struct jail_report r = { .slot = s->place->slot, .uid = s->place->uid };
    int pidfd = -1;
    (void)signal(SIGCHLD, SIG_DFL);
    if (enter(s, &err) < 0) {
        r.error = err.saved_errno ? err.saved_errno : EPROTO;
        (void)snprintf(r.step, sizeof r.step, "%.47s", err.text);
        report(s->fds[JAIL_FD_REPORT], &r, -1);
        _exit(1);
    }
    s->parent = getpid();
    long pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
    if (pid == 0) {
        int keep[JAIL_FD_END + 1], n = 0;
        for (int i = 0; i < JAIL_FD_END; i++) {
            keep[n++] = s->fds[i];
        }
        keep[n++] = s->host->null;
        close_but(keep, n);
        become_qemu(s);
        _exit(127);
    }
    if (pid < 0) {
        r.error = errno;
        (void)snprintf(r.step, sizeof r.step, "fork");
    }
    report(s->fds[JAIL_FD_REPORT], &r, pidfd);
    tend();
}

int jail_start(const struct jail_host *host, const struct jail_place *place,
               const struct jail_request *request, const int fds[JAIL_FD_END], struct err *err)
{
    assert(place->uid != 0);
    /* CLONE_PARENT in a copyable QEMU makes its copies children of the first process; that one is
     * never the jailer, whose children nobody waits for */
    long pid = syscall(SYS_clone, host->spaces | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        struct start s = { .host = host, .place = place, .request = request, .fds = fds };
        first_process(&s);
    }
    return pid < 0 ? err_sys(err, "clone") : 0;
}
