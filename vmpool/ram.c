/* The sum of a memory image is taken over its non-zero pages, each preceded by its number, so that
 * it does not depend on where the file system keeps holes. */
#include "vmpool/ram.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sodium.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"

#define PAGE_BYTES 4096u
#define CHUNK_BYTES (1u << 20)
#define STATE_BYTES_MAX (64u << 20)
#define MANIFEST_BYTES_MAX 65536u

static const uint8_t zero_page[PAGE_BYTES];

int ram_memfd(const char *name, uint64_t bytes, int *ret_fd, struct err *err)
{
    cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return err_sys(err, "memfd_create");
    }
    if (ftruncate(fd, (off_t)bytes) < 0) {
        return err_sys(err, "memfd of %llu bytes", (unsigned long long)bytes);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Calls fn for every chunk of data between holes; chunks are whole pages but for the file's last.
 */
typedef int chunk_fn(void *ctx, uint64_t offset, const uint8_t *data, size_t n, struct err *err);

static int each_chunk(int fd, uint64_t bytes, uint8_t *chunk, chunk_fn *fn, void *ctx,
                      struct err *err)
{
    uint64_t at = 0;
    while (at < bytes) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) {
            return 0;
        }
        off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (data < 0 || hole < 0) {
            return err_sys(err, "lseek");
        }
        /* a file system's holes need not end at a page; the file itself does */
        hole += (off_t)((PAGE_BYTES - (uint64_t)hole % PAGE_BYTES) % PAGE_BYTES);
        for (at = (uint64_t)data - (uint64_t)data % PAGE_BYTES; at < (uint64_t)hole;) {
            size_t want =
                (uint64_t)hole - at < CHUNK_BYTES ? (size_t)((uint64_t)hole - at) : CHUNK_BYTES;
            ssize_t n = pread(fd, chunk, want, (off_t)at);
            if (n != (ssize_t)want) {
                return n < 0 ? err_sys(err, "read")
                             : err_set(err, ERR_MISMATCH, "a file shrank while it was read");
            }
            int rc = fn(ctx, at, chunk, want, err);
            if (rc < 0) {
                return rc;
            }
            at += want;
        }
    }
    return 0;
}

struct copy {
    int out; /* -1: none */
    bool punch;
    int source;
    uint64_t used;
    crypto_hash_sha256_state sha;
};

int ram_write_at(int fd, const void *data, size_t n, uint64_t at, struct err *err)
{
    const char *from = data;
    while (n > 0) {
        ssize_t w = pwrite(fd, from, n, (off_t)at);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w <= 0) {
            return err_sys(err, "write");
        }
        from += w;
        at += (uint64_t)w;
        n -= (size_t)w;
    }
    return 0;
}

/* Runs of pages that are not zero are summed and written; runs of zero pages become holes of the
 * source. */
static int copy_chunk(void *ctx, uint64_t offset, const uint8_t *data, size_t n, struct err *err)
{
    struct copy *c = ctx;
    for (size_t at = 0; at < n;) {
        size_t end = at;
        bool zero = memcmp(data + at, zero_page, PAGE_BYTES) == 0;
        while (end < n && (memcmp(data + end, zero_page, PAGE_BYTES) == 0) == zero) {
            if (!zero && !c->punch) {
                uint64_t page = (offset + end) / PAGE_BYTES;
                (void)crypto_hash_sha256_update(&c->sha, (const uint8_t *)&page, sizeof page);
                (void)crypto_hash_sha256_update(&c->sha, data + end, PAGE_BYTES);
            }
            end += PAGE_BYTES;
        }
        if (zero && c->punch &&
            fallocate(c->source, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(offset + at),
                      (off_t)(end - at)) < 0) {
            return err_sys(err, "punch a hole");
        }
        if (!zero) {
            c->used += end - at;
            int rc = c->out >= 0 ? ram_write_at(c->out, data + at, end - at, offset + at, err) : 0;
            if (rc < 0) {
                return rc;
            }
        }
        at = end;
    }
    return 0;
}

static void sha_text(crypto_hash_sha256_state *sha, char out[MANIFEST_SHA_TEXT])
{
    uint8_t sum[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256_final(sha, sum);
    (void)sodium_bin2hex(out, MANIFEST_SHA_TEXT, sum, sizeof sum);
}

static uint8_t *new_chunk(void)
{
    uint8_t *chunk = malloc(CHUNK_BYTES);
    if (!chunk) {
        abort();
    }
    return chunk;
}

static int copy_ram(int from, int to, uint64_t bytes, char ret_sha[MANIFEST_SHA_TEXT],
                    uint64_t *ret_used, struct err *err)
{
    cleanup_free uint8_t *chunk = new_chunk();
    struct copy c = { .out = to, .source = from };
    (void)crypto_hash_sha256_init(&c.sha);
    int rc = each_chunk(from, bytes, chunk, copy_chunk, &c, err);
    if (rc < 0) {
        return rc;
    }
    sha_text(&c.sha, ret_sha);
    *ret_used = c.used;
    return 0;
}

static int seal(int fd, struct err *err)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
        return err_sys(err, "seal a memfd");
    }
    return 0;
}

int ram_seal(int fd, uint64_t bytes, uint64_t *ret_used, struct err *err)
{
    assert(bytes % PAGE_BYTES == 0);
    cleanup_free uint8_t *chunk = new_chunk();
    struct copy c = { .out = -1, .source = fd, .punch = true };
    int rc = each_chunk(fd, bytes, chunk, copy_chunk, &c, err);
    if (rc < 0) {
        return rc;
    }
    *ret_used = c.used;
    return seal(fd, err);
}

int ram_seal_whole(int fd, struct err *err)
{
    if (lseek(fd, 0, SEEK_END) <= 0) {
        return err_set(err, ERR_INTERNAL, "the device state is empty");
    }
    return seal(fd, err);
}

/* Copy a small file whole; the sum is over its bytes. */
static int copy_state(int from, int to, uint64_t *ret_bytes, char ret_sha[MANIFEST_SHA_TEXT],
                      struct err *err)
{
    cleanup_free uint8_t *chunk = new_chunk();
    crypto_hash_sha256_state sha;
    (void)crypto_hash_sha256_init(&sha);
    uint64_t at = 0;
    for (;;) {
        ssize_t n = pread(from, chunk, CHUNK_BYTES, (off_t)at);
        if (n < 0) {
            return err_sys(err, "read the state");
        }
        if (n == 0) {
            break;
        }
        (void)crypto_hash_sha256_update(&sha, chunk, (unsigned long long)n);
        int rc = ram_write_at(to, chunk, (size_t)n, at, err);
        if (rc < 0) {
            return rc;
        }
        at += (uint64_t)n;
        if (at > STATE_BYTES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "device state: at most %u bytes", STATE_BYTES_MAX);
        }
    }
    sha_text(&sha, ret_sha);
    *ret_bytes = at;
    return 0;
}

static int make_file(const char *dir, const char *name, int *ret_fd, struct err *err)
{
    char path[TEMPLATE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    *ret_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return *ret_fd < 0 ? err_sys(err, "%s", path) : 0;
}

static void remove_dir(const char *dir)
{
    static const char *const names[] = { "ram", "state", "manifest.json" };
    char path[TEMPLATE_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

static int make_dirs(const char *dir, struct err *err)
{
    char path[TEMPLATE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            if (mkdir(path, 0711) < 0 && errno != EEXIST) {
                return err_sys(err, "mkdir %s", path);
            }
            *p = '/';
        }
    }
    return 0;
}

static int write_all(const char *tmp, int ram_fd, int state_fd, struct manifest *m, struct err *err)
{
    cleanup_close int ram = -1;
    cleanup_close int state = -1;
    cleanup_close int text_fd = -1;
    int rc;
    if ((rc = make_file(tmp, "ram", &ram, err)) < 0 ||
        (rc = make_file(tmp, "state", &state, err)) < 0 ||
        (rc = make_file(tmp, "manifest.json", &text_fd, err)) < 0) {
        return rc;
    }
    uint64_t bytes = (uint64_t)m->memory_mib << 20;
    if (ftruncate(ram, (off_t)bytes) < 0) {
        return err_sys(err, "%s/ram", tmp);
    }
    if ((rc = copy_ram(ram_fd, ram, bytes, m->ram_sha256, &m->ram_bytes_used, err)) < 0 ||
        (rc = copy_state(state_fd, state, &m->state_bytes, m->state_sha256, err)) < 0) {
        return err_prefix(err, "%s", tmp);
    }
    cleanup_free char *text = manifest_print(m);
    if ((rc = ram_write_at(text_fd, text, strlen(text), 0, err)) < 0) {
        return rc;
    }
    if (fsync(ram) < 0 || fsync(state) < 0 || fsync(text_fd) < 0) {
        return err_sys(err, "fsync %s", tmp);
    }
    return 0;
}

int ram_store(const char *dir, int ram_fd, int state_fd, struct manifest *manifest, struct err *err)
{
    char tmp[TEMPLATE_PATH_MAX], old[TEMPLATE_PATH_MAX];
    (void)snprintf(tmp, sizeof tmp, "%s.tmp.%d", dir, (int)getpid());
    (void)snprintf(old, sizeof old, "%s.old.%d", dir, (int)getpid());
    int rc = make_dirs(dir, err);
    if (rc < 0) {
        return rc;
    }
    remove_dir(tmp);
    if (mkdir(tmp, 0700) < 0) {
        return err_sys(err, "mkdir %s", tmp);
    }
    if ((rc = write_all(tmp, ram_fd, state_fd, manifest, err)) < 0) {
        remove_dir(tmp);
        return rc;
    }
    if (rename(dir, old) < 0 && errno != ENOENT) {
        rc = err_sys(err, "rename %s", dir);
        remove_dir(tmp);
        return rc;
    }
    if (rename(tmp, dir) < 0) {
        rc = err_sys(err, "rename %s", tmp);
        remove_dir(tmp);
        return rc;
    }
    remove_dir(old);
    return 0;
}

int ram_read_manifest(const char *dir, struct manifest *ret_manifest, struct err *err)
{
    char path[TEMPLATE_PATH_MAX];
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, MANIFEST_BYTES_MAX);
    (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
    int rc = buf_read_file(&b, path, err);
    return rc < 0 ? rc : manifest_parse(b.data ? b.data : "", b.len, ret_manifest, err);
}

static int open_file(const char *dir, const char *name, uint64_t bytes, int *ret_fd,
                     struct err *err)
{
    char path[TEMPLATE_PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*ret_fd < 0 || fstat(*ret_fd, &st) < 0) {
        return err_sys(err, "%s", path);
    }
    if ((uint64_t)st.st_size != bytes) {
        return err_set(err, ERR_MISMATCH, "%s: %lld bytes, the manifest says %llu", path,
                       (long long)st.st_size, (unsigned long long)bytes);
    }
    return 0;
}

int ram_load(const char *dir, const struct manifest *manifest, int *ret_ram_fd, int *ret_state_fd,
             struct err *err)
{
    cleanup_close int ram_file = -1;
    cleanup_close int state_file = -1;
    cleanup_close int ram = -1;
    cleanup_close int state = -1;
    uint64_t bytes = (uint64_t)manifest->memory_mib << 20, used, state_bytes;
    char ram_sha[MANIFEST_SHA_TEXT], state_sha[MANIFEST_SHA_TEXT];
    int rc;
    if ((rc = open_file(dir, "ram", bytes, &ram_file, err)) < 0 ||
        (rc = open_file(dir, "state", manifest->state_bytes, &state_file, err)) < 0 ||
        (rc = ram_memfd("brood-ram", bytes, &ram, err)) < 0 ||
        (rc = ram_memfd("brood-state", 0, &state, err)) < 0 ||
        (rc = copy_ram(ram_file, ram, bytes, ram_sha, &used, err)) < 0 ||
        (rc = copy_state(state_file, state, &state_bytes, state_sha, err)) < 0) {
        return rc;
    }
    if (strcmp(ram_sha, manifest->ram_sha256) != 0 ||
        strcmp(state_sha, manifest->state_sha256) != 0) {
        return err_set(err, ERR_MISMATCH, "%s: the sum of %s differs from the manifest's", dir,
                       strcmp(ram_sha, manifest->ram_sha256) != 0 ? "ram" : "state");
    }
    if ((rc = seal(ram, err)) < 0 || (rc = seal(state, err)) < 0) {
        return rc;
    }
    *ret_ram_fd = TAKE_FD(ram);
    *ret_state_fd = TAKE_FD(state);
    return 0;
}
