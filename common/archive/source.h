/* Where an archive's bytes come from, and what they are: internal to common/archive. */
#pragma once
#include <archive.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

#define SOURCE_CHUNK_BYTES 65536u

struct source {
    const uint8_t *mem; /* NULL: fd */
    int fd;
    bool seekable;
    int64_t size; /* when seekable */
    int64_t pos;
    uint64_t unpacked_max; /* no more is read once so much has come out of the decompressor */
    bool over;             /* that is why it failed */
    size_t head;           /* bytes in chunk that were read to look at, of a pipe */
    uint8_t chunk[SOURCE_CHUNK_BYTES];
};

enum source_kind { SOURCE_TAR, SOURCE_TAR_GZ, SOURCE_TAR_ZST, SOURCE_ZIP, SOURCE_ZIP_EMPTY };

void source_memory(struct source *s, const void *data, size_t n);
MUST_CHECK int source_fd(struct source *s, int fd, struct err *err);
/* Look at the first bytes. -ERR_INVALID says what it is instead, -ERR_SYS. */
MUST_CHECK int source_kind(struct source *s, enum source_kind *ret_kind, struct err *err);
/* Make a read from s. -ERR_INVALID, -ERR_SYS. */
MUST_CHECK int source_open(struct source *s, struct archive *a, struct err *err);
