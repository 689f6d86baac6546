#include "guest/cell.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "guest/boot.h"

#define SPACES (CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) /* joined by a child */
#define KMSG_BYTES_MAX 2048u
#define KMSG_SERIOUS 3 /* KERN_ERR and worse; a program's segmentation fault is KERN_INFO */
#define KMSG_LEVELS 8  /* below the facility, in the number that a record begins with */
#define KMSG_READS_MAX 256
#define LAYER_SIZE "75%" /* until the run's limit is known; as the machine's own at boot */

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

void cell_init_none(struct cell *c, int base_fd)
{
    *c = (struct cell){ .pidfd = -1,
                        .layer_fd = -1,
                        .work_fd = -1,
                        .net_fd = -1,
                        .sockstat_fd = -1,
                        .kmsg_fd = -1,
                        .own_pid_fd = -1,
                        .mounts_fd = -1,
                        .cell_mounts_fd = -1,
                        .base_fd = base_fd };
}

/* ---- trouble ---- */

__attribute__((format(printf, 2, 3))) static void trouble(struct cell *c, const char *fmt, ...)
{
    if (c->trouble[0]) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->trouble, sizeof c->trouble, fmt, ap);
    va_end(ap);
}

/* The mount table of the process (a number, or "self"). The kernel counts what is done to it:
 * mounts_changed() is true once something was since this was opened, also when it was undone. */
static int open_mounts(const char *who, struct err *err)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/%s/mountinfo", who);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "%s", path) : fd;
}

static bool mounts_changed(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLPRI };
    return fd < 0 || poll(&p, 1, 0) != 0; /* not looked at: not known to be the same */
}

static void look_at_kernel(struct cell *c)
{
    char record[KMSG_BYTES_MAX];
    for (int i = 0; i < KMSG_READS_MAX; i++) {
        ssize_t n = read(c->kmsg_fd, record, sizeof record - 1);
        if (n < 0 && errno == EPIPE) {
            continue; /* overwritten before it was read: many have come */
        }
        if (n <= 0) {
            return;
        }
        record[n] = '\0';
        if (strtoul(record, NULL, 10) % KMSG_LEVELS <= KMSG_SERIOUS) {
            const char *text = strchr(record, ';');
            trouble(c, "kernel: %.*s", (int)strcspn(text ? text + 1 : "", "\n"),
                    text ? text + 1 : "");
        }
    }
    trouble(c, "kernel: more than %d messages", KMSG_READS_MAX);
}

static void look_at_layer(struct cell *c)
{
    struct statvfs st;
    if (fstatvfs(c->base_fd, &st) < 0 || st.f_bfree != c->base_free_blocks ||
        st.f_ffree != c->base_free_files) {
        trouble(c, "something was written outside the job's own layer");
    }
}

static void look_at_children(struct cell *c, pid_t warm_pid)
{
    char text[128];
    cleanup_close int fd = open("/proc/1/task/1/children", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    char *rest = text;
    long first = strtol(text, &rest, 10);
    if (n < 0 || first != warm_pid || strspn(rest, " ") != strlen(rest)) {
        trouble(c, "processes are left: %.60s", text);
    }
}

/* A namespace in which a socket is left (a connection in TIME_WAIT) is not given to another job. */
static void look_at_network(struct cell *c)
{
    char now[CELL_STAT_MAX];
    ssize_t n = pread(c->sockstat_fd, now, sizeof now - 1, 0);
    now[n > 0 ? n : 0] = '\0';
    if (n <= 0 || strcmp(now, c->sockstat) != 0) {
        close_fd(&c->sockstat_fd);
        close_fd(&c->net_fd);
    }
}

/* ---- the machine becomes a shared one ---- */

static int open_kmsg(struct cell *c, struct err *err)
{
    static const char path[] = "/dev/.kmsg"; /* no node of it is left for jobs */
    if (mknod(path, S_IFCHR | 0400, makedev(1, 11)) == 0) {
        c->kmsg_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        (void)unlink(path);
    }
    return c->kmsg_fd < 0 || lseek(c->kmsg_fd, 0, SEEK_END) < 0 ? err_sys(err, "kernel's messages")
                                                                : 0;
}

static int share_machine(struct cell *c, struct err *err)
{
    struct statvfs st;
    int rc = boot_write("/proc/sys/user/max_user_namespaces", "0", err);
    rc = rc ? rc : open_kmsg(c, err);
    rc = rc ? rc : cell_filter_install(err);
    if (rc < 0) {
        return rc;
    }
    c->mounts_fd = open_mounts("self", err);
    if (c->mounts_fd < 0) {
        return c->mounts_fd;
    }
    c->own_pid_fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (c->own_pid_fd < 0 || fstatvfs(c->base_fd, &st) < 0) {
        return err_sys(err, "shared machine");
    }
    c->base_free_blocks = st.f_bfree;
    c->base_free_files = st.f_ffree;
    c->shared = true;
    return 0;
}

/* ---- a cell's life ---- */

static int make_tmpfs(const char *mode, const char *size, unsigned attributes, struct err *err)
{
    cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    int fd = -1;
    if (fs >= 0 && fsconfig(fs, FSCONFIG_SET_STRING, "mode", mode, 0) == 0 &&
        (!size || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) == 0) &&
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0) {
        fd = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
    }
    return fd < 0 ? err_sys(err, "tmpfs") : fd;
}

static int make_layer(struct cell *c, struct err *err)
{
    static const struct {
        const char *name;
        mode_t mode;
    } dirs[] = { { "work", 0755 }, { "tmp", 01777 }, { "vartmp", 01777 } };
    int fd = make_tmpfs("0755", LAYER_SIZE,
                        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, err);
    if (fd < 0) {
        return fd;
    }
    c->layer_fd = fd;
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) { /* the umask is 0 */
        if (mkdirat(fd, dirs[i].name, dirs[i].mode) < 0) {
            return err_sys(err, "folder of the layer");
        }
    }
    c->work_fd = openat(fd, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->work_fd < 0 || fchownat(c->work_fd, "", BOOT_UID, BOOT_UID, AT_EMPTY_PATH) < 0) {
        return err_sys(err, "work folder of the layer");
    }
    return 0;
}

/* A network namespace that is new is kept, with what its sockets come to while there is none. */
static int keep_network(struct cell *c, struct err *err)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)c->init);
    c->net_fd = open(path, O_RDONLY | O_CLOEXEC);
    (void)snprintf(path, sizeof path, "/proc/%d/net/sockstat", (int)c->init);
    c->sockstat_fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = c->sockstat_fd < 0 ? -1 : pread(c->sockstat_fd, c->sockstat, CELL_STAT_MAX - 1, 0);
    if (c->net_fd < 0 || n <= 0) {
        return err_sys(err, "network of the cell");
    }
    c->sockstat[n] = '\0';
    return 0;
}

static int start_init(struct cell *c, int shm_fd, struct err *err)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    struct cell_init init = {
        .layer_fd = c->layer_fd, .shm_fd = shm_fd, .net_fd = c->net_fd, .ready_fd = ready[1]
    };
    uint64_t net = c->net_fd < 0 ? CLONE_NEWNET : 0;
    struct clone_args args = { .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
                                        CLONE_PIDFD | net,
                               .pidfd = (uint64_t)(uintptr_t)&c->pidfd,
                               .exit_signal = SIGCHLD };
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        cell_init_main(&init);
    }
    (void)close(ready[1]);
    char byte;
    ssize_t n = pid < 0 ? -1 : read(ready[0], &byte, 1);
    (void)close(ready[0]);
    if (pid < 0) {
        return err_sys(err, "clone3 of a cell");
    }
    (void)fcntl(c->pidfd, F_SETFD, FD_CLOEXEC);
    c->init = pid;
    return n == 1 ? 0 : err_set(err, ERR_INTERNAL, "the cell's init could not set itself up");
}

int cell_make(struct cell *c, struct err *err)
{
    assert(c->init == 0);
    int rc = c->shared ? 0 : share_machine(c, err);
    rc = rc ? rc : make_layer(c, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_close int shm_fd =
        make_tmpfs("1777", "100%", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    rc = shm_fd < 0 ? shm_fd : start_init(c, shm_fd, err);
    if (rc == 0 && c->net_fd < 0) {
        rc = keep_network(c, err);
    }
    if (rc < 0) {
        return rc;
    }
    char who[16];
    (void)snprintf(who, sizeof who, "%d", (int)c->init);
    c->cell_mounts_fd = open_mounts(who, err);
    if (c->cell_mounts_fd < 0) {
        return c->cell_mounts_fd;
    }
    c->made++;
    return 0;
}

void cell_end(struct cell *c, pid_t warm_pid, cell_reaped *reaped, void *ctx)
{
    if (!c->shared) {
        return;
    }
    if (c->init != 0 && mounts_changed(c->cell_mounts_fd)) {
        trouble(c, "the mounts of the job's container have changed");
    }
    while (c->init != 0) {
        (void)kill(c->init, SIGKILL);
        /* Children of ours in the cell (a spare) must be waited for too: its init ends behind them.
         */
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno != EINTR) {
            c->init = 0;
            trouble(c, "the container's init is not there");
        } else if (pid == c->init) {
            c->init = 0;
        } else if (pid > 0) {
            reaped(ctx, pid, status);
        }
    }
    close_fd(&c->pidfd);
    close_fd(&c->cell_mounts_fd);
    close_fd(&c->work_fd);
    close_fd(&c->layer_fd);
    look_at_network(c);
    look_at_kernel(c);
    look_at_layer(c);
    look_at_children(c, warm_pid);
    if (mounts_changed(c->mounts_fd)) {
        trouble(c, "the machine's mounts have changed");
    }
}

void cell_ended(struct cell *c, pid_t pid)
{
    if (c->init != 0 && pid == c->init) {
        c->init = 0;
        trouble(c, "the container's init has ended");
    }
}

int cell_pid_enter(const struct cell *c, struct err *err)
{
    return setns(c->pidfd, CLONE_NEWPID) < 0 ? err_sys(err, "pid namespace of the cell") : 0;
}

void cell_pid_leave(const struct cell *c)
{
    int rc = setns(c->own_pid_fd, CLONE_NEWPID);
    assert(rc == 0);
    (void)rc;
}

int cell_join(const struct cell *c)
{
    return setns(c->pidfd, SPACES);
}
