/* Lines of a file, plain or gzip, with a maximum: a longer line is an error with its number, never
 * a larger buffer.
 *
 * Lines end by LF; a CR before it and blank lines are skipped over by the caller as it likes
 * (lines_next cuts the CR). The last line need not end by LF. Bytes are passed through, NUL
 * included. */
#pragma once
#include <stdbool.h>
#include <zlib.h>
#include "common/base/buf.h"

struct lines {
    gzFile file;
    struct buf buf; /* the current line */
    int number;     /* of the current line, from 1 */
    bool ended;
};

/* path "-": standard input. max: bytes of a line. -ERR_NOT_FOUND, -ERR_SYS. */
MUST_CHECK int lines_open(struct lines *l, const char *path, size_t max, struct err *err);
/* From an fd that stays the caller's (duplicated), read from its present offset. */
MUST_CHECK int lines_open_fd(struct lines *l, int fd, size_t max, struct err *err);
void lines_close(struct lines *l);
/* 1: l->buf has the line without its end; 0: end of file. -ERR_TOO_LARGE (the rest of the line is
 * skipped, reading may go on), -ERR_SYS. */
MUST_CHECK int lines_next(struct lines *l, struct err *err);
/* true when the current line has nothing but blanks. */
bool lines_blank(const struct lines *l);

static inline void cleanup_lines_fn(struct lines *l)
{
    lines_close(l);
}
#define cleanup_lines __attribute__((cleanup(cleanup_lines_fn)))
