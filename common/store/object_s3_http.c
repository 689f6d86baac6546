/* One HTTP request to S3: signed by libcurl, answer sorted into done, again, final.
 *
 * Handles are kept between requests, and with them their connections; a handle belongs to one
 * thread while it is out. What may be tried again is decided here alone: connection errors,
 * time-outs, 429 and 5xx. Any other 4xx is the answer. Redirects are not followed: a redirect from
 * S3 means a wrong region, which is a mistake in the settings. */
#include "common/store/object_s3.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/clock.h"

#define GIVE_UP_LOOK_MS 100

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ERROR_TEXT_MAX (64 * 1024) /* of an error document; the rest is passed over */

struct transfer {
    struct object_s3 *s;
    const struct s3_request *q;
    struct s3_response *r;
    struct s3_handle h;
    int64_t sent;
    curl_off_t moved; /* bytes in both directions when last looked at */
    int64_t moved_ms; /* since when it is so many (mono_ms) */
    bool stalled;
    int rc; /* of a callback */
    struct err err;
};

void s3_response_init(struct s3_response *r)
{
    memset(r, 0, sizeof *r);
    r->length_bytes = r->range_first = r->modified_ms = -1;
    buf_init(&r->text, S3_TEXT_MAX);
}

/* ---- callbacks ---- */

static size_t on_read(char *data, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    int64_t left = t->q->body_bytes - t->sent;
    size_t want = size * n;
    if ((int64_t)want > left) {
        want = (size_t)left;
    }
    if (want == 0) {
        return 0;
    }
    ssize_t got;
    do {
        got = pread(t->q->body_fd, data, want, t->q->body_at + t->sent);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        t->rc = got < 0 ? err_sys(&t->err, "object store: read input")
                        : err_set(&t->err, ERR_INVALID, "object store: the input became shorter");
        return CURL_READFUNC_ABORT;
    }
    t->sent += got;
    return (size_t)got;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct transfer *t = arg;
    if (origin != SEEK_SET || offset < 0 || offset > t->q->body_bytes) {
        return CURL_SEEKFUNC_CANTSEEK;
    }
    t->sent = offset;
    return CURL_SEEKFUNC_OK;
}

static size_t on_write(char *data, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * n;
    (void)curl_easy_getinfo(t->h.easy, CURLINFO_RESPONSE_CODE, &t->r->status);
    if (t->r->status < 200 || t->r->status > 299) {
        size_t keep = t->r->text.len < ERROR_TEXT_MAX ? ERROR_TEXT_MAX - t->r->text.len : 0;
        keep = keep < len ? keep : len;
        return buf_add(&t->r->text, data, keep, NULL) < 0 ? 0 : len;
    }
    t->rc = t->q->on_body ? t->q->on_body(t->q->ctx, data, len, &t->err)
                          : buf_add(&t->r->text, data, len, &t->err);
    return t->rc < 0 ? 0 : len;
}

/* libcurl's own low-speed limit looks at the mean of the last five seconds, which after a fast
 * start stays above any limit for as long. */
static int on_progress(void *arg, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    struct transfer *t = arg;
    (void)down_total;
    (void)up_total;
    int64_t now = mono_ms();
    if (down + up != t->moved) {
        t->moved = down + up;
        t->moved_ms = now;
    }
    t->stalled = now - t->moved_ms >= (int64_t)t->s->o.stall_timeout_s * 1000;
    return t->stalled || object_stopped(&t->s->base, t->q->stop_fd);
}

/* The value of header `name` in line[0..n), trimmed, cut into out; false when it is another. */
static bool header_is(const char *line, size_t n, const char *name, char *out, size_t room)
{
    size_t len = strlen(name);
    if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':') {
        return false;
    }
    const char *v = line + len + 1;
    size_t left = n - len - 1;
    while (left > 0 && (*v == ' ' || *v == '\t')) {
        v++;
        left--;
    }
    while (left > 0 && strchr(" \t\r\n", v[left - 1])) {
        left--;
    }
    (void)snprintf(out, room, "%.*s", (int)left, v);
    return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * n;
    char value[128];
    int64_t first;
    if (header_is(line, len, "etag", t->r->etag, sizeof t->r->etag) ||
        header_is(line, len, "x-amz-bucket-region", t->r->region, sizeof t->r->region)) {
        return len;
    }
    if (header_is(line, len, "content-range", value, sizeof value) &&
        sscanf(value, "bytes %" SCNd64 "-", &first) == 1) {
        t->r->range_first = first;
    } else if (header_is(line, len, "last-modified", value, sizeof value)) {
        time_t at = curl_getdate(value, NULL);
        t->r->modified_ms = at < 0 ? -1 : (int64_t)at * 1000;
    }
    return len;
}

/* ---- handles ---- */

static struct s3_handle handle_out(struct object_s3 *s)
{
    (void)pthread_mutex_lock(&s->lock);
    struct s3_handle h = s->n_idle > 0 ? s->idle[--s->n_idle] : (struct s3_handle){ 0 };
    (void)pthread_mutex_unlock(&s->lock);
    if (!h.easy) {
        h = (struct s3_handle){ curl_easy_init(), curl_multi_init() };
        if (!h.easy || !h.multi) {
            abort();
        }
    }
    return h;
}

void s3_handle_done(struct s3_handle *h)
{
    curl_easy_cleanup(h->easy);
    (void)curl_multi_cleanup(h->multi);
}

static void handle_back(struct object_s3 *s, struct s3_handle h)
{
    curl_easy_reset(h.easy); /* keeps the connection */
    (void)pthread_mutex_lock(&s->lock);
    bool kept = s->n_idle < S3_IDLE_MAX;
    if (kept) {
        s->idle[s->n_idle++] = h;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (!kept) {
        s3_handle_done(&h);
    }
}

/* As curl_easy_perform, which looks at nothing else for up to a second. */
static CURLcode perform(const struct s3_handle *h, int stop_fd)
{
    struct curl_waitfd stop = { .fd = stop_fd, .events = CURL_WAIT_POLLIN };
    int running = 1, left;
    CURLcode code = CURLE_ABORTED_BY_CALLBACK;
    if (curl_multi_add_handle(h->multi, h->easy) != CURLM_OK) {
        return CURLE_OUT_OF_MEMORY;
    }
    while (curl_multi_perform(h->multi, &running) == CURLM_OK && running > 0 &&
           curl_multi_poll(h->multi, &stop, stop_fd >= 0, GIVE_UP_LOOK_MS, NULL) == CURLM_OK) {
    }
    for (const CURLMsg *m; (m = curl_multi_info_read(h->multi, &left));) {
        code = m->msg == CURLMSG_DONE ? m->data.result : code;
    }
    (void)curl_multi_remove_handle(h->multi, h->easy);
    return code;
}

/* ---- request ---- */

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    char line[2200];
    int n = snprintf(line, sizeof line, "%s: %s", name, value);
    assert(n > 0 && (size_t)n < sizeof line);
    struct curl_slist *more = curl_slist_append(list, line);
    if (!more) {
        abort();
    }
    return more;
}

static struct curl_slist *make_headers(const struct object_s3 *s, const struct s3_request *q)
{
    struct curl_slist *h = NULL;
    char hash[OBJECT_HEX + 1];
    const char *sha256 = q->body_bytes >= 0 ? q->body_sha256 : EMPTY_SHA256;
    if (q->text) {
        uint8_t digest[crypto_hash_sha256_BYTES];
        (void)crypto_hash_sha256(digest, (const uint8_t *)q->text, strlen(q->text));
        (void)sodium_bin2hex(hash, sizeof hash, digest, sizeof digest);
        sha256 = hash;
        h = add_header(h, "Content-Type", "application/octet-stream");
    }
    h = add_header(h, "x-amz-content-sha256", sha256);
    if (s->o.session_token[0]) {
        h = add_header(h, "x-amz-security-token", s->o.session_token);
    }
    return h;
}

static void set_options(struct transfer *t, const char *url, struct curl_slist *headers,
                        char error_text[CURL_ERROR_SIZE])
{
    const struct object_s3_options *o = &t->s->o;
    const struct s3_request *q = t->q;
    CURL *c = t->h.easy;
    char sign[128];
    (void)snprintf(sign, sizeof sign, "aws:amz:%s:s3", o->region);
    /* no option below can fail but for lack of memory, which shows in perform */
    (void)curl_easy_setopt(c, CURLOPT_URL, url);
    (void)curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error_text);
    (void)curl_easy_setopt(c, CURLOPT_USERAGENT, "brood/" BROOD_VERSION);
    (void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (o->access_key[0]) {
        (void)curl_easy_setopt(c, CURLOPT_AWS_SIGV4, sign);
        (void)curl_easy_setopt(c, CURLOPT_USERNAME, o->access_key);
        (void)curl_easy_setopt(c, CURLOPT_PASSWORD, o->secret_key);
    }
    (void)curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_timeout_ms);
    (void)curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    (void)curl_easy_setopt(c, CURLOPT_BUFFERSIZE, (long)OBJECT_CHUNK_BYTES);
    (void)curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, (long)OBJECT_CHUNK_BYTES);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_write);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    (void)curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    if (q->text) {
        (void)curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(q->text));
        (void)curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->text);
    } else if (q->body_bytes >= 0) {
        (void)curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->body_bytes);
        (void)curl_easy_setopt(c, CURLOPT_READFUNCTION, on_read);
        (void)curl_easy_setopt(c, CURLOPT_READDATA, t);
        (void)curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
        (void)curl_easy_setopt(c, CURLOPT_SEEKDATA, t);
    } else if (strcmp(q->method, "HEAD") == 0) {
        (void)curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    }
    (void)curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
    if (q->range_first >= 0) {
        char range[64];
        int n = snprintf(range, sizeof range, "%" PRId64 "-", q->range_first);
        if (q->range_last >= 0) {
            (void)snprintf(range + n, sizeof range - (size_t)n, "%" PRId64, q->range_last);
        }
        (void)curl_easy_setopt(c, CURLOPT_RANGE, range);
    }
}

/* ---- outcome ---- */

static bool curl_again(CURLcode c)
{
    switch (c) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
        return true;
    default:
        return false;
    }
}

/* "s3: GET bucket B key K" */
static const char *what(const struct object_s3 *s, const struct s3_request *q, char out[700])
{
    (void)snprintf(out, 700, q->key ? "s3: %s bucket %s key %s" : "s3: %s bucket %s%s", q->method,
                   s->o.bucket, q->key ? q->key : "");
    return out;
}

static enum s3_outcome transport_failed(struct transfer *t, CURLcode code, const char *error_text,
                                        struct err *err)
{
    char w[700];
    if (t->rc < 0) { /* ours: the disk, the sink */
        if (err) {
            *err = t->err;
        }
        return S3_FINAL;
    }
    if (object_stopped(&t->s->base, t->q->stop_fd)) {
        (void)err_set(err, ERR_STALE, "%s: %s: given up", what(t->s, t->q, w), t->s->host);
        return S3_FINAL;
    }
    if (t->stalled) {
        (void)err_set(err, ERR_TIMEOUT, "%s: %s: no byte moved for %d s", what(t->s, t->q, w),
                      t->s->host, t->s->o.stall_timeout_s);
        return S3_AGAIN;
    }
    bool again = curl_again(code);
    enum err_code kind = code == CURLE_OPERATION_TIMEDOUT ? ERR_TIMEOUT
                         : again                          ? ERR_UNAVAILABLE
                                                          : ERR_REFUSED;
    (void)err_set(err, kind, "%s: %s: %s", what(t->s, t->q, w), t->s->host,
                  error_text[0] ? error_text : curl_easy_strerror(code));
    return again ? S3_AGAIN : S3_FINAL;
}

static void read_error(struct s3_response *r)
{
    const char *xml = r->text.data ? r->text.data : "";
    size_t pos = 0;
    (void)s3_xml_text(xml, r->text.len, &pos, "Code", r->code, sizeof r->code);
    pos = 0;
    (void)s3_xml_text(xml, r->text.len, &pos, "Message", r->message, sizeof r->message);
}

int s3_refused(struct object_s3 *s, const struct s3_request *q, const struct s3_response *r,
               struct err *err)
{
    char w[700], hint[200] = "";
    enum err_code kind = ERR_REFUSED;
    if (strcmp(r->code, "NoSuchBucket") == 0) {
        (void)snprintf(hint, sizeof hint,
                       "; create the bucket \"%s\" at %.80s, or set s3.bucket to one that is there",
                       s->o.bucket, s->host);
    } else if (r->status == 404) {
        kind = ERR_NOT_FOUND;
    } else if (r->status == 416) {
        kind = ERR_INVALID;
    } else if (strcmp(r->code, "RequestTimeTooSkewed") == 0) {
        (void)snprintf(hint, sizeof hint, "; the clock of this machine is wrong");
    } else if (r->status == 401 || r->status == 403) {
        (void)snprintf(hint, sizeof hint,
                       "; see s3.access_key, s3.secret_key and the rights in docs/objects.md");
    } else if (r->status >= 300 && r->status < 400) {
        (void)snprintf(hint, sizeof hint, "; the bucket is elsewhere: s3.region%s%s",
                       r->region[0] ? " = " : "", r->region);
    } else if (s3_status_again(r->status)) {
        kind = ERR_UNAVAILABLE;
    }
    return err_set(err, kind, "%s: HTTP %ld%s%s%s%s%s", what(s, q, w), r->status,
                   r->code[0] ? " " : "", r->code, r->message[0] ? ": " : "", r->message, hint);
}

enum s3_outcome s3_try(struct object_s3 *s, const struct s3_request *q, struct s3_response *r,
                       struct err *err)
{
    char path[S3_KEY_MAX + 160], encoded[3 * sizeof path],
        url[3 * sizeof path + S3_QUERY_MAX + 700];
    char error_text[CURL_ERROR_SIZE] = "";
    buf_done(&r->text);
    s3_response_init(r);
    (void)snprintf(path, sizeof path, "%s/%s", s->base_path, q->key ? q->key : "");
    if (s3_encode(path, true, encoded, sizeof encoded, err) < 0) {
        return S3_FINAL;
    }
    (void)snprintf(url, sizeof url, "%s://%s%s%s%s", s->scheme, s->host, encoded,
                   q->query ? "?" : "", q->query ? q->query : "");
    struct transfer t = { .s = s, .q = q, .r = r, .h = handle_out(s), .moved_ms = mono_ms() };
    struct curl_slist *headers = make_headers(s, q);
    set_options(&t, url, headers, error_text);
    CURLcode code = perform(&t.h, q->stop_fd);
    curl_off_t length = -1;
    (void)curl_easy_getinfo(t.h.easy, CURLINFO_RESPONSE_CODE, &r->status);
    (void)curl_easy_getinfo(t.h.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    r->length_bytes = length;
    (void)curl_easy_setopt(t.h.easy, CURLOPT_HTTPHEADER, NULL);
    (void)curl_easy_setopt(t.h.easy, CURLOPT_ERRORBUFFER, NULL);
    handle_back(s, t.h);
    curl_slist_free_all(headers);
    /* A refusal may come while the body is still being sent, and the connection break then: what
     * the server said counts. */
    bool refused = r->status >= 300 && t.rc == 0;
    if (code != CURLE_OK && !refused) {
        return transport_failed(&t, code, error_text, err);
    }
    if (!refused) {
        atomic_store(&s->bucket_seen, true);
        return S3_DONE;
    }
    read_error(r);
    if (strcmp(r->code, "NoSuchKey") == 0) {
        atomic_store(&s->bucket_seen, true);
    }
    (void)s3_refused(s, q, r, err);
    return s3_status_again(r->status) ? S3_AGAIN : S3_FINAL;
}

bool s3_again(struct object_s3 *s, int stop_fd, int *attempt, struct err *err)
{
    if (++*attempt >= s->o.attempts_max) {
        if (err && s->o.attempts_max > 1) {
            (void)err_prefix(err, "after %d attempts", *attempt);
        }
        return false;
    }
    uint64_t random;
    randombytes_buf(&random, sizeof random);
    int64_t until_ms =
        mono_ms() + s3_backoff_ms(s->o.retry_base_ms, s->o.retry_max_ms, *attempt, random);
    for (int64_t left; (left = until_ms - mono_ms()) > 0 && !object_stopped(&s->base, stop_fd);) {
        sleep_ms(left < GIVE_UP_LOOK_MS ? left : GIVE_UP_LOOK_MS);
    }
    return true; /* given up: the attempt says so */
}

int s3_send(struct object_s3 *s, const struct s3_request *q, struct s3_response *r, struct err *err)
{
    struct err mine;
    int attempt = 0;
    for (;;) {
        enum s3_outcome o = s3_try(s, q, r, &mine);
        if (o == S3_DONE) {
            return 0;
        }
        if (o == S3_FINAL || !s3_again(s, q->stop_fd, &attempt, &mine)) {
            if (err) {
                *err = mine;
            }
            return -mine.code;
        }
    }
}
