#include "guest/disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "common/base/cleanup.h"
#include "guest/boot.h"

#define DISK_MAX_BYTES ((uint64_t)1 << 40)
#define DISK_FILES_MAX ((uint64_t)1 << 24)
#define PAGE_BYTES 4096u

static int used(const struct disk *d, uint64_t *ret_bytes, uint64_t *ret_files, bool *ret_full)
{
    struct statvfs st;
    if (d->layer_fd >= 0 ? fstatvfs(d->layer_fd, &st) < 0 : statvfs(BOOT_WORK_DIR, &st) < 0) {
        return -1;
    }
    *ret_bytes = (uint64_t)(st.f_blocks - st.f_bfree) * st.f_bsize;
    *ret_files = st.f_files - st.f_ffree;
    *ret_full = st.f_bfree == 0;
    return 0;
}

int disk_init(struct disk *d, struct err *err)
{
    bool full;
    *d = (struct disk){ .layer_fd = -1 };
    return used(d, &d->base_bytes, &d->base_files, &full) < 0 ? err_sys(err, "statfs") : 0;
}

void disk_run_ended(struct disk *d)
{
    bool full;
    (void)used(d, &d->given_bytes, &d->given_files, &full);
}

void disk_settle(struct disk *d)
{
    bool full;
    uint64_t bytes, files;
    if (used(d, &bytes, &files, &full) == 0) {
        d->base_bytes = bytes;
        d->base_files = files;
    }
    d->given_bytes = d->given_files = 0;
}

int disk_use_layer(struct disk *d, int layer_fd, struct err *err)
{
    bool full;
    *d = (struct disk){ .layer_fd = layer_fd };
    return used(d, &d->base_bytes, &d->base_files, &full) < 0 ? err_sys(err, "statfs") : 0;
}

static int resize(const struct disk *d, uint64_t size, uint64_t files)
{
    char text[96], inodes[24];
    if (d->layer_fd < 0) {
        (void)snprintf(text, sizeof text, "size=%" PRIu64 ",nr_inodes=%" PRIu64, size, files);
        return mount("tmpfs", BOOT_WORK_DIR, NULL, MS_REMOUNT | MS_NOATIME | MS_NOSUID | MS_NODEV,
                     text);
    }
    (void)snprintf(text, sizeof text, "%" PRIu64, size);
    (void)snprintf(inodes, sizeof inodes, "%" PRIu64, files);
    cleanup_close int fs = fspick(d->layer_fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
    return fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", text, 0) < 0 ||
                   fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) < 0 ||
                   fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0
               ? -1
               : 0;
}

int disk_limit(struct disk *d, uint64_t limit_bytes, uint64_t limit_files, struct err *err)
{
    if (limit_bytes == 0 || limit_bytes > DISK_MAX_BYTES) {
        return 0;
    }
    if (limit_files == 0 || limit_files > DISK_FILES_MAX) {
        limit_files = DISK_FILES_MAX;
    }
    uint64_t size = (d->base_bytes + limit_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint64_t files = d->base_files + limit_files;
    bool given = d->given_bytes > size || d->given_files > files;
    if (given) {
        uint64_t now_bytes, now_files;
        bool full;
        if (used(d, &now_bytes, &now_files, &full) < 0) {
            return err_sys(err, "statfs");
        }
        size = now_bytes > size ? now_bytes : size;
        files = now_files > files ? now_files : files;
    }
    d->given = given;
    if (size == d->size_bytes && files == d->size_files) {
        return 0;
    }
    if (resize(d, size, files) < 0) {
        if (errno == EINVAL) {
            return err_set(err, ERR_TOO_LARGE,
                           "the job's files are larger, or more, than its disk limits");
        }
        return err_sys(err, "size of the writable layer");
    }
    d->size_bytes = size;
    d->size_files = files;
    return 0;
}

void disk_used(const struct disk *d, uint64_t *ret_bytes, uint64_t *ret_files, bool *ret_full)
{
    uint64_t bytes = 0, files = 0;
    bool full = false;
    (void)used(d, &bytes, &files, &full);
    *ret_bytes = bytes > d->base_bytes ? bytes - d->base_bytes : 0;
    *ret_files = files > d->base_files ? files - d->base_files : 0;
    *ret_full = full && !d->given;
}
