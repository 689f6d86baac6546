/* Bytes between descriptors: the ends of puts and gets.
 *
 * A regular file is read and written by position, so that a body can be sent again, a download can
 * be taken back, and threads can share a descriptor. A pipe or socket is read and written once. */
#include "common/store/object_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"

/* A non-blocking pipe or socket: wait until it can go on. */
static int wait_for(int fd, short events)
{
    struct pollfd p = { .fd = fd, .events = events };
    return poll(&p, 1, -1) < 0 && errno != EINTR ? -1 : 0;
}

bool object_stopped(const struct object_store *s, int stop_fd)
{
    struct pollfd p = { .fd = stop_fd, .events = POLLIN };
    return atomic_load(&s->given_up) || (stop_fd >= 0 && poll(&p, 1, 0) > 0);
}

/* pwrite for at >= 0, else write. 0, or -1 with errno. */
static int write_all(int fd, const void *data, size_t n, int64_t at)
{
    const char *p = data;
    while (n > 0) {
        ssize_t w = at >= 0 ? pwrite(fd, p, n, at) : write(fd, p, n);
        if (w < 0) {
            if (errno == EINTR || (errno == EAGAIN && wait_for(fd, POLLOUT) == 0)) {
                continue;
            }
            return -1;
        }
        p += w;
        n -= (size_t)w;
        at += at >= 0 ? w : 0;
    }
    return 0;
}

int object_write_all(int fd, const void *data, size_t n)
{
    return write_all(fd, data, n, -1);
}

int object_sink_init(struct object_sink *k, int fd, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return err_sys(err, "object store: output descriptor %d", fd);
    }
    *k = (struct object_sink){ .fd = fd, .positioned = S_ISREG(st.st_mode) };
    if (k->positioned) {
        k->start = lseek(fd, 0, SEEK_CUR);
        if (k->start < 0) {
            return err_sys(err, "object store: position of output");
        }
        k->at = k->start;
    }
    return 0;
}

int object_sink_write(struct object_sink *k, const void *data, size_t n, struct err *err)
{
    if (write_all(k->fd, data, n, k->positioned ? k->at : -1) < 0) {
        return err_sys(err, "object store: write output");
    }
    k->at += (int64_t)n;
    return 0;
}

int object_sink_keep(struct object_sink *k, struct err *err)
{
    if (k->positioned && lseek(k->fd, k->at, SEEK_SET) < 0) {
        return err_sys(err, "object store: position of output");
    }
    return 0;
}

void object_sink_undo(struct object_sink *k)
{
    if (k->positioned) {
        (void)!ftruncate(k->fd, k->start);
        (void)lseek(k->fd, k->start, SEEK_SET);
        k->at = k->start;
    }
}

int object_source_init(struct object_source *src, const struct object_put *put, struct err *err)
{
    struct stat st;
    if (fstat(put->fd, &st) < 0) {
        return err_sys(err, "object store: input descriptor %d", put->fd);
    }
    *src = (struct object_source){ .fd = put->fd, .regular = S_ISREG(st.st_mode), .size = -1 };
    if (!src->regular) {
        return 0;
    }
    src->start = lseek(put->fd, 0, SEEK_CUR);
    if (src->start < 0) {
        return err_sys(err, "object store: position of input");
    }
    src->size = st.st_size > src->start ? st.st_size - src->start : 0;
    return 0;
}

ssize_t object_source_read(const struct object_source *src, int64_t at, void *data, size_t n)
{
    size_t got = 0;
    while (got < n) {
        char *p = (char *)data + got;
        ssize_t r = src->regular ? pread(src->fd, p, n - got, src->start + at + (int64_t)got)
                                 : read(src->fd, p, n - got);
        if (r == 0) {
            break;
        }
        if (r < 0) {
            if (errno == EINTR || (errno == EAGAIN && wait_for(src->fd, POLLIN) == 0)) {
                continue;
            }
            return -1;
        }
        got += (size_t)r;
    }
    return (ssize_t)got;
}

int object_source_drain(const struct object_source *src, struct object_put *put, int out,
                        const char *out_path, struct err *err)
{
    cleanup_free char *chunk = malloc(OBJECT_CHUNK_BYTES);
    if (!chunk) {
        abort();
    }
    int64_t max = put->max_bytes > 0 ? put->max_bytes : OBJECT_SIZE_MAX, at = 0;
    struct object_hash h;
    object_hash_init(&h);
    for (;;) {
        size_t want = OBJECT_CHUNK_BYTES;
        if (put->size_bytes >= 0 && (int64_t)want > put->size_bytes - at) {
            want = (size_t)(put->size_bytes - at);
        }
        ssize_t n = want ? object_source_read(src, at, chunk, want) : 0;
        if (n < 0) {
            return err_sys(err, "object store: read input");
        }
        if (n == 0) {
            break;
        }
        if (n > max - at) {
            return err_set(err, ERR_TOO_LARGE, "object of more than %" PRId64 " bytes", max);
        }
        object_hash_add(&h, chunk, (size_t)n);
        if (out >= 0 && object_write_all(out, chunk, (size_t)n) < 0) {
            return err_sys(err, "object store: write %s", out_path);
        }
        at += n;
    }
    if (put->size_bytes >= 0 && at != put->size_bytes) {
        return err_set(err, ERR_INVALID,
                       "object of %" PRId64 " bytes announced, input ended after %" PRId64,
                       put->size_bytes, at);
    }
    struct object_id id;
    object_id_from(&id, &h);
    if (put->want && strcmp(put->want->hex, id.hex) != 0) {
        return object_corrupt(put->want, &id, "the input", err);
    }
    put->ret_id = id;
    put->ret_size_bytes = at;
    return 0;
}
