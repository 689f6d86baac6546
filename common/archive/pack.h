/* Writing tar.zst archives whose bytes depend on nothing but the content.
 *
 * Theory: entries come in path_order, with a fixed time, no owner and permission bits only, in one
 * thread at one compression level. The same files therefore give the same bytes, and the same
 * digest, on every machine with the same libzstd; that is what lets `brood ci` upload a checkout
 * only once. The format is GNU tar: names and targets are bytes in it, of any length and encoding,
 * and every tar reads it. Nothing is held but the entry in hand and the compressor's window.
 *
 * After an error the archive is of no use: only pack_free is left. Not thread-safe. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "common/archive/unpack.h"

#define PACK_MTIME_S 946684800 /* of every entry: 2000-01-01 UTC */
#define PACK_ZSTD_LEVEL 3

/* Takes the next n bytes of the archive. 0, or -ERR_X with err filled. */
typedef int (*pack_write)(void *arg, const void *data, size_t n, struct err *err);

struct pack;
/* Write to a callback, or to fd (kept by the caller; file, pipe or socket). */
MUST_CHECK int pack_new(struct pack **ret_pack, pack_write write, void *arg, struct err *err);
MUST_CHECK int pack_new_fd(struct pack **ret_pack, int fd, struct err *err);
void pack_free(struct pack *p); /* NULL allowed */

/* Begin an entry: UNPACK_FILE with its size, UNPACK_DIR, or UNPACK_LINK with its target.
 * -ERR_INVALID: path not clean, not behind the one before in path_order, below a file or link, or
 * the file before is not complete. */
MUST_CHECK int pack_entry(struct pack *p, const struct unpack_entry *e, struct err *err);
/* Content of the file in hand, in pieces; in all exactly its size, else -ERR_INVALID. */
MUST_CHECK int pack_data(struct pack *p, const void *data, size_t n, struct err *err);
/* n bytes of fd, from its current position, as content. -ERR_CONFLICT: it ends before. */
MUST_CHECK int pack_data_fd(struct pack *p, int fd, uint64_t n, struct err *err);
/* The end. -ERR_INVALID: the last file is not complete. */
MUST_CHECK int pack_finish(struct pack *p, struct err *err);

/* The named paths below dir_fd, in any order, some of them twice: files and symbolic links (as
 * links, never followed), and folders as empty folders. Permission bits become 0755 when the owner
 * may execute, else 0644, so that the umask of a checkout does not show. A path that is not there
 * is -ERR_NOT_FOUND; anything but file, link and folder -ERR_INVALID; one that changes meanwhile
 * -ERR_CONFLICT. The error names the path. */
MUST_CHECK int pack_files(struct pack *p, int dir_fd, const char *const *paths, size_t n,
                          struct err *err);
