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
    int error;             /* errno: the input could not be read, which says nothing of it */
    bool shorter;          /* neither does a file that ends before its size */
    size_t head;           /* bytes in chunk that were read to look at, of a pipe */
    uint32_t records_max;  /* of a zip's directory, see source_records */
    uint32_t records;
    bool counting, full; /* full: there are more */
    int64_t counted_to;  /* position up to which records are counted */
    uint8_t last[4];     /* bytes before it, of a record's mark that two chunks share */
    uint8_t chunk[SOURCE_CHUNK_BYTES];
};

enum source_kind { SOURCE_TAR, SOURCE_TAR_GZ, SOURCE_TAR_ZST, SOURCE_ZIP, SOURCE_ZIP_EMPTY };

void source_memory(struct source *s, const void *data, size_t n);
MUST_CHECK int source_fd(struct source *s, int fd, struct err *err);
/* Look at the first bytes. -ERR_INVALID says what it is instead, -ERR_SYS. */
MUST_CHECK int source_kind(struct source *s, enum source_kind *ret_kind, struct err *err);
/* Make a read from s. -ERR_INVALID, -ERR_SYS. */
MUST_CHECK int source_open(struct source *s, struct archive *a, struct err *err);
/* -ERR_SYS when a read has failed for no fault of the archive's, else 0. */
MUST_CHECK int source_failed(const struct source *s, struct err *err);
/* Until s->counting is set to false no more than max records of a zip's directory are read
 * (s->full: there are more). libarchive reads the whole directory before the first entry, holds
 * each record, and passes over those that name an entry which another one names, so their number
 * shows in nothing else. */
void source_records(struct source *s, uint32_t max);
