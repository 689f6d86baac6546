/* PID 1 of a cell: mounts the cell's layer in its mount namespace, then does nothing but reap.
 *
 * It is a fork of the agent, without its descriptors; root, undumpable, and protected as the init
 * of its pid namespace: nothing in the cell can signal, trace or read it. When it is killed the
 * kernel ends everything below it. All that was mounted before is read-only in the cell, whatever
 * the template's file modes allow (Debian's /var/lock is everybody's): what can be written to is
 * what is mounted anew here. Nodes in /dev work on a read-only mount. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/cell.h"

static int loopback_up(void)
{
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    int rc = sock < 0 ? -1 : ioctl(sock, SIOCSIFFLAGS, &lo);
    (void)close(sock);
    return rc;
}

static int attach(int mount_fd, const char *where)
{
    return move_mount(mount_fd, "", AT_FDCWD, where, MOVE_MOUNT_F_EMPTY_PATH);
}

static int set_up(const struct cell_init *i)
{
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };
    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only) < 0) {
        return -1;
    }
    if (i->net_fd >= 0 ? setns(i->net_fd, CLONE_NEWNET) < 0 : loopback_up() < 0) {
        return -1;
    }
    /* The layer's folders can only be bound from where it is mounted: /tmp, until its own /tmp
     * comes over it. */
    if (attach(i->layer_fd, "/tmp") < 0 || mount("/tmp/work", "/work", NULL, MS_BIND, NULL) < 0 ||
        mount("/tmp/vartmp", "/var/tmp", NULL, MS_BIND, NULL) < 0 ||
        mount("/tmp/tmp", "/tmp", NULL, MS_BIND, NULL) < 0 || attach(i->shm_fd, "/dev/shm") < 0) {
        return -1;
    }
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620,gid=5") < 0) {
        return -1;
    }
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

_Noreturn void cell_init_main(const struct cell_init *i)
{
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)prctl(PR_SET_NAME, "init");
    int rc = set_up(i);
    if (rc == 0) {
        (void)!write(i->ready_fd, "R", 1);
    }
    (void)syscall(SYS_close_range, 0U, ~0U, 0U);
    sigset_t child; /* blocked since before the fork */
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    while (rc == 0) {
        int sig;
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        (void)sigwait(&child, &sig);
    }
    _exit(1);
}
