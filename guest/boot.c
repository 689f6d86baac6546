#include "guest/boot.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define PORT_NAME "brood.agent"
#define DEVICE_WAIT_MS 10
#define DEVICE_WAITS_MAX 500 /* 5 s; a device is there as soon as its module is loaded */
#define MODULES_LIST_MAX 4096u
#define OPEN_FILES_MAX 1048576u /* ceiling of what a run may be given */

int boot_write(const char *path, const char *text, struct err *err)
{
    cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        return err_sys(err, "write %s", path);
    }
    return 0;
}

static int make_dir(const char *path, mode_t mode, struct err *err)
{
    if ((mkdir(path, mode) < 0 && errno != EEXIST) || chmod(path, mode) < 0) {
        return err_sys(err, "mkdir %s", path);
    }
    return 0;
}

struct mount_row {
    const char *source, *target, *type;
    unsigned long flags;
    const char *options;
    mode_t mode; /* of the target, made when it is missing; 0: it is there */
};

static int mount_all(const struct mount_row *rows, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct mount_row *r = &rows[i];
        int rc = r->mode ? make_dir(r->target, r->mode, err) : 0;
        if (rc < 0) {
            return rc;
        }
        if (mount(r->source, r->target, r->type, r->flags, r->options) < 0) {
            return err_sys(err, "mount %s on %s", r->source, r->target);
        }
    }
    return 0;
}

static int load_modules(struct err *err)
{
    char list[MODULES_LIST_MAX];
    cleanup_close int fd = open("/modules.list", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, list, sizeof list - 1);
    if (n < 0) {
        return err_sys(err, "/modules.list");
    }
    list[n] = '\0';
    char *save = NULL;
    for (char *path = strtok_r(list, "\n", &save); path; path = strtok_r(NULL, "\n", &save)) {
        cleanup_close int module = open(path, O_RDONLY | O_CLOEXEC);
        if (module < 0 || (syscall(SYS_finit_module, module, "", 0) < 0 && errno != EEXIST)) {
            return err_sys(err, "module %s", path);
        }
        (void)unlink(path); /* the initramfs lives in memory */
    }
    return 0;
}

/* The character device of the port called PORT_NAME, or -1 while there is none. */
static int find_port(void)
{
    DIR *dir = opendir("/sys/class/virtio-ports");
    if (!dir) {
        return -1;
    }
    int found = -1;
    for (struct dirent *e; found < 0 && (e = readdir(dir));) {
        char path[128], name[64];
        if (e->d_name[0] == '.' || snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name",
                                            e->d_name) >= (int)sizeof path) {
            continue;
        }
        cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof name - 1);
        if (n == (ssize_t)sizeof PORT_NAME && memcmp(name, PORT_NAME "\n", (size_t)n) == 0) {
            (void)snprintf(path, sizeof path, "/dev/%s", e->d_name);
            found = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        }
    }
    (void)closedir(dir);
    return found;
}

static int wait_for_devices(struct boot *boot, struct err *err)
{
    for (int i = 0; i < DEVICE_WAITS_MAX; i++) {
        boot->port_fd = boot->port_fd < 0 ? find_port() : boot->port_fd;
        if (boot->port_fd >= 0 && access("/dev/vda", F_OK) == 0) {
            return 0;
        }
        sleep_ms(DEVICE_WAIT_MS);
    }
    return err_set(err, ERR_NOT_FOUND, "no %s",
                   boot->port_fd < 0 ? "virtio-serial port " PORT_NAME : "disk /dev/vda");
}

static int make_nodes(struct err *err)
{
    static const struct {
        const char *path;
        unsigned minor;
    } nodes[] = { { "/root/dev/null", 3 },
                  { "/root/dev/zero", 5 },
                  { "/root/dev/full", 7 },
                  { "/root/dev/random", 8 },
                  { "/root/dev/urandom", 9 } };
    static const char *const links[][2] = { { "/proc/self/fd", "/root/dev/fd" },
                                            { "/proc/self/fd/0", "/root/dev/stdin" },
                                            { "/proc/self/fd/1", "/root/dev/stdout" },
                                            { "/proc/self/fd/2", "/root/dev/stderr" },
                                            { "pts/ptmx", "/root/dev/ptmx" } };
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        if (mknod(nodes[i].path, S_IFCHR | 0666, makedev(1, nodes[i].minor)) < 0) {
            return err_sys(err, "mknod %s", nodes[i].path);
        }
    }
    if (mknod("/root/dev/tty", S_IFCHR | 0666, makedev(5, 0)) < 0) {
        return err_sys(err, "mknod tty");
    }
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        if (symlink(links[i][0], links[i][1]) < 0) {
            return err_sys(err, "symlink %s", links[i][1]);
        }
    }
    return 0;
}

static int mount_root(struct err *err)
{
    static const struct mount_row layers[] = {
        { "/dev/vda", "/lower", "erofs", MS_RDONLY | MS_NOATIME, NULL, 0755 },
        { "tmpfs", "/rw", "tmpfs", MS_NOATIME | MS_NOSUID | MS_NODEV, "mode=0755,size=75%", 0755 },
    };
    int rc = mount_all(layers, sizeof layers / sizeof layers[0], err);
    static const struct {
        const char *path;
        mode_t mode;
    } dirs[] = { { "/rw/upper", 0755 }, { "/rw/overlay", 0755 }, { "/rw/work", 0755 },
                 { "/rw/tmp", 01777 },  { "/rw/vartmp", 01777 }, { "/root", 0755 } };
    for (size_t i = 0; rc == 0 && i < sizeof dirs / sizeof dirs[0]; i++) {
        rc = make_dir(dirs[i].path, dirs[i].mode, err);
    }
    if (rc == 0 && chown("/rw/work", BOOT_UID, BOOT_UID) < 0) {
        rc = err_sys(err, "chown /rw/work");
    }
    static const struct mount_row root[] = {
        { "overlay", "/root", "overlay", MS_NOATIME | MS_NOSUID | MS_NODEV,
          "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/overlay", 0 },
        { "/rw/work", "/root/work", NULL, MS_BIND, NULL, 0755 },
        { "/rw/tmp", "/root/tmp", NULL, MS_BIND, NULL, 01777 },
        { "/rw/vartmp", "/root/var/tmp", NULL, MS_BIND, NULL, 01777 },
        { "proc", "/root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0555 },
        { "sysfs", "/root/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0555 },
        { "cgroup2", "/root/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0 },
        { NULL, "/root/sys/fs/cgroup", NULL,
          MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0 },
        { "tmpfs", "/root/dev", "tmpfs", MS_NOSUID, "mode=0755,size=64k", 0755 },
        { "devpts", "/root/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
          "newinstance,ptmxmode=0666,mode=0620,gid=5", 0755 },
        { "tmpfs", "/root/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV,
          "mode=1777,size=100%,nr_inodes=0", 01777 }, /* its limit is the run's memory */
        { "tmpfs", "/root/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m", 0755 },
    };
    rc = rc ? rc : mount_all(root, sizeof root / sizeof root[0], err);
    return rc ? rc : make_nodes(err);
}

static int switch_root(struct err *err)
{
    (void)unlink("/init");
    (void)unlink("/modules.list");
    if (chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0) {
        return err_sys(err, "switch root");
    }
    return 0;
}

static int set_up_kernel(struct err *err)
{
    static const char *const settings[][2] = {
        { "/proc/sys/vm/overcommit_memory", "1" }, /* the cgroup is the limit, not address space */
        { "/proc/sys/kernel/printk", "1" }, /* a line on the serial console costs milliseconds */
        { "/proc/sys/kernel/dmesg_restrict", "1" }, { "/proc/sys/fs/suid_dumpable", "0" },
        { "/proc/1/oom_score_adj", "-1000" },
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        int rc = boot_write(settings[i][0], settings[i][1], err);
        if (rc < 0) {
            return rc;
        }
    }
    struct rlimit files = { OPEN_FILES_MAX, OPEN_FILES_MAX };
    struct rlimit stack = { 8u << 20, RLIM_INFINITY };
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_STACK, &stack) < 0) {
        return err_sys(err, "setrlimit");
    }
    cleanup_close int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    if (sock < 0 || ioctl(sock, SIOCSIFFLAGS, &lo) < 0) {
        return err_sys(err, "loopback up");
    }
    return 0;
}

int boot_machine(struct boot *ret_boot, struct err *err)
{
    struct boot boot = { .port_fd = -1, .cgroup_fd = -1, .work_fd = -1 };
    static const struct mount_row early[] = {
        { "devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL, 0755 },
        { "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0555 },
        { "sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0555 },
        { "cgroup2", "/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, 0555 },
    };
    (void)umask(0);
    int rc = mount_all(early, sizeof early / sizeof early[0], err);
    rc = rc ? rc : boot_write("/cgroup/cgroup.subtree_control", "+memory +pids +cpu", err);
    rc = rc ? rc : load_modules(err);
    rc = rc ? rc : wait_for_devices(&boot, err);
    rc = rc ? rc : mount_root(err);
    if (rc == 0) {
        boot.cgroup_fd = open("/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
        rc = boot.cgroup_fd < 0 ? err_sys(err, "open /cgroup") : 0;
    }
    if (rc == 0 && refusals_init(&boot.refusals, &boot.refusals_err) < 0) {
        assert(boot.refusals_err.code != 0); /* jobs run without it; the caller says so */
    }
    rc = rc ? rc : switch_root(err);
    rc = rc ? rc : set_up_kernel(err);
    if (rc == 0) {
        boot.work_fd = open(BOOT_WORK_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
        rc = boot.work_fd < 0 ? err_sys(err, "open " BOOT_WORK_DIR) : 0;
    }
    if (rc == 0) {
        *ret_boot = boot;
    }
    return rc;
}
