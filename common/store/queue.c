/* The connection to Redis and what every command has in common.
 *
 * hiredis is blocking here; its socket timeout bounds every wait, and is raised for commands that
 * block on the server. After any error a hiredis context is finished: it is freed at once and the
 * next call makes a new one. */
#include "common/store/queue.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/queue_internal.h"

#define REDIS_PORT 6379

/* ---- arguments ---- */

void args_mem(struct args *a, const void *data, size_t len)
{
    assert(a->n < QUEUE_ARGS_MAX);
    a->v[a->n] = data ? data : "";
    a->len[a->n++] = len;
}

void args_str(struct args *a, const char *s)
{
    args_mem(a, s, strlen(s));
}

void args_int(struct args *a, int64_t v)
{
    assert(a->n < QUEUE_ARGS_MAX);
    (void)snprintf(a->scratch[a->n], sizeof a->scratch[0], "%lld", (long long)v);
    args_str(a, a->scratch[a->n]);
}

void args_read_group(struct args *a, const char *group, const char *consumer, int max,
                     int64_t block_ms, const char *key)
{
    args_strs(a, "XREADGROUP", "GROUP", group, consumer, "COUNT", NULL);
    args_int(a, max);
    if (block_ms > 0) {
        args_str(a, "BLOCK");
        args_int(a, block_ms);
    }
    args_strs(a, "STREAMS", key, ">", NULL);
}

void args_strs(struct args *a, ...)
{
    va_list ap;
    va_start(ap, a);
    for (const char *s; (s = va_arg(ap, const char *));) {
        args_str(a, s);
    }
    va_end(ap);
}

void args_eval(struct args *a, const char *script, const char *key)
{
    args_strs(a, "EVAL", script, "1", key, NULL);
}

/* ---- connection ---- */

static int lost(struct queue *q, const char *why, struct err *err)
{
    char text[160];
    (void)snprintf(text, sizeof text, "%s", why && *why ? why : "no answer");
    queue_close(q);
    return err_set(err, ERR_UNAVAILABLE,
                   "Redis not reachable at %s: start it, or run `brood up` (%s)", q->url, text);
}

static int broken(struct queue *q, struct err *err)
{
    if (q->ctx && q->ctx->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return lost(q, "no answer in time", err);
    }
    return lost(q, q->ctx ? q->ctx->errstr : NULL, err);
}

static struct timeval to_timeval(int64_t ms)
{
    return (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
}

static int connect_now(struct queue *q, struct err *err)
{
    queue_close(q);
    struct timeval tv = to_timeval(QUEUE_TIMEOUT_MS);
    if (strncmp(q->url, "unix://", 7) == 0) {
        q->ctx = redisConnectUnixWithTimeout(q->url + 7, tv);
    } else if (strncmp(q->url, "redis://", 8) == 0) {
        char host[256];
        (void)snprintf(host, sizeof host, "%s", q->url + 8);
        host[strcspn(host, "/")] = 0;
        char *colon = strrchr(host, ':'), *end = NULL;
        long port = REDIS_PORT;
        if (colon) {
            *colon = 0;
            port = strtol(colon + 1, &end, 10);
        }
        if (!host[0] || port < 1 || port > 65535 || (end && *end)) {
            return err_set(err, ERR_INVALID, "redis.url: \"%s\" is not redis://host[:port]",
                           q->url);
        }
        q->ctx = redisConnectWithTimeout(host, (int)port, tv);
    } else {
        return err_set(err, ERR_INVALID,
                       "redis.url: \"%s\" is neither unix:///path nor redis://host[:port]", q->url);
    }
    if (!q->ctx) {
        abort(); /* out of memory */
    }
    if (q->ctx->err) {
        return lost(q, q->ctx->errstr, err);
    }
    (void)fcntl(q->ctx->fd, F_SETFD, FD_CLOEXEC); /* hiredis 0.14 has no option for it */
    if (q->ctx->connection_type ==
        REDIS_CONN_TCP) { /* on another socket it would break the context */
        (void)redisEnableKeepAlive(q->ctx);
    }
    (void)redisSetTimeout(q->ctx, tv);
    q->timeout_ms = QUEUE_TIMEOUT_MS;
    return 0;
}

int queue_open(struct queue *q, const char *url, struct err *err)
{
    memset(q, 0, sizeof *q);
    if (strlen(url) >= sizeof q->url) {
        return err_set(err, ERR_TOO_LARGE, "redis.url: at most %d bytes", QUEUE_URL_MAX - 1);
    }
    memcpy(q->url, url, strlen(url) + 1);
    return queue_ping(q, err); /* a server that is loading or refuses us is not there either */
}

void queue_close(struct queue *q)
{
    if (q->ctx) {
        redisFree(q->ctx);
        q->ctx = NULL;
    }
}

int queue_ensure(struct queue *q, int64_t block_ms, struct err *err)
{
    assert(block_ms >= 0);
    if (!q->ctx) {
        int rc = connect_now(q, err);
        if (rc < 0) {
            return rc;
        }
    }
    int64_t want = block_ms + QUEUE_TIMEOUT_MS;
    if (want != q->timeout_ms) {
        if (redisSetTimeout(q->ctx, to_timeval(want)) != REDIS_OK) {
            return broken(q, err);
        }
        q->timeout_ms = want;
    }
    return 0;
}

/* ---- commands ---- */

static int error_reply(struct queue *q, const redisReply *r, struct err *err)
{
    static const char *const not_now[] = { "LOADING", "MASTERDOWN",  "READONLY",
                                           "NOAUTH",  "CLUSTERDOWN", NULL };
    for (int i = 0; not_now[i]; i++) {
        if (strncmp(r->str, not_now[i], strlen(not_now[i])) == 0) {
            return lost(q, r->str, err);
        }
    }
    return err_set(err, ERR_DB, "Redis: %.300s", r->str);
}

static int once(struct queue *q, const struct args *a, redisReply **ret_reply, struct err *err)
{
    redisReply *r = redisCommandArgv(q->ctx, a->n, (const char **)(uintptr_t)a->v, a->len);
    if (!r) {
        return broken(q, err);
    }
    *ret_reply = r;
    return 0;
}

static bool says(const redisReply *r, const char *word)
{
    return r->type == REDIS_REPLY_ERROR && strstr(r->str, word) != NULL;
}

int queue_command(struct queue *q, const struct args *a, int64_t block_ms, redisReply **ret_reply,
                  struct err *err)
{
    cleanup_reply redisReply *r = NULL;
    int rc = queue_ensure(q, block_ms, err);
    if (rc < 0 || (rc = once(q, a, &r, err)) < 0) {
        return rc;
    }
    if (says(r, "NOGROUP") ||
        says(r, "UNBLOCKED")) { /* in the text too: a script's error carries its prefix */
        freeReplyObject(r);
        r = NULL;
        if ((rc = queue_setup(q, err)) < 0 || (rc = queue_ensure(q, block_ms, err)) < 0 ||
            (rc = once(q, a, &r, err)) < 0) {
            return rc;
        }
    }
    if (r->type == REDIS_REPLY_ERROR) {
        return error_reply(q, r, err);
    }
    if (ret_reply) {
        *ret_reply = r;
        r = NULL;
    }
    return 0;
}

int queue_append(struct queue *q, const struct args *a, struct err *err)
{
    if (redisAppendCommandArgv(q->ctx, a->n, (const char **)(uintptr_t)a->v, a->len) != REDIS_OK) {
        return broken(q, err);
    }
    return 0;
}

int queue_replies(struct queue *q, int n, redisReply **ret_replies, struct err *err)
{
    int rc = 0, got = 0;
    for (int i = 0; i < n; i++) {
        redisReply *r = NULL;
        if (redisGetReply(q->ctx, (void **)&r) != REDIS_OK || !r) {
            rc = broken(q, err);
            break;
        }
        if (rc == 0 && r->type == REDIS_REPLY_ERROR) {
            rc = error_reply(q, r, err);
        }
        if (ret_replies) {
            ret_replies[got++] = r;
        } else {
            freeReplyObject(r);
        }
        if (!q->ctx) { /* error_reply gave the connection up */
            break;
        }
    }
    for (int i = 0; rc < 0 && i < got; i++) {
        freeReplyObject(ret_replies[i]);
        ret_replies[i] = NULL;
    }
    return rc;
}

int queue_ping(struct queue *q, struct err *err)
{
    struct args a = { .n = 0 };
    args_str(&a, "PING");
    return queue_command(q, &a, 0, NULL, err);
}

int queue_begin(struct queue *q, struct err *err)
{
    struct args multi = { .n = 0 };
    args_str(&multi, "MULTI");
    int rc = queue_ensure(q, 0, err);
    return rc < 0 ? rc : queue_append(q, &multi, err);
}

int queue_end(struct queue *q, int n, struct err *err)
{
    struct args exec = { .n = 0 };
    args_str(&exec, "EXEC");
    int rc = queue_append(q, &exec, err);
    return rc < 0 ? rc : queue_replies(q, n + 1, NULL, err);
}

static int make_group(struct queue *q, const char *key, const char *group, struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XGROUP", "CREATE", key, group, "0", "MKSTREAM",
              NULL); /* 0: entries from before the group count */
    int rc = queue_ensure(q, 0, err);
    cleanup_reply redisReply *r = NULL;
    if (rc < 0 || (rc = once(q, &a, &r, err)) < 0) {
        return rc;
    }
    return r->type == REDIS_REPLY_ERROR && strncmp(r->str, "BUSYGROUP", 9) != 0
               ? error_reply(q, r, err)
               : 0;
}

int queue_setup(struct queue *q, struct err *err)
{
    int rc = make_group(q, KEY_INTAKE, GROUP_SCHEDULER, err);
    return rc < 0 ? rc : make_group(q, KEY_READY, GROUP_WORKERS, err);
}

/* ---- replies ---- */

int queue_bad_reply(struct err *err, const char *what)
{
    return err_set(err, ERR_PROTOCOL, "Redis: %s: a reply of another shape than documented", what);
}

const redisReply *entry_fields(const redisReply *entry, char ret_id[QUEUE_STREAM_ID_MAX])
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 2 ||
        entry->element[0]->type != REDIS_REPLY_STRING ||
        entry->element[0]->len >= QUEUE_STREAM_ID_MAX ||
        entry->element[1]->type != REDIS_REPLY_ARRAY) {
        return NULL;
    }
    memcpy(ret_id, entry->element[0]->str, entry->element[0]->len + 1);
    return entry->element[1];
}

const redisReply *field_of(const redisReply *fields, const char *name)
{
    const redisReply *found = NULL;
    size_t n = strlen(name);
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *k = fields->element[i], *v = fields->element[i + 1];
        if (k->type == REDIS_REPLY_STRING && v->type == REDIS_REPLY_STRING && k->len == n &&
            memcmp(k->str, name, n) == 0) {
            found = v;
        }
    }
    return found;
}

bool field_copy(const redisReply *fields, const char *name, char *out, size_t room)
{
    const redisReply *v = field_of(fields, name);
    out[0] = 0;
    if (!v || v->len >= room || memchr(v->str, 0, v->len)) {
        return false;
    }
    memcpy(out, v->str, v->len + 1);
    return true;
}

bool field_int(const redisReply *fields, const char *name, int64_t min, int64_t max, int64_t *ret_v)
{
    char text[24], *end;
    if (!field_copy(fields, name, text, sizeof text) || !text[0]) {
        return false;
    }
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (*end || errno || v < min || v > max) {
        return false;
    }
    *ret_v = v;
    return true;
}

const redisReply *stream_entries(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 ||
        reply->element[0]->type != REDIS_REPLY_ARRAY || reply->element[0]->elements < 2 ||
        reply->element[0]->element[1]->type != REDIS_REPLY_ARRAY) {
        return NULL;
    }
    return reply->element[0]->element[1];
}
