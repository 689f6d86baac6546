/* The S3 driver's table of functions: sizes, deletes, and which way a put goes.
 *
 * A body must be readable twice, for its digest and for sending (and again when a request is
 * repeated), so what comes from a pipe is first written to a temporary file. Objects that are there
 * already with the right size are not sent. */
#include "common/store/object_s3.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"

void s3_key(const struct object_s3 *s, const struct object_id *id, char out[S3_KEY_MAX])
{
    char path[OBJECT_PATH + 1];
    object_id_path(id, path);
    (void)snprintf(out, S3_KEY_MAX, "%s%s", s->o.prefix, path);
}

/* A 404 to HEAD has no body that would tell an absent object from an absent bucket. */
static int bucket_there(struct object_s3 *s, int stop_fd, struct err *err)
{
    if (atomic_load(&s->bucket_seen)) {
        return 0;
    }
    cleanup_s3_response struct s3_response r;
    s3_response_init(&r);
    struct s3_request q = S3_REQUEST(.method = "GET", .query = "list-type=2&max-keys=1&prefix=");
    q.stop_fd = stop_fd;
    return s3_send(s, &q, &r, err);
}

static int head(struct object_store *store, const struct object_id *id, int stop_fd,
                int64_t *ret_size, int64_t *ret_modified_ms, struct err *err)
{
    struct object_s3 *s = s3_of(store);
    char key[S3_KEY_MAX];
    s3_key(s, id, key);
    cleanup_s3_response struct s3_response r;
    s3_response_init(&r);
    struct s3_request q = S3_REQUEST(.method = "HEAD", .key = key);
    q.stop_fd = stop_fd;
    int rc = s3_send(s, &q, &r, err);
    if (rc == -ERR_NOT_FOUND) {
        int bucket = bucket_there(s, stop_fd, err);
        return bucket < 0 ? bucket : s3_refused(s, &q, &r, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (r.length_bytes < 0) {
        return err_set(err, ERR_PROTOCOL, "s3: HEAD bucket %s key %s: no size in the answer",
                       s->o.bucket, key);
    }
    *ret_size = r.length_bytes;
    *ret_modified_ms = r.modified_ms;
    return 0;
}

int s3_head(struct object_store *store, const struct object_id *id, int stop_fd, int64_t *ret_size,
            struct err *err)
{
    int64_t modified_ms;
    return head(store, id, stop_fd, ret_size, &modified_ms, err);
}

/* 1: there and young, the put is done. 0: not, or it may not be asked (a key that may only put), or
 * it is old: send it. */
static int there_already(struct object_store *s, struct object_put *put, const struct object_id *id,
                         int64_t size, struct err *err)
{
    int64_t there, modified_ms;
    int rc = head(s, id, -1, &there, &modified_ms, err);
    if (rc == -ERR_NOT_FOUND || rc == -ERR_REFUSED ||
        (rc == 0 && (there != size || object_is_old(s, modified_ms)))) {
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    put->ret_id = *id;
    put->ret_size_bytes = size;
    put->ret_existed = true;
    return 1;
}

/* Digest, then the body unless it is there. src is a regular file. */
static int put_regular(struct object_store *store, const struct object_source *src,
                       struct object_put *put, struct err *err)
{
    struct stat before;
    if (fstat(src->fd, &before) < 0) {
        return err_sys(err, "object store: input");
    }
    int rc = object_source_drain(src, put, -1, NULL, err);
    if (rc < 0 || (rc = there_already(store, put, &put->ret_id, put->ret_size_bytes, err)) != 0) {
        return rc < 0 ? rc : 0;
    }
    return s3_upload(s3_of(store), src, put->ret_size_bytes, &put->ret_id, &before, err);
}

static int put_stream(struct object_store *store, const struct object_source *src,
                      struct object_put *put, struct err *err)
{
    struct object_tmp tmp;
    int rc = object_tmp_new(store, &tmp, err);
    if (rc < 0) {
        return rc;
    }
    rc = object_source_drain(src, put, tmp.fd, tmp.path, err);
    if (rc == 0) {
        rc = there_already(store, put, &put->ret_id, put->ret_size_bytes, err);
    }
    if (rc == 0) {
        struct object_source spool = { .fd = tmp.fd, .regular = true, .size = put->ret_size_bytes };
        rc = s3_upload(s3_of(store), &spool, put->ret_size_bytes, &put->ret_id, NULL, err);
    }
    object_tmp_done(&tmp);
    return rc < 0 ? rc : 0;
}

static int s3_put(struct object_store *s, struct object_put *put, struct err *err)
{
    struct object_source src;
    int rc = object_source_init(&src, put, err);
    if (rc < 0) {
        return rc;
    }
    int64_t announced = put->size_bytes >= 0 ? put->size_bytes : src.size;
    if (put->want && announced >= 0 &&
        (rc = there_already(s, put, put->want, announced, err)) != 0) {
        return rc < 0 ? rc : 0;
    }
    return src.regular ? put_regular(s, &src, put, err) : put_stream(s, &src, put, err);
}

static int s3_remove(struct object_store *store, const struct object_id *id, struct err *err)
{
    struct object_s3 *s = s3_of(store);
    char key[S3_KEY_MAX];
    s3_key(s, id, key);
    cleanup_s3_response struct s3_response r;
    s3_response_init(&r);
    struct s3_request q = S3_REQUEST(.method = "DELETE", .key = key);
    int rc = s3_send(s, &q, &r, err);
    /* S3 says 204 for an absent object, Swift says 404 */
    return rc == -ERR_NOT_FOUND ? 0 : rc;
}

static int s3_sweep(struct object_store *s, const struct object_id *id, int64_t before_ms,
                    struct err *err)
{
    int64_t size, modified_ms;
    int rc = head(s, id, -1, &size, &modified_ms, err);
    if (rc == -ERR_NOT_FOUND || (rc == 0 && (modified_ms < 0 || modified_ms >= before_ms))) {
        return 0;
    }
    rc = rc < 0 ? rc : s3_remove(s, id, err);
    return rc < 0 ? rc : 1;
}

static int s3_presign(struct object_store *store, const struct object_id *id, int expires_s,
                      char out[OBJECT_URL_MAX], struct err *err)
{
    struct object_s3 *s = s3_of(store);
    if (!s->o.access_key[0]) {
        return err_set(err, ERR_UNSUPPORTED,
                       "pre-signed URL: there are no credentials to sign with");
    }
    char key[S3_KEY_MAX], path[S3_KEY_MAX + sizeof s->base_path + 1];
    s3_key(s, id, key);
    (void)snprintf(path, sizeof path, "%s/%s", s->base_path, key);
    struct s3_presign in = { .scheme = s->scheme,
                             .host = s->host,
                             .path = path,
                             .access_key = s->o.access_key,
                             .secret_key = s->o.secret_key,
                             .session_token = s->o.session_token,
                             .region = s->o.region,
                             .at_s = wall_ms() / 1000,
                             .expires_s = expires_s };
    return s3_presign_get(&in, out, err);
}

static void s3_free(struct object_store *store)
{
    struct object_s3 *s = s3_of(store);
    for (int i = 0; i < s->n_idle; i++) {
        s3_handle_done(&s->idle[i]);
    }
    (void)pthread_mutex_destroy(&s->lock);
    sodium_memzero(&s->o, sizeof s->o);
    free(s);
}

static const struct object_ops s3_ops = {
    .free = s3_free,
    .put = s3_put,
    .get = s3_get,
    .get_range = s3_get_range,
    .size = s3_head,
    .remove = s3_remove,
    .sweep = s3_sweep,
    .list = s3_list,
    .presign = s3_presign,
};

/* scheme, host and base_path from endpoint, bucket and style. */
static int resolve(struct object_s3 *s, struct err *err)
{
    const char *e = s->o.endpoint;
    bool tls = strncmp(e, "https://", 8) == 0;
    if (!tls && strncmp(e, "http://", 7) != 0) {
        return err_set(err, ERR_INVALID, "s3.endpoint = \"%.200s\": must be http[s]://host[:port]",
                       e);
    }
    const char *host = e + (tls ? 8 : 7);
    size_t n = strcspn(host, "/?#");
    if (n == 0 || (host[n] && strcmp(host + n, "/") != 0) || memchr(host, '@', n)) {
        return err_set(err, ERR_INVALID, "s3.endpoint = \"%.200s\": must be http[s]://host[:port]",
                       e);
    }
    /* the port that the scheme has anyway is not sent, so it may not be signed either */
    const char *usual = tls ? ":443" : ":80";
    size_t u = strlen(usual);
    if (n > u && memcmp(host + n - u, usual, u) == 0) {
        n -= u;
    }
    (void)snprintf(s->scheme, sizeof s->scheme, tls ? "https" : "http");
    bool virtual = s->o.style == OBJECT_S3_VIRTUAL;
    (void)snprintf(s->host, sizeof s->host, "%s%s%.*s", virtual ? s->o.bucket : "",
                   virtual ? "." : "", (int)n, host);
    (void)snprintf(s->base_path, sizeof s->base_path, virtual ? "" : "/%s", s->o.bucket);
    return 0;
}

static int check(const struct object_s3_options *o, struct err *err)
{
    static const char name_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    size_t n = strlen(o->bucket), p = strlen(o->prefix);
    if (n < 3 || n > 63 || strspn(o->bucket, name_chars) != n) {
        return err_set(err, ERR_INVALID,
                       "s3.bucket = \"%s\": must be 3 to 63 of a-z, 0-9, '.' and '-'", o->bucket);
    }
    if (o->style == OBJECT_S3_VIRTUAL && strchr(o->bucket, '.') &&
        strncmp(o->endpoint, "https:", 6) == 0) {
        return err_set(err, ERR_INVALID,
                       "s3.bucket = \"%s\": a name with dots has no TLS certificate as a host; "
                       "set s3.style = path",
                       o->bucket);
    }
    if (p > 0 && (o->prefix[0] == '/' || o->prefix[p - 1] != '/' ||
                  strspn(o->prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                    "0123456789._/-") != p)) {
        return err_set(err, ERR_INVALID,
                       "s3.prefix = \"%s\": letters, digits, '.', '_', '-' and '/', no '/' at the "
                       "start, one at the end",
                       o->prefix);
    }
    return 0;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void curl_start(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

int object_s3_open(struct object_store **ret_store, const struct object_options *options,
                   struct err *err)
{
    const struct object_s3_options *o = &options->s3;
    assert(o->part_bytes >= 1 && o->attempts_max >= 1 && o->connect_timeout_ms > 0 &&
           o->stall_timeout_s > 0 && o->retry_base_ms >= 0 && o->retry_max_ms >= 0);
    int rc = check(o, err);
    if (rc < 0) {
        return rc;
    }
    (void)pthread_once(&curl_once, curl_start);
    cleanup_free struct object_s3 *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    s->base.ops = &s3_ops;
    s->o = *o;
    atomic_init(&s->bucket_seen, false);
    if ((rc = resolve(s, err)) < 0 || (rc = object_tmp_prepare(&s->base, options->dir, err)) < 0) {
        return rc;
    }
    (void)snprintf(s->base.name, sizeof s->base.name, "s3 %s/%s at %.500s", o->bucket, o->prefix,
                   o->endpoint);
    (void)pthread_mutex_init(&s->lock, NULL);
    *ret_store = &TAKE_PTR(s)->base;
    return 0;
}
