#include "vmpool/seed_ram.h"

#include <errno.h>
#include <fcntl.h>
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

#define RUNS_MAX 16384u /* a mapping each, and one between two: vm.max_map_count is 65530 */
#define RUN_PAGES_MAX 64u
#define WORD_PAGES 64u

static struct stat ram_file; /* st_ino 0: not known */
static char *ram_at;
static size_t ram_bytes;
static int layers[SEED_LAYERS_MAX];
static int n_layers;

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

bool seed_ram_layers(const int *fds, int n)
{
    for (int i = 0; i < n; i++) {
        layers[i] = fds[i];
    }
    n_layers = n;
    return ram_file.st_ino != 0;
}

/* A run of pages that one layer is the newest to have. */
struct run {
    size_t page, count;
    int layer;
};

struct maps {
    const uint64_t *of[SEED_LAYERS_MAX]; /* a bit a page */
    size_t bytes, pages;
};

static int newest(const struct maps *m, size_t page)
{
    for (int i = n_layers - 1; i >= 0; i--) {
        if (m->of[i][page / WORD_PAGES] >> page % WORD_PAGES & 1) {
            return i;
        }
    }
    return -1;
}

/* The first run at or after page. */
static bool next_run(const struct maps *m, size_t page, struct run *ret)
{
    while (page < m->pages) {
        uint64_t any = 0;
        for (int i = 0; i < n_layers; i++) {
            any |= m->of[i][page / WORD_PAGES];
        }
        any >>= page % WORD_PAGES;
        if (any == 0) {
            page += WORD_PAGES - page % WORD_PAGES;
            continue;
        }
        page += (size_t)__builtin_ctzll(any);
        *ret = (struct run){ page, 1, newest(m, page) };
        while (page + ret->count < m->pages && newest(m, page + ret->count) == ret->layer) {
            ret->count++;
        }
        return true;
    }
    return false;
}

/* Runs of no more than so many pages are copied, since there would be too many mappings. */
static size_t copied_pages(const struct maps *m)
{
    static size_t of_length[RUN_PAGES_MAX + 1];
    struct run r;
    size_t n = 0, up_to = 0;
    for (size_t page = 0; next_run(m, page, &r); page = r.page + r.count) {
        of_length[r.count < RUN_PAGES_MAX ? r.count : RUN_PAGES_MAX]++;
        n++;
    }
    while (n > RUNS_MAX && up_to < RUN_PAGES_MAX) {
        n -= of_length[++up_to];
    }
    return up_to;
}

static bool read_at(int fd, char *to, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t r = pread(fd, to, n, (off_t)at);
        if (r < 0 && errno == EINTR) {
            continue;
        }
        if (r <= 0) {
            return false;
        }
        to += r;
        at += (uint64_t)r;
        n -= (size_t)r;
    }
    return true;
}

static bool lay_run(const struct run *r, size_t copied, char *ram, int prot, int flags)
{
    char *at = ram + r->page * PAGE_BYTES;
    size_t len = r->count * PAGE_BYTES;
    off_t offset = (off_t)(r->page * PAGE_BYTES);
    if (r->count <= copied) {
        return read_at(layers[r->layer], at, len, (uint64_t)offset);
    }
    return (void *)syscall(SYS_mmap, at, len, prot, flags | MAP_FIXED, layers[r->layer], offset) ==
           at;
}

/* Map the layers over RAM as it is mapped already. */
static bool lay(char *ram, size_t len, int prot, int flags)
{
    struct maps m = { .pages = len / PAGE_BYTES,
                      .bytes = (len / PAGE_BYTES / 8 + WORD_PAGES / 8 - 1) / (WORD_PAGES / 8) *
                               (WORD_PAGES / 8) };
    struct run r;
    bool ok = true;
    for (int i = 0; i < n_layers && ok; i++) {
        void *map = (void *)syscall(SYS_mmap, NULL, m.bytes, PROT_READ, MAP_PRIVATE, layers[i],
                                    SEED_DUMP_MAP(len));
        ok = map != MAP_FAILED;
        m.of[i] = ok ? map : NULL;
    }
    size_t copied = ok ? copied_pages(&m) : 0;
    for (size_t page = 0; ok && next_run(&m, page, &r); page = r.page + r.count) {
        ok = lay_run(&r, copied, ram, prot, flags);
    }
    for (int i = 0; i < n_layers; i++) {
        if (m.of[i]) {
            (void)munmap((void *)(uintptr_t)m.of[i], m.bytes);
        }
        (void)close(layers[i]);
    }
    n_layers = 0;
    return ok;
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
        if (n_layers > 0 && !lay(ram_at, len, prot, flags)) {
            (void)munmap(got, len);
            errno = ENOMEM;
            return MAP_FAILED;
        }
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
