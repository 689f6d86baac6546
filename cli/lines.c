#include "cli/lines.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"

#define LINES_CHUNK_BYTES 65536

static int attach(struct lines *l, int fd, size_t max, struct err *err)
{
    *l = (struct lines){ 0 };
    buf_init(&l->buf, max);
    l->file = gzdopen(fd, "rb");
    if (!l->file) {
        (void)close(fd);
        return err_set(err, ERR_SYS, "cannot read: out of memory");
    }
    (void)gzbuffer(l->file, LINES_CHUNK_BYTES);
    return 0;
}

int lines_open_fd(struct lines *l, int fd, size_t max, struct err *err)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return own < 0 ? err_sys(err, "dup") : attach(l, own, max, err);
}

int lines_open(struct lines *l, const char *path, size_t max, struct err *err)
{
    *l = (struct lines){ 0 };
    if (strcmp(path, "-") == 0) {
        return lines_open_fd(l, 0, max, err);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "%s: no such file", path)
                               : err_sys(err, "%s", path);
    }
    return attach(l, fd, max, err);
}

void lines_close(struct lines *l)
{
    if (l->file) {
        (void)gzclose_r(l->file);
    }
    if (l->buf.max) {
        buf_done(&l->buf);
    }
    *l = (struct lines){ 0 };
}

int lines_next(struct lines *l, struct err *err)
{
    assert(l->file);
    if (l->ended) {
        return 0;
    }
    buf_reset(&l->buf);
    bool too_long = false;
    for (;;) {
        char piece[LINES_CHUNK_BYTES];
        /* gzgets stops at LF or when piece is full, and cannot tell a NUL inside a line: take the
         * length from gztell. */
        z_off_t before = gztell(l->file);
        if (!gzgets(l->file, piece, sizeof piece)) {
            int code = 0;
            const char *text = gzerror(l->file, &code);
            l->ended = true;
            if (code != Z_OK && code != Z_STREAM_END) {
                return err_set(err, ERR_INVALID, "line %d: %s", l->number + 1,
                               code == Z_ERRNO ? strerror(errno) : text);
            }
            if (l->buf.len == 0 && !too_long) {
                return 0;
            }
            break;
        }
        size_t n = (size_t)(gztell(l->file) - before);
        bool whole = n > 0 && piece[n - 1] == '\n';
        if (!too_long && buf_add(&l->buf, piece, n - whole, NULL) < 0) {
            too_long = true;
        }
        if (whole) {
            break;
        }
    }
    l->number++;
    if (too_long) {
        return err_set(err, ERR_TOO_LARGE, "line longer than the maximum of %zu bytes", l->buf.max);
    }
    if (l->buf.len > 0 && l->buf.data[l->buf.len - 1] == '\r') {
        l->buf.data[--l->buf.len] = 0;
    }
    if (!l->buf.data && buf_add(&l->buf, "", 0, err) < 0) {
        return -ERR_TOO_LARGE;
    }
    return 1;
}

bool lines_blank(const struct lines *l)
{
    for (size_t i = 0; i < l->buf.len; i++) {
        if (!strchr(" \t\r", l->buf.data[i]) || l->buf.data[i] == 0) {
            return false;
        }
    }
    return true;
}
