/* From the kernel's first instruction of /init to a root that jobs can run in.
 *
 * The initramfs holds this program, kernel modules and /modules.list, which names them in load
 * order. The first virtio-blk disk is the template (erofs, read-only); an overlay puts a tmpfs
 * above it. The work folder and the temporary folders are folders of the same tmpfs mounted over
 * the overlay: a job's files do not pay for copy-up, and one size limit covers everything that a
 * job can write to. Nothing of the agent's (initramfs, channel, cgroup control files, disk) is
 * visible below the new root. */
#pragma once
#include "common/base/err.h"
#include "guest/refusals.h"

#define BOOT_WORK_DIR "/work"
#define BOOT_UID 1000u

struct boot {
    int port_fd;   /* the channel, non-blocking; owned by the caller from here on */
    int cgroup_fd; /* folder of the cgroup2 root, not reachable by path for anybody else */
    int work_fd;   /* BOOT_WORK_DIR */
    struct refusals refusals;
    struct err refusals_err; /* code 0: all kinds are counted */
};

/* PID 1 only, once. On an error the machine is of no use: the caller logs it and powers off. */
MUST_CHECK int boot_machine(struct boot *ret_boot, struct err *err);
/* Write text into an existing file; -ERR_SYS. */
MUST_CHECK int boot_write(const char *path, const char *text, struct err *err);
