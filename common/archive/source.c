#include "common/archive/source.h"

#include <archive.h>
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAR_BLOCK 512u

/* All but the chunk. */
static void begin(struct source *s)
{
    memset(s, 0, offsetof(struct source, chunk));
    s->fd = -1;
    s->unpacked_max = UINT64_MAX;
}

void source_memory(struct source *s, const void *data, size_t n)
{
    begin(s);
    s->mem = n > 0 ? data : (const void *)"";
    s->seekable = true;
    s->size = (int64_t)n;
}

int source_fd(struct source *s, int fd, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return err_sys(err, "archive");
    }
    if (S_ISDIR(st.st_mode)) {
        return err_set(err, ERR_INVALID, "archive: is a folder");
    }
    begin(s);
    s->fd = fd;
    s->seekable = S_ISREG(st.st_mode);
    s->size = s->seekable ? st.st_size : -1;
    return 0;
}

/* Up to n bytes at s->pos into out, which moves. 0 at the end, -1 with errno. */
static ssize_t fetch(struct source *s, uint8_t *out, size_t n)
{
    ssize_t got;
    do {
        got = s->seekable ? pread(s->fd, out, n, (off_t)s->pos) : read(s->fd, out, n);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        s->pos += got;
    }
    if (got == 0 && s->seekable && s->pos < s->size) {
        s->shorter = true;
        errno = ESTALE;
        return -1;
    }
    return got;
}

/* Of n bytes that end at s->pos. What is read again is not counted again. */
static void count_records(struct source *s, const uint8_t *data, size_t n)
{
    static const uint8_t mark[4] = { 'P', 'K', 1, 2 };
    int64_t at = s->pos - (int64_t)n;
    if (at > s->counted_to) {
        memset(s->last, 0, sizeof s->last); /* it was not read in one */
    }
    for (size_t i = at < s->counted_to ? (size_t)(s->counted_to - at) : 0; i < n; i++) {
        memmove(s->last, s->last + 1, sizeof s->last - 1);
        s->last[sizeof s->last - 1] = data[i];
        s->records += memcmp(s->last, mark, sizeof mark) == 0;
    }
    s->counted_to = s->pos > s->counted_to ? s->pos : s->counted_to;
    s->full = s->records > s->records_max;
}

static la_ssize_t give(struct archive *a, struct source *s, const uint8_t *data, ssize_t n)
{
    if (s->counting && n > 0) {
        count_records(s, data, (size_t)n);
    }
    if (s->full) {
        archive_set_error(a, EFBIG, "too many records");
        return ARCHIVE_FATAL;
    }
    return n;
}

static la_ssize_t on_read(struct archive *a, void *arg, const void **ret_data)
{
    struct source *s = arg;
    ssize_t got;
    la_int64_t unpacked = archive_filter_bytes(a, 0); /* grows while libarchive skips, too */
    if (unpacked > 0 && (uint64_t)unpacked > s->unpacked_max) {
        s->over = true;
        archive_set_error(a, EFBIG, "unpacks to too much");
        return ARCHIVE_FATAL;
    }
    if (s->mem) {
        int64_t left = s->size - s->pos;
        got = (ssize_t)(left < (int64_t)SOURCE_CHUNK_BYTES ? left : (int64_t)SOURCE_CHUNK_BYTES);
        *ret_data = s->mem + s->pos;
        s->pos += got;
        return give(a, s, *ret_data, got);
    }
    *ret_data = s->chunk;
    if (s->head > 0) {
        got = (ssize_t)s->head;
        s->head = 0;
        return got;
    }
    got = fetch(s, s->chunk, sizeof s->chunk);
    if (got < 0) {
        s->error = errno;
        archive_set_error(a, s->error, "read: %s", strerror(s->error));
        return ARCHIVE_FATAL;
    }
    return give(a, s, s->chunk, got);
}

static la_int64_t on_seek(struct archive *a, void *arg, la_int64_t offset, int whence)
{
    struct source *s = arg;
    (void)a;
    int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? s->pos : s->size;
    int64_t to;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) {
        return ARCHIVE_FATAL;
    }
    s->pos = to < s->size ? to : s->size;
    return s->pos;
}

/* The first bytes, at most TAR_BLOCK of them, without using them up. */
static int peek(struct source *s, const uint8_t **ret_head, size_t *ret_n, struct err *err)
{
    if (s->mem) {
        *ret_head = s->mem;
        *ret_n = s->size < (int64_t)TAR_BLOCK ? (size_t)s->size : TAR_BLOCK;
        return 0;
    }
    size_t n = 0;
    while (n < TAR_BLOCK) {
        ssize_t got = fetch(s, s->chunk + n, TAR_BLOCK - n);
        if (got < 0) {
            s->error = errno;
            int rc = source_failed(s, err);
            assert(rc < 0);
            return rc;
        }
        if (got == 0) {
            break;
        }
        n += (size_t)got;
    }
    if (s->seekable) {
        s->pos = 0;
    } else {
        s->head = n;
    }
    *ret_head = s->chunk;
    *ret_n = n;
    return 0;
}

/* The checksum that every tar header has; a block of zeros is the end of an empty tar. */
static bool is_tar(const uint8_t *h, size_t n)
{
    unsigned sum = 0, want = 0;
    bool zeros = true;
    if (n < TAR_BLOCK) {
        return false;
    }
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        sum += i >= 148 && i < 156 ? ' ' : h[i];
        zeros = zeros && h[i] == 0;
    }
    size_t i = 148;
    while (i < 156 && h[i] == ' ') {
        i++;
    }
    for (; i < 156 && h[i] >= '0' && h[i] <= '7'; i++) {
        want = want * 8 + (h[i] - '0');
    }
    return zeros || sum == want;
}

int source_kind(struct source *s, enum source_kind *ret_kind, struct err *err)
{
    static const struct {
        const char *magic;
        size_t n;
        int kind; /* -1: known, and not read here */
        const char *word;
    } rows[] = {
        { "\x1f\x8b", 2, SOURCE_TAR_GZ, "" },
        { "\x28\xb5\x2f\xfd", 4, SOURCE_TAR_ZST, "" },
        { "PK\x03\x04", 4, SOURCE_ZIP, "" },
        { "PK\x05\x06", 4, SOURCE_ZIP_EMPTY, "" }, /* the end of a directory without entries */
        { "PK\x07\x08", 4, -1, "a zip in several parts" },
        { "\xfd"
          "7zXZ",
          5, -1, "xz" },
        { "BZh", 3, -1, "bzip2" },
        { "7z\xbc\xaf\x27\x1c", 6, -1, "7z" },
        { "Rar!", 4, -1, "rar" },
        { "\x04\x22\x4d\x18", 4, -1, "lz4" },
        { "!<arch>\n", 8, -1, "ar" },
        { "07070", 5, -1, "cpio" },
    };
    const uint8_t *h;
    size_t n;
    int rc = peek(s, &h, &n, err);
    if (rc < 0) {
        return rc;
    }
    const char *word = n == 0 ? "nothing" : "something else";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (n >= rows[i].n && memcmp(h, rows[i].magic, rows[i].n) == 0) {
            if (rows[i].kind >= 0) {
                *ret_kind = (enum source_kind)rows[i].kind;
                return 0;
            }
            word = rows[i].word;
        }
    }
    if (is_tar(h, n)) {
        *ret_kind = SOURCE_TAR;
        return 0;
    }
    return err_set(err, ERR_INVALID, "archive: must be tar, tar.gz, tar.zst or zip; this is %s",
                   word);
}

int source_open(struct source *s, struct archive *a, struct err *err)
{
    (void)archive_read_set_callback_data(a, s);
    (void)archive_read_set_read_callback(a, on_read);
    if (s->seekable) {
        (void)archive_read_set_seek_callback(a, on_seek);
    }
    if (archive_read_open1(a) != ARCHIVE_OK) {
        int rc = source_failed(s, err);
        return rc < 0 ? rc : err_set(err, ERR_INVALID, "archive: %s", archive_error_string(a));
    }
    return 0;
}

int source_failed(const struct source *s, struct err *err)
{
    if (s->error == 0) {
        return 0;
    }
    if (s->shorter) {
        return err_set(err, ERR_SYS, "archive: the file became shorter while it was read");
    }
    errno = s->error;
    return err_sys(err, "archive: read");
}

void source_records(struct source *s, uint32_t max)
{
    s->counting = true;
    s->records_max = max;
}
