/* Uploads: one PUT, or parts. Each body is signed with its own SHA-256, so the server refuses what
 * the network damaged; for a single PUT that is the object's name itself. An upload in parts that
 * fails is aborted, since the parts of a forgotten one are stored and paid for without being
 * visible. */
#include "common/store/object_s3.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"

#define UPLOAD_ID_MAX 1024
#define COMPLETE_MAX (S3_PARTS_MAX * (2 * S3_ETAG_MAX + 80) + 256)

struct upload {
    struct object_s3 *s;
    const struct object_source *src;
    int64_t size;
    const struct stat *before; /* of the source, NULL: it cannot change */
    struct s3_plan plan;
    char key[S3_KEY_MAX];
    char id[3 * UPLOAD_ID_MAX]; /* percent-encoded */
    char (*etags)[S3_ETAG_MAX]; /* plan.parts */
    struct s3_response r;
};

static int hash_part(const struct object_source *src, int64_t at, int64_t n,
                     struct object_id *ret_hash, struct err *err)
{
    cleanup_free uint8_t *chunk = malloc(OBJECT_CHUNK_BYTES);
    if (!chunk) {
        abort();
    }
    struct object_hash h;
    object_hash_init(&h);
    for (int64_t done = 0; done < n;) {
        int64_t want = n - done < OBJECT_CHUNK_BYTES ? n - done : OBJECT_CHUNK_BYTES;
        ssize_t got = object_source_read(src, at + done, chunk, (size_t)want);
        if (got <= 0) {
            return got < 0 ? err_sys(err, "object store: read input")
                           : err_set(err, ERR_INVALID, "object store: the input became shorter");
        }
        object_hash_add(&h, chunk, (size_t)got);
        done += got;
    }
    object_id_from(ret_hash, &h);
    return 0;
}

/* The file may not change between its digest and its last part. */
static int same_file(int fd, const struct stat *before, struct err *err)
{
    struct stat now;
    if (fstat(fd, &now) < 0) {
        return err_sys(err, "object store: input");
    }
    if (now.st_size != before->st_size || now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
        now.st_ctim.tv_nsec != before->st_ctim.tv_nsec) {
        return err_set(err, ERR_INVALID, "object store: the input changed while it was stored");
    }
    return 0;
}

static int begin(struct upload *u, struct err *err)
{
    char id[UPLOAD_ID_MAX];
    struct s3_request q =
        S3_REQUEST(.method = "POST", .key = u->key, .query = "uploads=", .text = "");
    int rc = s3_send(u->s, &q, &u->r, err);
    if (rc < 0) {
        return rc;
    }
    size_t pos = 0;
    if (!u->r.text.data ||
        !s3_xml_text(u->r.text.data, u->r.text.len, &pos, "UploadId", id, sizeof id) || !id[0]) {
        return err_set(err, ERR_PROTOCOL, "s3: POST bucket %s key %s: no UploadId in the answer",
                       u->s->o.bucket, u->key);
    }
    return s3_encode(id, false, u->id, sizeof u->id, err);
}

static int send_part(struct upload *u, int i, struct err *err)
{
    int64_t at = i * u->plan.part_bytes;
    int64_t n = u->size - at < u->plan.part_bytes ? u->size - at : u->plan.part_bytes;
    struct object_id hash;
    int rc = hash_part(u->src, at, n, &hash, err);
    if (rc < 0) {
        return rc;
    }
    char query[S3_QUERY_MAX];
    (void)snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", i + 1, u->id);
    struct s3_request q = S3_REQUEST(.method = "PUT", .key = u->key, .query = query);
    q.body_fd = u->src->fd;
    q.body_at = u->src->start + at;
    q.body_bytes = n;
    q.body_sha256 = hash.hex;
    if ((rc = s3_send(u->s, &q, &u->r, err)) < 0) {
        return rc;
    }
    if (!u->r.etag[0]) {
        return err_set(err, ERR_PROTOCOL, "s3: PUT bucket %s key %s part %d: no ETag in the answer",
                       u->s->o.bucket, u->key, i + 1);
    }
    (void)snprintf(u->etags[i], S3_ETAG_MAX, "%s", u->r.etag);
    return 0;
}

static int complete_text(const struct upload *u, struct buf *b, struct err *err)
{
    int rc = buf_add_str(b, "<CompleteMultipartUpload>", err);
    for (int i = 0; rc >= 0 && i < u->plan.parts; i++) {
        rc = buf_addf(b, err, "<Part><PartNumber>%d</PartNumber><ETag>", i + 1);
        for (const char *c = u->etags[i]; rc >= 0 && *c; c++) {
            rc = *c == '&'   ? buf_add_str(b, "&amp;", err)
                 : *c == '<' ? buf_add_str(b, "&lt;", err)
                             : buf_add(b, c, 1, err);
        }
        rc = rc < 0 ? rc : buf_add_str(b, "</ETag></Part>", err);
    }
    return rc < 0 ? rc : buf_add_str(b, "</CompleteMultipartUpload>", err);
}

/* S3 answers 200 before it knows, and then may put an error document into the body. And an answer
 * may be lost on its way: the upload is then complete and its id unknown. */
static int complete(struct upload *u, const struct object_id *id, struct err *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_init(&text, COMPLETE_MAX);
    int rc = complete_text(u, &text, err), attempt = 0;
    if (rc < 0) {
        return rc;
    }
    char query[S3_QUERY_MAX];
    (void)snprintf(query, sizeof query, "uploadId=%s", u->id);
    struct s3_request q =
        S3_REQUEST(.method = "POST", .key = u->key, .query = query, .text = text.data);
    struct err mine = { 0 };
    for (;;) {
        enum s3_outcome o = s3_try(u->s, &q, &u->r, &mine);
        size_t pos = 0;
        char code[64];
        if (o == S3_DONE && u->r.text.len > 0 &&
            s3_xml_text(u->r.text.data, u->r.text.len, &pos, "Code", code, sizeof code)) {
            (void)err_set(&mine, ERR_UNAVAILABLE,
                          "s3: POST bucket %s key %s: completing the upload: %s", u->s->o.bucket,
                          u->key, code);
            o = S3_AGAIN;
        }
        if (o == S3_DONE) {
            return 0;
        }
        int64_t there;
        if (strcmp(u->r.code, "NoSuchUpload") == 0 &&
            s3_head(&u->s->base, id, -1, &there, NULL) == 0 && there == u->size) {
            return 0;
        }
        if (o == S3_FINAL || !s3_again(u->s, -1, &attempt, &mine)) {
            if (err) {
                *err = mine;
            }
            return -mine.code;
        }
    }
}

static void abort_upload(struct upload *u)
{
    char query[S3_QUERY_MAX];
    (void)snprintf(query, sizeof query, "uploadId=%s", u->id);
    struct s3_request q = S3_REQUEST(.method = "DELETE", .key = u->key, .query = query);
    struct err ignored; /* the upload's own error is the one to tell */
    (void)!s3_send(u->s, &q, &u->r, &ignored);
}

static int send_parts(struct upload *u, const struct object_id *id, struct err *err)
{
    int rc = begin(u, err);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; rc == 0 && i < u->plan.parts; i++) {
        rc = send_part(u, i, err);
    }
    if (rc == 0 && u->before) {
        rc = same_file(u->src->fd, u->before, err);
    }
    if (rc == 0) {
        rc = complete(u, id, err);
    }
    if (rc < 0) {
        abort_upload(u);
    }
    return rc;
}

int s3_upload(struct object_s3 *s, const struct object_source *src, int64_t size,
              const struct object_id *id, const struct stat *before, struct err *err)
{
    assert(src->regular);
    struct upload u = { .s = s, .src = src, .size = size, .before = before };
    int rc = s3_plan(size, s->o.part_bytes, &u.plan, err);
    if (rc < 0) {
        return rc;
    }
    s3_key(s, id, u.key);
    s3_response_init(&u.r);
    if (u.plan.multipart) {
        u.etags = calloc((size_t)u.plan.parts, sizeof *u.etags);
        if (!u.etags) {
            abort();
        }
        rc = send_parts(&u, id, err);
        free(u.etags);
    } else {
        struct s3_request q = S3_REQUEST(.method = "PUT", .key = u.key);
        q.body_fd = src->fd;
        q.body_at = src->start;
        q.body_bytes = size;
        q.body_sha256 = id->hex;
        rc = s3_send(s, &q, &u.r, err);
    }
    cleanup_s3_response_fn(&u.r);
    return rc;
}
