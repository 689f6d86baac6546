/* Downloads. One that breaks goes on from where it broke, by a range: what arrived is kept and
 * hashed already, so a pipe can be fed too, and a connection that fails every gigabyte does not
 * matter. */
#include "common/store/object_s3.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct download {
    const struct object_id *id;
    struct object_sink *sink;
    struct object_hash *hash; /* NULL: a range, cannot be checked */
    const struct s3_response *response;
    int64_t first, length; /* length -1: to the end */
    int64_t done;
    int stop_fd;
    bool fresh; /* nothing of this answer was seen */
};

static int on_body(void *ctx, const void *data, size_t n, struct err *err)
{
    struct download *d = ctx;
    if (d->fresh) { /* the first bytes of an answer: are they those that were asked for? */
        int64_t asked = d->first + d->done;
        int64_t come = d->response->status == 206 ? d->response->range_first : 0;
        if (come != asked) {
            return err_set(err, ERR_PROTOCOL,
                           "object %s: asked for bytes from %" PRId64
                           ", the server sends from %" PRId64,
                           d->id->hex, asked, come);
        }
        d->fresh = false;
    }
    if (d->length >= 0 && (int64_t)n > d->length - d->done) {
        return err_set(err, ERR_PROTOCOL, "object %s: more bytes than asked for", d->id->hex);
    }
    if (d->hash) {
        object_hash_add(d->hash, data, n);
    }
    d->done += (int64_t)n;
    return object_sink_write(d->sink, data, n, err);
}

/* One attempt; *d says how far it came. */
static enum s3_outcome attempt_once(struct object_s3 *s, struct download *d, struct s3_response *r,
                                    struct err *err)
{
    char key[S3_KEY_MAX];
    s3_key(s, d->id, key);
    d->response = r;
    d->fresh = true;
    bool all = d->length < 0 && d->done == 0;
    struct s3_request q = S3_REQUEST(.method = "GET", .key = key, .on_body = on_body, .ctx = d);
    q.stop_fd = d->stop_fd;
    if (!all) {
        q.range_first = d->first + d->done;
        q.range_last = d->length < 0 ? -1 : d->first + d->length - 1;
    }
    return s3_try(s, &q, r, err);
}

static int download(struct object_s3 *s, struct download *d, struct err *err)
{
    cleanup_s3_response struct s3_response r;
    s3_response_init(&r);
    struct err mine = { 0 };
    int attempt = 0;
    for (;;) {
        int64_t before = d->done;
        enum s3_outcome o = attempt_once(s, d, &r, &mine);
        if (o == S3_DONE && d->length >= 0 && d->done < d->length) {
            return err_set(err, ERR_INVALID,
                           "object %s: range %" PRId64 "+%" PRId64 " goes beyond its end, %" PRId64,
                           d->id->hex, d->first, d->length, d->first + d->done);
        }
        if (o == S3_DONE) {
            return 0;
        }
        if (d->done - before >= S3_PROGRESS_BYTES) {
            attempt = 0;
        }
        if (o == S3_FINAL || !s3_again(s, d->stop_fd, &attempt, &mine)) {
            if (err) {
                *err = mine;
            }
            return -mine.code;
        }
    }
}

int s3_get(struct object_store *s, const struct object_id *id, int fd, int64_t *ret_size,
           struct err *err)
{
    struct object_sink sink;
    int rc = object_sink_init(&sink, fd, err);
    if (rc < 0) {
        return rc;
    }
    struct object_hash h;
    object_hash_init(&h);
    struct download d = { .id = id, .sink = &sink, .hash = &h, .length = -1, .stop_fd = -1 };
    rc = download(s3_of(s), &d, err);
    if (rc == 0) {
        struct object_id is;
        object_id_from(&is, &h);
        rc = strcmp(is.hex, id->hex) == 0 ? 0 : object_corrupt(id, &is, s->name, err);
    }
    if (rc < 0) {
        object_sink_undo(&sink);
        return rc;
    }
    *ret_size = d.done;
    return object_sink_keep(&sink, err);
}

int s3_get_range(struct object_store *s, const struct object_id *id, int64_t offset, int64_t length,
                 int fd, int64_t fd_offset, int stop_fd, struct err *err)
{
    assert(length > 0);
    struct object_sink sink = { .fd = fd, .positioned = true, .at = fd_offset };
    struct download d = {
        .id = id, .sink = &sink, .first = offset, .length = length, .stop_fd = stop_fd
    };
    return download(s3_of(s), &d, err);
}
