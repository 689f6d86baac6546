#include "vmpool/layer.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sodium.h>
#include <zstd.h>

#include "common/base/cleanup.h"
#include "vmpool/seed_wire.h"

#define ZSTD_LEVEL 1 /* three times smaller at a few hundred MB/s; higher levels gain a tenth */
#define RANGES_MAX (1u << 20)
#define RAM_PAGES_MAX (1ull << 31)

static const uint8_t zero_page[LAYER_PAGE_BYTES];

DEFINE_CLEANUP(cleanup_cctx, ZSTD_CCtx, ZSTD_freeCCtx)
DEFINE_CLEANUP(cleanup_dctx, ZSTD_DCtx, ZSTD_freeDCtx)

/* To be read only; NULL and 0 while there is none. Private: before Linux 6.7 a sealed memfd cannot
 * be mapped shared, even to read. */
struct view {
    const uint8_t *at;
    size_t len;
};

static void view_done(struct view *v)
{
    if (v->len > 0) {
        (void)munmap((void *)(uintptr_t)v->at, v->len);
    }
}

static int view_make(struct view *v, int fd, size_t len, struct err *err)
{
    void *at = len > 0 ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (at == MAP_FAILED) {
        return err_sys(err, "mmap a memory image");
    }
    *v = (struct view){ at, len };
    return 0;
}

static int file_bytes(int fd, uint64_t *ret_bytes, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return err_sys(err, "fstat");
    }
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

/* ---- writing ---- */

struct writer {
    int fd;
    ZSTD_CCtx *ctx;
    uint8_t *out;
    size_t room;
    crypto_hash_sha256_state sha;
    uint64_t bytes;
};

static int put_file(struct writer *w, const uint8_t *data, size_t n, struct err *err)
{
    (void)crypto_hash_sha256_update(&w->sha, data, n);
    w->bytes += n;
    while (n > 0) {
        ssize_t done = write(w->fd, data, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return err_sys(err, "write a layer");
        }
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

static int put(struct writer *w, const void *data, size_t n, bool end, struct err *err)
{
    ZSTD_inBuffer in = { data, n, 0 };
    for (;;) {
        ZSTD_outBuffer out = { w->out, w->room, 0 };
        size_t left = ZSTD_compressStream2(w->ctx, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left)) {
            return err_set(err, ERR_INTERNAL, "zstd: %s", ZSTD_getErrorName(left));
        }
        int rc = out.pos > 0 ? put_file(w, w->out, out.pos, err) : 0;
        if (rc < 0) {
            return rc;
        }
        if (end ? left == 0 : in.pos == in.size) {
            return 0;
        }
    }
}

/* The pages of one source, as mappings. */
struct pages {
    const struct layer_source *from;
    struct view base, dumps[LAYER_DUMPS_MAX]; /* a dump: pages, then their map */
};

static void pages_done(struct pages *p)
{
    view_done(&p->base);
    for (size_t i = 0; i < LAYER_DUMPS_MAX; i++) {
        view_done(&p->dumps[i]);
    }
}

enum page_kind { PAGE_AS_PARENT, PAGE_ZERO, PAGE_DATA };

static const uint8_t *page_at(const struct pages *p, uint64_t page, bool *ret_changed)
{
    for (size_t i = p->from->n_dumps; i-- > 0;) {
        const uint8_t *dump = p->dumps[i].at;
        if (dump[SEED_DUMP_MAP(p->from->ram_bytes) + page / 8] >> page % 8 & 1) {
            *ret_changed = true;
            return dump + page * LAYER_PAGE_BYTES;
        }
    }
    *ret_changed = false;
    return p->base.at + page * LAYER_PAGE_BYTES;
}

static enum page_kind kind_of(const struct pages *p, uint64_t page)
{
    bool changed, all = p->from->flat || p->from->n_dumps == 0;
    const uint8_t *data = page_at(p, page, &changed);
    if (!changed && !all) {
        return PAGE_AS_PARENT;
    }
    if (!all && memcmp(data, p->base.at + page * LAYER_PAGE_BYTES, LAYER_PAGE_BYTES) == 0) {
        return PAGE_AS_PARENT;
    }
    if (memcmp(data, zero_page, LAYER_PAGE_BYTES) == 0) {
        return all ? PAGE_AS_PARENT : PAGE_ZERO;
    }
    return PAGE_DATA;
}

static int list_ranges(const struct pages *p, struct layer_range *ranges, struct layer_facts *facts,
                       struct err *err)
{
    uint64_t n_pages = p->from->ram_bytes / LAYER_PAGE_BYTES;
    int n = 0;
    for (uint64_t page = 0; page < n_pages;) {
        enum page_kind kind = kind_of(p, page);
        uint64_t end = page + 1;
        while (end < n_pages && kind_of(p, end) == kind) {
            end++;
        }
        if (kind != PAGE_AS_PARENT) {
            if (n == RANGES_MAX) {
                return err_set(err, ERR_TOO_LARGE, "a layer of more than %u ranges", RANGES_MAX);
            }
            uint32_t count = (uint32_t)(end - page);
            ranges[n++] =
                (struct layer_range){ htole32((uint32_t)page),
                                      htole32(count | (kind == PAGE_ZERO ? LAYER_ZERO : 0)) };
            facts->pages += kind == PAGE_DATA ? count : 0;
            facts->zero_pages += kind == PAGE_ZERO ? count : 0;
        }
        page = end;
    }
    return n;
}

static int put_pages(struct writer *w, const struct pages *p, const struct layer_range *ranges,
                     int n, struct err *err)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; i++) {
        uint32_t count = le32toh(ranges[i].count);
        for (uint32_t k = 0; rc == 0 && !(count & LAYER_ZERO) && k < count; k++) {
            bool changed;
            rc = put(w, page_at(p, le32toh(ranges[i].page) + k, &changed), LAYER_PAGE_BYTES, false,
                     err);
        }
    }
    return rc;
}

static int put_all(struct writer *w, const struct pages *p, const struct view *state,
                   struct layer_facts *facts, struct err *err)
{
    cleanup_free struct layer_range *ranges = calloc(RANGES_MAX, sizeof *ranges);
    if (!ranges) {
        abort();
    }
    int n = list_ranges(p, ranges, facts, err);
    if (n < 0) {
        return n;
    }
    struct layer_head head = { .magic = LAYER_MAGIC,
                               .ram_bytes = htole64(p->from->ram_bytes),
                               .state_bytes = htole64(state->len),
                               .n_ranges = htole32((uint32_t)n) };
    int rc = put(w, &head, sizeof head, false, err);
    rc = rc < 0 ? rc : put(w, ranges, (size_t)n * sizeof *ranges, false, err);
    rc = rc < 0 ? rc : put(w, state->at, state->len, false, err);
    rc = rc < 0 ? rc : put_pages(w, p, ranges, n, err);
    return rc < 0 ? rc : put(w, NULL, 0, true, err);
}

/* Map what the source has. */
static int pages_make(struct pages *p, const struct layer_source *from, struct err *err)
{
    size_t bytes = SEED_DUMP_MAP(from->ram_bytes) + (from->ram_bytes / LAYER_PAGE_BYTES + 7) / 8;
    p->from = from;
    int rc = view_make(&p->base, from->base_fd, from->ram_bytes, err);
    for (size_t i = 0; rc == 0 && i < from->n_dumps; i++) {
        uint64_t have = 0;
        rc = file_bytes(from->dumps[i], &have, err);
        if (rc == 0 && have != bytes) { /* a QEMU had it: a short one would be read past its end */
            rc = err_set(err, ERR_PROTOCOL, "a dump of RAM has %llu bytes, not %llu",
                         (unsigned long long)have, (unsigned long long)bytes);
        }
        rc = rc < 0 ? rc : view_make(&p->dumps[i], from->dumps[i], bytes, err);
    }
    return rc;
}

int layer_write(int out_fd, const struct layer_source *from, struct layer_facts *ret_facts,
                struct err *err)
{
    assert(from->ram_bytes % LAYER_PAGE_BYTES == 0 &&
           from->ram_bytes / LAYER_PAGE_BYTES < RAM_PAGES_MAX && from->n_dumps <= LAYER_DUMPS_MAX);
    CLEANUP(view_done) struct view state = { 0 };
    CLEANUP(pages_done) struct pages p = { 0 };
    struct layer_facts facts = { 0 };
    uint64_t state_bytes = 0;
    int rc = file_bytes(from->state_fd, &state_bytes, err);
    if (rc < 0) {
        return rc;
    }
    if (state_bytes == 0 || state_bytes > LAYER_STATE_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "device state: 1 to %u bytes", LAYER_STATE_BYTES_MAX);
    }
    if ((rc = view_make(&state, from->state_fd, state_bytes, err)) < 0 ||
        (rc = pages_make(&p, from, err)) < 0) {
        return rc;
    }
    CLEANUP(cleanup_cctx) ZSTD_CCtx *ctx = ZSTD_createCCtx();
    cleanup_free uint8_t *out = malloc(ZSTD_CStreamOutSize());
    if (!ctx || !out) {
        abort();
    }
    (void)ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    struct writer w = { .fd = out_fd, .ctx = ctx, .out = out, .room = ZSTD_CStreamOutSize() };
    (void)crypto_hash_sha256_init(&w.sha);
    if ((rc = put_all(&w, &p, &state, &facts, err)) < 0) {
        return rc;
    }
    uint8_t sum[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256_final(&w.sha, sum);
    (void)sodium_bin2hex(facts.sha256, sizeof facts.sha256, sum, sizeof sum);
    facts.file_bytes = w.bytes;
    *ret_facts = facts;
    return 0;
}

/* ---- reading ---- */

struct reader {
    struct view file;
    ZSTD_inBuffer in;
    ZSTD_DCtx *ctx;
};

static int get(struct reader *r, void *data, size_t n, struct err *err)
{
    ZSTD_outBuffer out = { data, n, 0 };
    while (out.pos < n) {
        size_t at = r->in.pos, had = out.pos;
        size_t left = ZSTD_decompressStream(r->ctx, &out, &r->in);
        if (ZSTD_isError(left)) {
            return err_set(err, ERR_INVALID, "layer: zstd: %s", ZSTD_getErrorName(left));
        }
        if (out.pos < n && (left == 0 || (r->in.pos == at && out.pos == had))) {
            return err_set(err, ERR_INVALID, "layer: it ends in the middle");
        }
    }
    return 0;
}

static int check_sum(const struct view *file, const char *sha256, struct err *err)
{
    uint8_t sum[crypto_hash_sha256_BYTES];
    char text[LAYER_SHA_TEXT];
    (void)crypto_hash_sha256(sum, file->at, file->len);
    (void)sodium_bin2hex(text, sizeof text, sum, sizeof sum);
    if (strcmp(text, sha256) != 0) {
        return err_set(err, ERR_CORRUPT, "layer: its sum is %.16s.., the manifest says %.16s..",
                       text, sha256);
    }
    return 0;
}

static int get_head(struct reader *r, uint64_t ram_bytes, struct layer_head *h, struct err *err)
{
    int rc = get(r, h, sizeof *h, err);
    if (rc < 0) {
        return rc;
    }
    h->ram_bytes = le64toh(h->ram_bytes);
    h->state_bytes = le64toh(h->state_bytes);
    h->n_ranges = le32toh(h->n_ranges);
    if (memcmp(h->magic, LAYER_MAGIC, sizeof LAYER_MAGIC) != 0 || h->ram_bytes != ram_bytes ||
        h->state_bytes == 0 || h->state_bytes > LAYER_STATE_BYTES_MAX || h->n_ranges > RANGES_MAX) {
        return err_set(err, ERR_INVALID, "layer: its head is not right");
    }
    return 0;
}

static int get_state(struct reader *r, uint64_t bytes, int state_fd, struct err *err)
{
    cleanup_free uint8_t *state = malloc(bytes);
    if (!state) {
        abort();
    }
    int rc = get(r, state, bytes, err);
    if (rc < 0 || state_fd < 0) {
        return rc;
    }
    return pwrite(state_fd, state, bytes, 0) == (ssize_t)bytes ? 0 : err_sys(err, "device state");
}

static int get_pages(struct reader *r, const struct layer_range *ranges, uint32_t n,
                     uint64_t ram_bytes, int ram_fd, struct err *err)
{
    uint64_t next = 0, n_pages = ram_bytes / LAYER_PAGE_BYTES;
    uint8_t *ram = mmap(NULL, ram_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ram_fd, 0);
    if (ram == MAP_FAILED) {
        return err_sys(err, "mmap a memory image");
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint64_t page = le32toh(ranges[i].page);
        uint32_t count = le32toh(ranges[i].count);
        bool zero = count & LAYER_ZERO;
        count &= ~LAYER_ZERO;
        if (page < next || count == 0 || page + count > n_pages) {
            rc = err_set(err, ERR_INVALID, "layer: range %u is not right", i);
            break;
        }
        next = page + count;
        off_t at = (off_t)(page * LAYER_PAGE_BYTES), len = (off_t)count * LAYER_PAGE_BYTES;
        if (!zero) {
            rc = get(r, ram + at, (size_t)len, err);
        } else if (fallocate(ram_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len) < 0) {
            rc = err_sys(err, "punch a hole");
        }
    }
    (void)munmap(ram, ram_bytes);
    return rc;
}

int layer_read(int in_fd, const char *sha256, uint64_t ram_bytes, int ram_fd, int state_fd,
               struct err *err)
{
    CLEANUP(view_done) struct view file = { 0 };
    uint64_t bytes = 0;
    int rc = file_bytes(in_fd, &bytes, err);
    if (rc < 0 || (rc = view_make(&file, in_fd, bytes, err)) < 0 ||
        (rc = check_sum(&file, sha256, err)) < 0) {
        return rc;
    }
    CLEANUP(cleanup_dctx) ZSTD_DCtx *ctx = ZSTD_createDCtx();
    if (!ctx) {
        abort();
    }
    struct reader r = { .file = file, .in = { file.at, file.len, 0 }, .ctx = ctx };
    struct layer_head head;
    if ((rc = get_head(&r, ram_bytes, &head, err)) < 0) {
        return rc;
    }
    cleanup_free struct layer_range *ranges = calloc(head.n_ranges + 1, sizeof *ranges);
    if (!ranges) {
        abort();
    }
    rc = get(&r, ranges, head.n_ranges * sizeof *ranges, err);
    rc = rc < 0 ? rc : get_state(&r, head.state_bytes, state_fd, err);
    return rc < 0 ? rc : get_pages(&r, ranges, head.n_ranges, ram_bytes, ram_fd, err);
}
