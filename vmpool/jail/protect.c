/* Required everywhere is what needs no more than the right to change users: a user of its own, no
 * capabilities, no new privileges, our system call filter, limits. Namespaces and the root need
 * CAP_SYS_ADMIN. Who has it gets them or is refused; who lacks it (a container that was started
 * without) is inside a boundary of somebody else's making, is told so, and goes on. Cgroups are the
 * host's to give: without them the limits of a process hold (address space, processes). */
#include "vmpool/jail/protect.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/jail/root.h"

static const struct {
    unsigned flag;
    const char *name;
} spaces[] = {
    { CLONE_NEWNS, "mount namespace" }, { CLONE_NEWPID, "pid namespace" },
    { CLONE_NEWIPC, "ipc namespace" },  { CLONE_NEWUTS, "uts namespace" },
    { CLONE_NEWNET, "network, empty" },
};

static void add(struct jail_hello *h, const char *name, bool holds, bool required, const char *why)
{
    assert(h->n < JAIL_PROTECTIONS_MAX);
    struct jail_protection *row = &h->rows[h->n++];
    *row = (struct jail_protection){ .holds = holds, .required = required };
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    (void)snprintf(row->why, sizeof row->why, "%s", why);
}

/* Run try in a child with these namespaces; its errno, or that of the clone. */
static int attempt(unsigned flags, int (*try)(const struct jail_host *), const struct jail_host *h)
{
    int status = 0;
    (void)signal(SIGCHLD, SIG_DFL);
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        _exit(try ? try(h) : 0);
    }
    int rc = pid < 0 ? errno : 0;
    if (pid > 0 && (waitpid((pid_t)pid, &status, 0) < 0 || !WIFEXITED(status))) {
        rc = EIO;
    } else if (pid > 0) {
        rc = WEXITSTATUS(status);
    }
    (void)signal(SIGCHLD, SIG_IGN);
    return rc;
}

static int try_root(const struct jail_host *h)
{
    struct err err;
    (void)h;
    return jail_root_enter(&err) == 0 ? 0 : err.saved_errno ? err.saved_errno : EIO;
}

static int try_user(const struct jail_host *h)
{
    struct err err;
    uint64_t keep = 1ull << CAP_SETUID | 1ull << CAP_SETGID;
    return jail_drop(h->uid_first, NULL, 0, keep, &err) == 0 ? 0 : err.saved_errno;
}

static bool may(int cap)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { 0 };
    return syscall(SYS_capget, &head, data) == 0 && data[cap / 32].effective >> cap % 32 & 1;
}

static void find_users(const struct jail_host *host, struct jail_hello *hello)
{
    char why[JAIL_TEXT_MAX];
    uint32_t action = SECCOMP_RET_ERRNO;
    int e = attempt(0, try_user, host);
    (void)snprintf(why, sizeof why, "%u to %u, one a machine%s%s", host->uid_first,
                   host->uid_first + 4095, e ? ": " : "", e ? strerror(e) : "");
    add(hello, "user of its own", e == 0, true, why);
    add(hello, "capabilities", e == 0, true, "none; no new privileges");
    bool filter = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
    add(hello, "system calls", filter && *host->preload, true,
        !filter           ? strerror(errno)
        : !*host->preload ? "brood-qemu-seed.so, which holds the filter, is not beside the program"
                          : "own allow-list, and QEMU's -sandbox");
    add(hello, "limits", true, true, "address space, processes, files, file size, no core");
}

void protect_find(struct jail_host *host, bool kvm, struct jail_hello *hello)
{
    bool admin = may(CAP_SYS_ADMIN);
    struct err err;
    char why[JAIL_TEXT_MAX] = "";
    find_users(host, hello);
    unsigned works = 0;
    int failed[sizeof spaces / sizeof spaces[0]];
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        failed[i] = attempt(spaces[i].flag, NULL, host);
        works |= failed[i] ? 0 : spaces[i].flag;
    }
    /* a pid namespace and its /proc go together */
    const unsigned both = CLONE_NEWNS | CLONE_NEWPID;
    if ((works & both) == both) {
        if (jail_root_make(host->qemu, host->preload, kvm, &host->root, &err) < 0) {
            (void)snprintf(why, sizeof why, "%.150s", err.text);
        } else {
            int e = attempt(works, try_root, host);
            if (e) {
                (void)snprintf(why, sizeof why, "entering it: %s", strerror(e));
                (void)close(TAKE_FD(host->root));
            }
        }
    } else {
        (void)snprintf(why, sizeof why, "needs a mount and a pid namespace");
    }
    works &= host->root < 0 ? ~both : ~0u;
    host->spaces = works;
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        bool holds = works & spaces[i].flag;
        add(hello, spaces[i].name, holds, admin,
            holds       ? "its own"
            : failed[i] ? strerror(failed[i])
                        : "of no use without the root");
    }
    add(hello, "root folder", host->root >= 0, admin,
        host->root >= 0 ? "QEMU, its libraries and firmware, read-only" : why);
}

void protect_cgroups(const struct cgroups *c, struct jail_hello *hello)
{
    static const char *const rows[CGROUP_CONTROLLERS] = { "cgroup memory", "cgroup cpu",
                                                          "cgroup pids" };
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        char why[JAIL_TEXT_MAX];
        if (!c->has[i]) {
            (void)snprintf(why, sizeof why,
                           "none that we may make folders in; limits hold instead");
        } else if (i == CGROUP_MEMORY) {
            (void)snprintf(why, sizeof why, "%s: RAM + %u MiB", c->v2 ? "v2" : "v1",
                           CGROUP_OVERHEAD_MIB);
        } else {
            (void)snprintf(why, sizeof why, "%s: %s", c->v2 ? "v2" : "v1",
                           i == CGROUP_CPU ? "vCPUs + 1 processors" : "96 threads");
        }
        add(hello, rows[i], c->has[i], false, why);
    }
}

int protect_self(uint64_t keep)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0) {
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        uint32_t half = (uint32_t)(keep >> 32 * i) & data[i].permitted;
        data[i] = (struct __user_cap_data_struct){ half, half, 0 };
    }
    return (int)syscall(SYS_capset, &head, data);
}

int protect_effective(uint64_t use)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0) {
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        data[i].effective = (uint32_t)(use >> 32 * i) & data[i].permitted;
    }
    return (int)syscall(SYS_capset, &head, data);
}

const struct jail_protection *protect_missing(const struct jail_hello *hello)
{
    for (uint32_t i = 0; i < hello->n; i++) {
        if (hello->rows[i].required && !hello->rows[i].holds) {
            return &hello->rows[i];
        }
    }
    return NULL;
}
