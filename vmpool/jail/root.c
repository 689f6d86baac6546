/* In a chroot no mount of the tree can be made private and nothing can be pivoted, because the
 * chroot's folder is no mount point. Joining one's own mount namespace again sets the root to the
 * namespace's (namespaces/mntns_install in the kernel), so the jailer leaves the chroot that way;
 * what it takes along it has opened before, as clones of the mounts that the chroot shows. */
#include "vmpool/jail/root.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"

struct source {
    const char *host, *inside;
    bool folder, needed;
    int tree;
};

static const char *const folders[] = {
    "usr",       "usr/bin",   "usr/lib",        "usr/lib/x86_64-linux-gnu",
    "usr/lib64", "usr/share", "usr/share/qemu", "usr/share/seabios",
    "proc",      "dev"
};
static const char *const points[] = { "/tmp", "/mnt", "/run", "/srv" };

static int clone_sources(struct source *sources, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        struct source *s = &sources[i];
        s->tree = *s->host ? open_tree(AT_FDCWD, s->host, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC) : -1;
        if (s->tree < 0 && s->needed) {
            return err_sys(err, "open_tree %s", s->host);
        }
        struct mount_attr attr = { .attr_set =
                                       MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
        if (s->tree >= 0 && mount_setattr(s->tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0) {
            return err_sys(err, "mount_setattr %s", s->host);
        }
    }
    return 0;
}

/* A namespace of our own with nothing shared, and its root as ours. */
static int leave(struct err *err)
{
    cleanup_close int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0 || setns(self, CLONE_NEWNS) < 0) {
        return err_sys(err, "setns to the own mount namespace");
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return err_sys(err, "mount --make-rprivate /");
    }
    return 0;
}

/* A mount of an empty tmpfs that is not attached yet. */
static int new_tmpfs(unsigned attributes, struct err *err)
{
    cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        return err_sys(err, "tmpfs");
    }
    int mounted = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
    return mounted < 0 ? err_sys(err, "fsmount") : mounted;
}

/* A tmpfs somewhere: where is hidden by it, in our namespace only. */
static int make_tmpfs(struct err *err)
{
    cleanup_close int root = new_tmpfs(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    if (root < 0) {
        return root;
    }
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        if (move_mount(root, "", AT_FDCWD, points[i], MOVE_MOUNT_F_EMPTY_PATH) == 0) {
            return TAKE_FD(root);
        }
    }
    return err_sys(err, "move_mount");
}

/* A node of our own, that every machine may open, whatever the host's says: the host's belongs to a
 * group that machines are not in, or to root alone. */
static int make_kvm(int root, dev_t kvm, struct err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
    cleanup_close int dev = new_tmpfs(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
    if (dev < 0) {
        return dev;
    }
    if (move_mount(dev, "", root, "dev", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        mknodat(dev, "kvm", S_IFCHR | 0666, kvm) < 0 || fchmodat(dev, "kvm", 0666, 0) < 0 ||
        mount_setattr(dev, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0) {
        return err_sys(err, "/dev/kvm");
    }
    return 0;
}

static int fill(int root, struct source *sources, size_t n, struct err *err)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (mkdirat(root, folders[i], 0755) < 0) {
            return err_sys(err, "mkdir %s", folders[i]);
        }
    }
    if (symlinkat("usr/lib", root, "lib") < 0 || symlinkat("usr/lib64", root, "lib64") < 0) {
        return err_sys(err, "symlink");
    }
    for (size_t i = 0; i < n; i++) {
        const struct source *s = &sources[i];
        if (s->tree < 0) {
            continue;
        }
        if (!s->folder) {
            cleanup_close int file =
                openat(root, s->inside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
            if (file < 0) {
                return err_sys(err, "%s", s->inside);
            }
        }
        if (move_mount(s->tree, "", root, s->inside, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
            return err_sys(err, "mount %s", s->inside);
        }
    }
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
    return mount_setattr(root, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0
               ? err_sys(err, "mount_setattr")
               : 0;
}

int jail_root_make(const char *qemu, const char *preload, bool kvm, int *ret_root, struct err *err)
{
    struct source sources[] = {
        { "/usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", true, true, -1 },
        { "/usr/lib64", "usr/lib64", true, true, -1 },
        { "/usr/share/qemu", "usr/share/qemu", true, false, -1 },
        { "/usr/share/seabios", "usr/share/seabios", true, false, -1 },
        { qemu, &JAIL_QEMU_PATH[1], false, true, -1 },
        { preload, &JAIL_PRELOAD_PATH[1], false, *preload != 0, -1 },
    };
    const size_t n = sizeof sources / sizeof sources[0];
    cleanup_close int root = -1;
    struct stat node = { 0 };
    if (kvm && stat("/dev/kvm", &node) < 0) {
        return err_sys(err, "/dev/kvm");
    }
    if (unshare(CLONE_NEWNS) < 0) {
        return err_sys(err, "unshare the mount namespace");
    }
    int rc = clone_sources(sources, n, err);
    rc = rc < 0 ? rc : leave(err);
    rc = rc < 0 ? rc : (root = make_tmpfs(err));
    rc = rc < 0 ? rc : fill(root, sources, n, err);
    rc = rc == 0 && kvm ? make_kvm(root, node.st_rdev, err) : rc;
    for (size_t i = 0; i < n; i++) {
        if (sources[i].tree >= 0) {
            (void)close(sources[i].tree);
        }
    }
    /* A child's copy of the namespace has other mounts, which no descriptor of ours means; but its
     * working folder is moved along. */
    if (rc == 0 && fchdir(root) < 0) {
        rc = err_sys(err, "chdir");
    }
    if (rc == 0) {
        *ret_root = TAKE_FD(root);
    }
    return rc;
}

int jail_root_enter(struct err *err)
{
    /* subset=pid: processes only; hidepid: a user sees its own */
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "hidepid=invisible,subset=pid") < 0) {
        return err_sys(err, "mount /proc");
    }
    if (syscall(SYS_pivot_root, ".", ".") == 0) {
        if (umount2(".", MNT_DETACH) < 0) {
            return err_sys(err, "umount the old root");
        }
    } else if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0) {
        /* on an initramfs nothing can be pivoted: what lies below stays, out of reach */
        return err_sys(err, "pivot_root");
    }
    return chdir("/") < 0 ? err_sys(err, "chdir /") : 0;
}
