#include "guest/disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "guest/boot.h"

#define DISK_MAX_BYTES ((uint64_t)1 << 40)
#define PAGE_BYTES 4096u

static int used(uint64_t *ret_used, bool *ret_full)
{
    struct statvfs st;
    if (statvfs(BOOT_WORK_DIR, &st) < 0) {
        return -1;
    }
    *ret_used = (uint64_t)(st.f_blocks - st.f_bfree) * st.f_bsize;
    *ret_full = st.f_bfree == 0 || st.f_ffree == 0;
    return 0;
}

int disk_init(struct disk *d, struct err *err)
{
    bool full;
    *d = (struct disk){ 0 };
    return used(&d->base_bytes, &full) < 0 ? err_sys(err, "statfs") : 0;
}

int disk_limit(struct disk *d, uint64_t limit_bytes, struct err *err)
{
    if (limit_bytes == 0 || limit_bytes > DISK_MAX_BYTES) {
        return 0;
    }
    uint64_t size = (d->base_bytes + limit_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (size == d->size_bytes) {
        return 0;
    }
    char options[48];
    (void)snprintf(options, sizeof options, "size=%" PRIu64, size);
    if (mount("tmpfs", BOOT_WORK_DIR, NULL, MS_REMOUNT | MS_NOATIME | MS_NOSUID | MS_NODEV,
              options) < 0) {
        if (errno == EINVAL) {
            return err_set(err, ERR_TOO_LARGE, "the job's files are larger than its disk limit");
        }
        return err_sys(err, "size of the writable layer");
    }
    d->size_bytes = size;
    return 0;
}

void disk_used(const struct disk *d, uint64_t *ret_used_bytes, bool *ret_full)
{
    uint64_t now = 0;
    bool full = false;
    (void)used(&now, &full);
    *ret_used_bytes = now > d->base_bytes ? now - d->base_bytes : 0;
    *ret_full = full;
}
