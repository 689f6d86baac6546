/* A layer: what a kept machine has that its parent has not, as one compressed file.
 *
 * The file is one zstd frame of: struct layer_head; n_ranges struct layer_range; state_bytes of
 * device state; the pages of the ranges in order, none for a range of zeros. Numbers are
 * little-endian. A layer without a parent has every page that is not zero; a page that it does not
 * name is zero then, and else as in its parent. Whoever reads one has its SHA-256 from a manifest
 * (kept.h), which is checked before the first page is believed; everything else in it is checked
 * too, for the manifest comes from the same place. These calls read and write a hundred MiB and are
 * made on a helper thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

#define LAYER_MAGIC "brood-layer-1"
#define LAYER_PAGE_BYTES 4096u
#define LAYER_STATE_BYTES_MAX (64u << 20)
#define LAYER_SHA_TEXT 65
#define LAYER_DUMPS_MAX 16

struct layer_head {
    char magic[16];
    uint64_t ram_bytes, state_bytes;
    uint32_t n_ranges, reserved;
};

struct layer_range {
    uint32_t page, count; /* count's LAYER_ZERO: zeros, without data */
};
#define LAYER_ZERO (1u << 31)

/* What a written layer holds. */
struct layer_facts {
    uint64_t pages, zero_pages; /* stored; known to be zero */
    uint64_t file_bytes;
    char sha256[LAYER_SHA_TEXT]; /* of the file */
};

/* Where the pages come from. */
struct layer_source {
    uint64_t ram_bytes; /* whole pages, at most 2^31 of them */
    int base_fd;        /* RAM of the parent; without dumps the RAM itself */
    /* Changed pages and their map (seed_wire.h, SEED_DUMP), the oldest first: a page is as in the
     * last one that has it. */
    int dumps[LAYER_DUMPS_MAX];
    size_t n_dumps;
    int state_fd; /* device state, read from 0 to its end */
    bool flat;    /* every page, whatever the parent has */
};

/* Write the layer to out_fd (empty). A changed page that is equal to the parent's is not stored. */
MUST_CHECK int layer_write(int out_fd, const struct layer_source *from,
                           struct layer_facts *ret_facts, struct err *err);
/* Read the layer in_fd onto ram_fd, which holds its parent's RAM (or nothing) and has ram_bytes;
 * its device state goes to state_fd (empty; -1: not wanted). -ERR_CORRUPT when the file's sum is
 * not sha256, -ERR_INVALID when it is no layer: ram_fd is then of no use. */
MUST_CHECK int layer_read(int in_fd, const char *sha256, uint64_t ram_bytes, int ram_fd,
                          int state_fd, struct err *err);
