#include "vmpool/dump.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/ram.h"
#include "vmpool/seed_wire.h"

#define PAGE_BYTES 4096u
#define CHUNK_PAGES 512u /* of RAM whose pagemap is read at once, and written at once at most */
#define FILES_MAX (1 + MACHINE_LAYERS_MAX)
/* Documentation/admin-guide/mm/pagemap.rst: present or swapped out; file page or shared */
#define PAGEMAP_THERE (3ull << 62)
#define PAGEMAP_OF_FILE (1ull << 61)

int dump_new(uint64_t ram_bytes, int *ret_fd, struct err *err)
{
    uint64_t bytes = SEED_DUMP_MAP(ram_bytes) + (ram_bytes / PAGE_BYTES + 7) / 8;
    cleanup_close int fd = -1;
    int rc = ram_memfd("brood-dump", bytes, &fd, err);
    if (rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0) {
        rc = err_sys(err, "seal a memfd");
    }
    if (rc == 0) {
        *ret_fd = TAKE_FD(fd);
    }
    return rc;
}

int dump_seal(int fd, struct err *err)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) < 0 ? err_sys(err, "seal a memfd")
                                                                  : 0;
}

/* Where RAM begins: whatever is mapped of one of the files lies at its own offset from there. */
static int find_ram(int maps_fd, const int *files, size_t n, uint64_t *ret_at, struct err *err)
{
    struct stat st[FILES_MAX];
    char line[512];
    bool found = false;
    assert(n > 0 && n <= FILES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (fstat(files[i], &st[i]) < 0) {
            return err_sys(err, "fstat");
        }
    }
    int own = fcntl(maps_fd, F_DUPFD_CLOEXEC, 3);
    FILE *maps = own < 0 ? NULL : fdopen(own, "re");
    if (!maps) {
        int rc = err_sys(err, "maps of a machine");
        if (own >= 0) {
            (void)close(own);
        }
        return rc;
    }
    while (!found && fgets(line, sizeof line, maps)) {
        uint64_t from, offset, inode;
        unsigned major, minor;
        if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %x:%x %" SCNu64, &from, &offset, &major,
                   &minor, &inode) != 5) {
            continue;
        }
        for (size_t i = 0; i < n && !found; i++) {
            found =
                inode == st[i].st_ino && makedev(major, minor) == st[i].st_dev && from >= offset;
        }
        if (found) {
            *ret_at = from - offset;
        }
    }
    (void)fclose(maps);
    return found ? 0 : err_set(err, ERR_INTERNAL, "the machine's RAM is not among its mappings");
}

/* Errors of reading a process's memory: it ends, or it was never there. */
static int lost(struct err *err, const char *what)
{
    return err_set(err, ERR_UNAVAILABLE, "%s of the machine cannot be read: it has ended", what);
}

static int copy_run(int mem, uint64_t ram_at, uint64_t at, size_t len, char *buffer, int out_fd,
                    struct err *err)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = pread(mem, buffer + got, len - got, (off_t)(ram_at + at + got));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return lost(err, "memory");
        }
        got += (size_t)n;
    }
    return ram_write_at(out_fd, buffer, len, at, err);
}

struct chunk {
    uint64_t words[CHUNK_PAGES]; /* of the pagemap */
    uint8_t bits[CHUNK_PAGES / 8];
    char data[CHUNK_PAGES * PAGE_BYTES];
};

/* The pages from RAM's offset at on. */
static int copy_chunk(const struct machine_look *look, uint64_t ram_at, uint64_t at, size_t pages,
                      uint64_t map_at, struct chunk *c, int out_fd, uint64_t *bytes,
                      struct err *err)
{
    off_t from = (off_t)((ram_at + at) / PAGE_BYTES * sizeof c->words[0]);
    bool any = false;
    int rc = 0;
    if (pread(look->pagemap, c->words, pages * sizeof c->words[0], from) !=
        (ssize_t)(pages * sizeof c->words[0])) {
        return lost(err, "pagemap");
    }
    memset(c->bits, 0, sizeof c->bits);
    for (size_t i = 0; rc == 0 && i < pages; i++) {
        size_t end = i;
        while (end < pages && c->words[end] & PAGEMAP_THERE && !(c->words[end] & PAGEMAP_OF_FILE)) {
            c->bits[end / 8] |= (uint8_t)(1u << end % 8);
            end++;
        }
        if (end > i) {
            size_t len = (end - i) * PAGE_BYTES;
            rc = copy_run(look->mem, ram_at, at + i * PAGE_BYTES, len, c->data, out_fd, err);
            *bytes += len;
            any = true;
            i = end; /* that page is of a file */
        }
    }
    return rc < 0 || !any
               ? rc
               : ram_write_at(out_fd, c->bits, (pages + 7) / 8, map_at + at / PAGE_BYTES / 8, err);
}

int dump_read(const struct machine_look *look, const int *files, size_t n, uint64_t ram_bytes,
              int out_fd, uint64_t *ret_bytes, struct err *err)
{
    uint64_t ram_at = 0, bytes = 0;
    assert(ram_bytes % PAGE_BYTES == 0);
    cleanup_free struct chunk *c = malloc(sizeof *c);
    if (!c) {
        abort();
    }
    int rc = find_ram(look->maps, files, n, &ram_at, err);
    for (uint64_t at = 0; rc == 0 && at < ram_bytes; at += (uint64_t)CHUNK_PAGES * PAGE_BYTES) {
        uint64_t pages = (ram_bytes - at) / PAGE_BYTES;
        rc = copy_chunk(look, ram_at, at, pages < CHUNK_PAGES ? (size_t)pages : CHUNK_PAGES,
                        SEED_DUMP_MAP(ram_bytes), c, out_fd, &bytes, err);
    }
    if (rc == 0) {
        *ret_bytes = bytes;
    }
    return rc;
}
