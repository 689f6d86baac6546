/* Reading archives that a stranger made: tar, tar.gz, tar.zst and zip, entry by entry, into
 * callbacks.
 *
 * Theory: the first bytes say which of the four it is, and exactly that decoder is set up in
 * libarchive; nothing nested, no other format, is ever tried. Every name is made clean and checked
 * before the callback sees it: nothing it is given leaves the work folder, also not by way of a
 * link that the same archive made before (see tree.h). Maxima are compared with what an entry
 * announces and again with what comes out of it, so a bomb ends at its first header or at the
 * maximum, in constant memory: 64 KiB here, the decoder's window (zstd: at most 128 MiB, as far as
 * the archive asks for it and uses it), and for each entry its name. Names are bytes and survive as
 * they are, UTF-8 or not. Owners, times, ACLs and set-id bits are dropped.
 *
 * Blocking; a thread each, no shared state. Callbacks run with LC_CTYPE C.UTF-8. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

#define UNPACK_ENTRIES_MAX 100000u  /* highest entries_max */
#define UNPACK_PATH_BYTES_MAX 4096u /* highest path_bytes_max */

enum unpack_type {
    UNPACK_FILE,
    UNPACK_DIR,
    UNPACK_LINK,    /* symbolic; the target stays in the work folder wherever it is followed */
    UNPACK_HARDLINK /* target: the path of a file that came before */
};

struct unpack_entry {
    const char *path; /* relative and clean (common/base/path.h), NUL behind it */
    size_t path_len;
    enum unpack_type type;
    unsigned mode;      /* permission bits */
    const char *target; /* of both links, NUL behind it; else NULL */
    size_t target_len;
    int64_t size; /* of a file: announced, and what will come; -1: not known before */
};

struct unpack_limits {
    uint32_t entries_max; /* of entries, as they come; and of files and folders, implied ones too */
    uint64_t file_bytes_max, total_bytes_max;
    size_t path_bytes_max; /* of a path, and of a link's target */
};

struct unpack_sink {
    /* A new entry; the one before is complete. -ERR_X with err filled ends the whole. */
    int (*entry)(void *arg, const struct unpack_entry *e, struct err *err);
    /* More of the last entry's content. */
    int (*data)(void *arg, const void *data, size_t n, struct err *err);
    void *arg;
};

/* Returns the number of entries given out. -ERR_INVALID names the entry and the rule it breaks, or
 * says that this is no archive that is read here, is encrypted or damaged; -ERR_TOO_LARGE: a
 * maximum; -ERR_SYS: it could not be read to its end, whatever it is; -ERR_UNSUPPORTED (no
 * C.UTF-8); or what the sink returned. Entries before the bad one have been given out: the caller
 * throws them away. */
MUST_CHECK int unpack_memory(const void *data, size_t n, const struct unpack_limits *limits,
                             const struct unpack_sink *sink, struct err *err);
/* From fd: a regular file from its beginning (its offset is not used), or a pipe or socket to its
 * end. A zip must be a regular file: its directory is at its end. */
MUST_CHECK int unpack_fd(int fd, const struct unpack_limits *limits, const struct unpack_sink *sink,
                         struct err *err);
