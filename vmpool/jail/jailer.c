/* The jailer, the only process of vmpool with rights.
 *
 * Processes and their users:
 *
 *   brood-vmpool (broker)   the configured user; parses what workers and QEMUs say; no capability
 *   |- brood-jailer         root with the capabilities of KEEP; parses struct jail_request only
 *      |- brood-jail-keep   root; sleeps until the jailer is gone, then removes its cgroups
 *      |- brood-jail-init   one a jail: pid 1 of its pid namespace, root with CAP_KILL; reaps
 *         |- qemu           a user of its own, no capability (a seed: two, see start.c)
 *         |- qemu           copies of it: children of the init too, each with a user and a cgroup
 *                           of its own
 *
 * Who dies with whom: the broker's end closes the socket, at whose end of file the jailer ends; its
 * death is the inits' signal (and, where there is a pid namespace, their death everybody's in it);
 * the keeper sees the pipe closed. Mounts are in namespaces that end with their processes. Nothing
 * of it needs a last will of the process that dies, so kill -9 of any leaves nothing.
 *
 * Descriptors: 2 the log; one socket to the broker; /proc and /dev/null as the broker saw them; the
 * jails' root (a tmpfs of this mount namespace); a folder in each cgroup hierarchy; the two ends of
 * the pipe called life. What comes with a request is closed when the request is done.
 *
 * It never reads a file that the broker names, never opens a path that is not in its own tables,
 * waits for nobody, and keeps one number a slot. A request that is not right ends nothing: it is
 * logged and, where an answer is due, refused. */
#include "vmpool/jail/jailer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "vmpool/jail/cgroup.h"
#include "vmpool/jail/check.h"
#include "vmpool/jail/protect.h"
#include "vmpool/jail/root.h"
#include "vmpool/jail/start.h"
#include "vmpool/jail/uids.h"

#define KEEPER_WAIT_MS 10000
#define HELLO_MS_MAX 10000
#define LOOK_FDS 3u
#define CAP(x) (1ull << CAP_##x)
/* namespaces and mounts; users of machines; bounding set; their end; /proc of theirs */
#define KEEP                                                                                       \
    (CAP(SYS_ADMIN) | CAP(SYS_CHROOT) | CAP(SETUID) | CAP(SETGID) | CAP(SETPCAP) | CAP(KILL) |     \
     CAP(SYS_PTRACE) | CAP(DAC_OVERRIDE) | CAP(SYS_RESOURCE))

struct slot {
    bool taken, made;
    uint32_t uid;
};

struct jailer {
    int sock;
    int proc;
    struct jail_host host;
    struct cgroups cgroups;
    struct jail_uids uids;
    struct slot slots[JAIL_SLOTS_MAX];
};

static struct jailer jailer; /* one a process */

/* ---- slots ---- */

static int slot_take(struct jailer *j, uint32_t *ret_slot, struct err *err)
{
    for (uint32_t i = 0; i < JAIL_SLOTS_MAX; i++) {
        struct slot *s = &j->slots[i];
        if (s->taken || (s->made && !cgroups_empty(&j->cgroups, i))) {
            continue; /* given back, but somebody is in it still */
        }
        int rc = s->made ? 0 : cgroups_make(&j->cgroups, i, err);
        rc = rc < 0 ? rc : jail_uids_take(&j->uids, &s->uid, err);
        if (rc < 0) {
            return rc;
        }
        s->made = s->taken = true;
        *ret_slot = i;
        return 0;
    }
    return err_set(err, ERR_NO_CAPACITY, "all %u slots are taken", JAIL_SLOTS_MAX);
}

static void slot_give_back(struct jailer *j, uint32_t slot)
{
    struct slot *s = &j->slots[slot];
    if (s->taken) {
        s->taken = false;
        jail_uids_give_back(&j->uids, s->uid);
    }
}

/* ---- requests ---- */

static void answer(const struct jailer *j, const struct jail_reply *r, const int *fds, int n_fds)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)r, .iov_len = sizeof *r };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(JAIL_CGROUPS_MAX * sizeof(int))];
    } control = { .bytes = { 0 } };
    static_assert(LOOK_FDS <= JAIL_CGROUPS_MAX, "room for both kinds of answers");
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (n_fds > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int)) };
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    }
    (void)sendmsg(j->sock, &msg, MSG_NOSIGNAL);
}

static int start(struct jailer *j, const struct jail_request *r, const int *fds, struct err *err)
{
    struct jail_place place = { 0 };
    int rc = jail_check_fds(r, fds, err);
    rc = rc < 0 ? rc : slot_take(j, &place.slot, err);
    if (rc < 0) {
        return rc;
    }
    place.uid = j->slots[place.slot].uid;
    rc = cgroups_limit(&j->cgroups, place.slot, r->memory_mib, r->vcpus, err);
    rc = rc < 0 ? rc : cgroups_join_fds(&j->cgroups, place.slot, place.cgroups, err);
    if (rc >= 0) {
        place.n_cgroups = rc;
        rc = jail_start(&j->host, &place, r, fds, err);
        for (int i = 0; i < place.n_cgroups; i++) {
            (void)close(place.cgroups[i]);
        }
    }
    if (rc < 0) {
        slot_give_back(j, place.slot);
    }
    return rc;
}

static int reserve(struct jailer *j, struct err *err)
{
    struct jail_reply reply = { 0 };
    int fds[JAIL_CGROUPS_MAX], n = 0;
    int rc = slot_take(j, &reply.slot, err);
    if (rc == 0 && (rc = n = cgroups_join_fds(&j->cgroups, reply.slot, fds, err)) < 0) {
        slot_give_back(j, reply.slot);
    }
    if (rc < 0) {
        reply.error = err->saved_errno ? err->saved_errno : EAGAIN;
        n = 0;
    } else {
        reply.uid = j->slots[reply.slot].uid;
        reply.n_fds = (uint32_t)n;
    }
    answer(j, &reply, fds, n);
    for (int i = 0; i < n; i++) {
        (void)close(fds[i]);
    }
    return rc < 0 ? rc : 0;
}

static int read_at(int dir, const char *path, char *text, size_t room)
{
    cleanup_close int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    text[n > 0 ? n : 0] = 0;
    return n > 0 ? 0 : -1;
}

/* The process behind pidfd, when it is one of the jails': its users are in the range. */
static int own_process(const struct jailer *j, int pidfd, pid_t *ret_pid, struct err *err)
{
    char path[64], text[2048];
    int pid = 0;
    unsigned uid, euid;
    (void)snprintf(path, sizeof path, "self/fdinfo/%d", pidfd);
    const char *at = read_at(j->proc, path, text, sizeof text) == 0 ? strstr(text, "\nPid:") : NULL;
    if (!at || sscanf(at, " Pid: %d", &pid) != 1 || pid <= 0) {
        return err_set(err, ERR_PROTOCOL, "not a pidfd of a process that lives");
    }
    (void)snprintf(path, sizeof path, "%d/status", pid);
    at = read_at(j->proc, path, text, sizeof text) == 0 ? strstr(text, "\nUid:") : NULL;
    if (!at || sscanf(at, " Uid: %u %u", &uid, &euid) != 2 || !jail_uids_own(&j->uids, uid) ||
        !jail_uids_own(&j->uids, euid)) {
        return err_set(err, ERR_PROTOCOL, "process %d is no machine", pid);
    }
    /* the number meant this process all the while only if it still lives */
    if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0) {
        return err_sys(err, "process %d", pid);
    }
    *ret_pid = pid;
    return 0;
}

static int kill_one(const struct jailer *j, int pidfd, struct err *err)
{
    pid_t pid;
    int rc = own_process(j, pidfd, &pid, err);
    if (rc == 0 && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0) {
        rc = err_sys(err, "kill %d", (int)pid);
    }
    return rc;
}

static int look(const struct jailer *j, int pidfd, struct err *err)
{
    static const char *const files[LOOK_FDS] = { "maps", "pagemap", "mem" };
    struct jail_reply reply = { 0 };
    int fds[LOOK_FDS] = { -1, -1, -1 };
    pid_t pid;
    int rc = own_process(j, pidfd, &pid, err);
    /* a pagemap tells frame numbers for ever if it is opened with CAP_SYS_ADMIN */
    if (rc == 0 && protect_effective(KEEP & ~CAP(SYS_ADMIN)) < 0) {
        rc = err_sys(err, "capset");
    }
    for (unsigned i = 0; i < LOOK_FDS && rc == 0; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%d/%s", (int)pid, files[i]);
        fds[i] = openat(j->proc, path, O_RDONLY | O_CLOEXEC);
        rc = fds[i] < 0 ? err_sys(err, "%s", path) : 0;
    }
    if (protect_effective(KEEP) < 0) {
        abort();
    }
    if (rc == 0 && syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0) {
        rc = err_sys(err, "process %d", (int)pid); /* the files may be of another one */
    }
    reply.error = rc == 0 ? 0 : err->saved_errno ? err->saved_errno : ESRCH;
    reply.n_fds = rc == 0 ? LOOK_FDS : 0;
    answer(j, &reply, fds, (int)reply.n_fds);
    for (unsigned i = 0; i < LOOK_FDS; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    return rc;
}

static void serve_one(struct jailer *j, const struct jail_request *r, const int *fds)
{
    struct err err;
    int by_kind[JAIL_FD_END], n = 0, rc = 0;
    switch (r->kind) {
    case JAIL_START:
        for (int i = 0; i < JAIL_FD_END; i++) {
            by_kind[i] = jail_fd_wanted(r->flags, (enum jail_fd)i) ? fds[n++] : -1;
        }
        rc = start(j, r, by_kind, &err); /* without a process nobody reports: end of file says it */
        break;
    case JAIL_RESERVE:
        rc = reserve(j, &err);
        break;
    case JAIL_LIMIT:
        rc = j->slots[r->slot].taken
                 ? cgroups_limit(&j->cgroups, r->slot, r->memory_mib, r->vcpus, &err)
                 : err_set(&err, ERR_PROTOCOL, "slot %u is not taken", r->slot);
        break;
    case JAIL_RELEASE:
        slot_give_back(j, r->slot);
        break;
    case JAIL_KILL:
        rc = kill_one(j, fds[0], &err);
        rc = rc < 0 && err.saved_errno == ESRCH ? 0 : rc;
        break;
    case JAIL_LOOK:
        rc = look(j, fds[0], &err);
        break;
    default:
        assert(!"checked");
    }
    if (rc < 0) {
        log_warn("jailer", "request", r->kind == JAIL_START ? "start" : "other", "why", err.text);
    }
}

/* false: the broker has gone. */
static bool serve(struct jailer *j)
{
    char bytes[sizeof(struct jail_request) + 1];
    int fds[JAIL_FDS_MAX];
    unsigned n_fds = 0;
    struct iovec iov = { .iov_base = bytes, .iov_len = sizeof bytes };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(JAIL_FDS_MAX * sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    ssize_t n = recvmsg(j->sock, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) {
        return true;
    }
    if (n <= 0) {
        return false;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            unsigned have = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            for (unsigned i = 0; i < have && n_fds < JAIL_FDS_MAX; i++) {
                memcpy(&fds[n_fds++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            }
        }
    }
    struct jail_request r;
    struct err err;
    int rc = msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)
                 ? err_set(&err, ERR_PROTOCOL, "more than a request")
                 : jail_check_request(bytes, (size_t)n, n_fds, &r, &err);
    if (rc == 0) {
        serve_one(j, &r, fds);
    } else {
        log_warn("jailer", "refused", err.text);
    }
    for (unsigned i = 0; i < n_fds; i++) {
        (void)close(fds[i]);
    }
    return true;
}

/* ---- the keeper ---- */

static _Noreturn void keep(struct jailer *j)
{
    char byte;
    (void)prctl(PR_SET_NAME, "brood-jail-keep");
    (void)close(j->host.life_end);
    (void)close(j->sock);
    (void)!read(j->host.life, &byte, 1); /* nobody writes: end of file */
    cgroups_remove(&j->cgroups, KEEPER_WAIT_MS);
    _exit(0);
}

/* ---- start ---- */

static void close_but(int keep_fd)
{
    (void)syscall(SYS_close_range, keep_fd + 1, ~0u, 0);
    if (keep_fd > 3) {
        (void)syscall(SYS_close_range, 3, keep_fd - 1, 0);
    }
}

static _Noreturn void jailer_main(const struct jailer_options *o, int sock)
{
    struct jailer *j = &jailer;
    struct jail_hello hello = { 0 };
    struct err err;
    char name[64];
    int life[2];
    sigset_t none;
    close_but(sock);
    (void)prctl(PR_SET_NAME, "brood-jailer");
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)setsid(); /* the terminal's Ctrl-C is for the broker, whose end ends us */
    (void)signal(SIGCHLD, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)umask(022);
    j->sock = sock;
    j->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    j->host = (struct jail_host){ .root = -1,
                                  .null = open("/dev/null", O_RDWR | O_CLOEXEC),
                                  .uid_first = o->uid_first,
                                  .qemu = o->qemu,
                                  .preload = o->preload };
    if (j->proc < 0 || j->host.null < 0 || chdir("/") < 0 || pipe2(life, O_CLOEXEC) < 0) {
        (void)err_sys(&err, "/proc, /dev/null");
        log_warn("jailer", "why", err.text);
        _exit(1);
    }
    j->host.life = life[0];
    j->host.life_end = life[1];
    struct stat kvm;
    j->host.kvm_gid = stat("/dev/kvm", &kvm) == 0 ? kvm.st_gid : 0;
    protect_find(&j->host, o->kvm, &hello);
    (void)snprintf(name, sizeof name, "brood-%08x-%d", o->uid_first, (int)getpid());
    cgroups_open(&j->cgroups, j->proc, name);
    protect_cgroups(&j->cgroups, &hello);
    pid_t keeper = fork();
    if (keeper == 0) {
        keep(j);
    }
    jail_uids_init(&j->uids, o->uid_first, j->proc);
    if (keeper < 0 || send(sock, &hello, sizeof hello, MSG_NOSIGNAL) < 0) {
        _exit(1);
    }
    (void)protect_self(KEEP);
    while (serve(j)) {
    }
    _exit(0);
}

int jailer_fork(const struct jailer_options *o, int *ret_fd, struct jail_hello *ret_hello,
                struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_sys(err, "socketpair");
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        jailer_main(o, pair[1]);
    }
    (void)close(pair[1]);
    cleanup_close int ours = pair[0];
    if (pid < 0) {
        return err_sys(err, "fork");
    }
    struct pollfd p = { .fd = ours, .events = POLLIN };
    if (poll(&p, 1, HELLO_MS_MAX) != 1 ||
        recv(ours, ret_hello, sizeof *ret_hello, 0) != (ssize_t)sizeof *ret_hello ||
        ret_hello->n > JAIL_PROTECTIONS_MAX) {
        return err_set(err, ERR_UNAVAILABLE, "the jailer did not start; its reason is in the log");
    }
    *ret_fd = TAKE_FD(ours);
    return 0;
}
