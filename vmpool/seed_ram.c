#include "vmpool/seed_ram.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmpool/seed_wire.h"

#define RAM_FD 3
#define PAGE_BYTES 4096u
#define DUMP_PAGES 512u
/* Documentation/admin-guide/mm/pagemap.rst: present or swapped out; file page or shared */
#define PAGEMAP_THERE (3ull << 62)
#define PAGEMAP_OF_FILE (1ull << 61)

static struct stat ram_file; /* st_ino 0: not known */
static char *ram_at;
static size_t ram_bytes;

void seed_ram_init(void)
{
    if (fstat(RAM_FD, &ram_file) < 0) {
        ram_file.st_ino = 0;
    }
}

/* ---- how QEMU maps it ---- */

/* QEMU keeps guest RAM from being inherited by fork (it only knows forks that exec); a copy needs
 * it. */
int madvise(void *at, size_t len, int advice)
{
    if (advice == MADV_DONTFORK) {
        return 0;
    }
    return (int)syscall(SYS_madvise, at, len, advice);
}

/* See seed_ram.h. QEMU opens RAM_FD's file anew, so it is known by its inode. */
void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t offset)
{
    struct stat st;
    bool ram = fd >= 0 && ram_file.st_ino != 0 && (flags & MAP_TYPE) == MAP_SHARED &&
               fstat(fd, &st) == 0 && st.st_ino == ram_file.st_ino && st.st_dev == ram_file.st_dev;
    if (ram) {
        flags = (flags & ~MAP_TYPE) | MAP_PRIVATE;
    }
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the system call's own type */
    void *got = (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
    if (ram && got != MAP_FAILED && offset == 0) {
        ram_at = got;
        ram_bytes = len;
    }
    return got;
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    return mmap64(at, len, prot, flags, fd, offset);
}

/* ---- what the guest has written ---- */

static bool write_at(int fd, const char *data, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t w = pwrite(fd, data, n, (off_t)at);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w <= 0) {
            return false;
        }
        data += w;
        at += (uint64_t)w;
        n -= (size_t)w;
    }
    return true;
}

const char *seed_ram_dump(int fd, int given)
{
    static uint64_t words[DUMP_PAGES];
    static uint8_t bits[DUMP_PAGES / 8];
    int pagemap = given >= 0 ? given : open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const char *why = pagemap < 0 ? "no /proc/self/pagemap" : !ram_at ? "RAM is not known" : NULL;
    for (size_t at = 0; !why && at < ram_bytes; at += DUMP_PAGES * PAGE_BYTES) {
        size_t pages = (ram_bytes - at) / PAGE_BYTES;
        pages = pages < DUMP_PAGES ? pages : DUMP_PAGES;
        off_t from = (off_t)(((uintptr_t)ram_at + at) / PAGE_BYTES * sizeof words[0]);
        if (pread(pagemap, words, pages * sizeof words[0], from) !=
            (ssize_t)(pages * sizeof words[0])) {
            why = "pagemap cannot be read";
            break;
        }
        memset(bits, 0, sizeof bits);
        for (size_t i = 0; i < pages && !why;) {
            size_t end = i;
            while (end < pages && words[end] & PAGEMAP_THERE && !(words[end] & PAGEMAP_OF_FILE)) {
                bits[end / 8] |= (uint8_t)(1u << end % 8);
                end++;
            }
            if (end > i && !write_at(fd, ram_at + at + i * PAGE_BYTES, (end - i) * PAGE_BYTES,
                                     at + i * PAGE_BYTES)) {
                why = "the file of pages cannot be written";
            }
            i = end + 1;
        }
        if (!why && !write_at(fd, (const char *)bits, (pages + 7) / 8,
                              SEED_DUMP_MAP(ram_bytes) + at / PAGE_BYTES / 8)) {
            why = "the file of pages cannot be written";
        }
    }
    if (pagemap >= 0) {
        (void)close(pagemap);
    }
    return why;
}
