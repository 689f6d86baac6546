/* What others may listen to: events about jobs, and the output of jobs that stream while they run.
 * Both are conveniences: capped, lossy after the cap, never the truth. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/model/job.h"
#include "common/store/queue_internal.h"

#define EVENTS_MAX "10000"
#define LOG_PIECES_MAX "4096" /* of one job's output */
#define LOG_TTL_MS "600000"   /* after the last piece */
#define LOG_KEY_MAX (sizeof QUEUE_PREFIX + 4 + ID_TEXT_BYTES)

static void event_args(struct args *a, const char *type, const char *job_id, const char *verdict)
{
    args_strs(a, "XADD", KEY_EVENTS, "MAXLEN", "~", EVENTS_MAX, "*", "type", type, "job",
              job_id ? job_id : "", "verdict", verdict ? verdict : "", "at", NULL);
    args_int(a, wall_ms());
}

int queue_event(struct queue *q, const char *type, const char *job_id, const char *verdict,
                struct err *err)
{
    struct args a = { .n = 0 };
    event_args(&a, type, job_id, verdict);
    return queue_command(q, &a, 0, NULL, err);
}

int queue_events_finished(struct queue *q, const struct finished_event *events, int n,
                          struct err *err)
{
    int rc = queue_ensure(q, 0, err);
    for (int i = 0; i < n && rc == 0; i++) {
        struct args a = { .n = 0 };
        event_args(&a, "job.finished", events[i].job_id, events[i].verdict);
        rc = queue_append(q, &a, err);
    }
    return rc < 0 ? rc : queue_replies(q, n, NULL, err);
}

/* XREAD one entry of key after cursor. 1: *ret_fields points into *ret_reply and cursor moved; 0:
 * nothing came. */
static int read_one(struct queue *q, const char *key, char cursor[QUEUE_STREAM_ID_MAX],
                    int64_t block_ms, redisReply **ret_reply, const redisReply **ret_fields,
                    struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XREAD", "COUNT", "1", NULL);
    if (block_ms > 0) {
        args_str(&a, "BLOCK");
        args_int(&a, block_ms);
    }
    args_strs(&a, "STREAMS", key, cursor, NULL);
    int rc = queue_command(q, &a, block_ms, ret_reply, err);
    if (rc < 0) {
        return rc;
    }
    const redisReply *entries = stream_entries(*ret_reply);
    if (!entries || entries->elements == 0) {
        return 0;
    }
    char id[QUEUE_STREAM_ID_MAX];
    *ret_fields = entry_fields(entries->element[0], id);
    if (!*ret_fields) {
        return queue_bad_reply(err, "XREAD");
    }
    memcpy(cursor, id, sizeof id);
    return 1;
}

/* "$" means "from now on" on every call anew: what came between two calls would be missed. Put the
 * last id in its place. */
static int pin_cursor(struct queue *q, const char *key, char cursor[QUEUE_STREAM_ID_MAX],
                      struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XREVRANGE", key, "+", "-", "COUNT", "1", NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    char id[QUEUE_STREAM_ID_MAX] = "0-0";
    if (r->type == REDIS_REPLY_ARRAY && r->elements > 0 && !entry_fields(r->element[0], id)) {
        return queue_bad_reply(err, "XREVRANGE");
    }
    memcpy(cursor, id, sizeof id);
    return 0;
}

int queue_event_next(struct queue *q, char cursor[40], int64_t block_ms, struct event *ret_event,
                     struct err *err)
{
    if (strcmp(cursor, "$") == 0) {
        int rc = pin_cursor(q, KEY_EVENTS, cursor, err);
        if (rc < 0) {
            return rc;
        }
    }
    cleanup_reply redisReply *r = NULL;
    const redisReply *fields = NULL;
    int rc = read_one(q, KEY_EVENTS, cursor, block_ms, &r, &fields, err);
    if (rc <= 0) {
        return rc;
    }
    (void)field_copy(fields, "type", ret_event->type, sizeof ret_event->type);
    (void)field_copy(fields, "job", ret_event->job_id, sizeof ret_event->job_id);
    (void)field_copy(fields, "verdict", ret_event->verdict, sizeof ret_event->verdict);
    return 1;
}

/* KEYS[1] ready; ARGV group, cancel stream, ids divided by commas -> ids whose entries were
 * removed. One pass over the ready stream, which is short. */
static const char cancel_script[] =
    "local out, from = {}, '-' "
    "while true do "
    " local r = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 64) "
    " if #r == 0 then break end "
    " for _, e in ipairs(r) do "
    "  local f = e[2] "
    "  for i = 1, #f, 2 do if f[i] == 'job' and #f[i + 1] == 36 and "
    "string.find(ARGV[3], f[i + 1], 1, true) then "
    "   if #redis.call('XPENDING', KEYS[1], ARGV[1], e[1], e[1], 1) > 0 then "
    "    redis.call('XADD', ARGV[2], 'MAXLEN', '~', '10000', '*', 'job', f[i + 1]) "
    "   else redis.call('XDEL', KEYS[1], e[1]) out[#out + 1] = f[i + 1] end "
    "   break "
    "  end end "
    "  from = '(' .. e[1] "
    " end "
    "end return out";

int queue_cancel(struct queue *q, const struct id *ids, int n, struct id *ret_dropped,
                 struct err *err)
{
    assert(n > 0 && n <= QUEUE_DROP_MAX);
    cleanup_buf struct buf text = { 0 };
    buf_init(&text, (size_t)QUEUE_DROP_MAX * (ID_TEXT_BYTES + 1));
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = i > 0 ? buf_add_str(&text, ",", err) : 0;
        rc = rc < 0 ? rc : buf_add_str(&text, ids[i].text, err);
    }
    if (rc < 0) {
        return rc;
    }
    struct args a = { .n = 0 };
    args_eval(&a, cancel_script, KEY_READY);
    args_strs(&a, GROUP_WORKERS, KEY_CANCEL, NULL);
    args_mem(&a, text.data, text.len);
    cleanup_reply redisReply *r = NULL;
    if ((rc = queue_command(q, &a, 0, &r, err)) < 0) {
        return rc;
    }
    if (r->type != REDIS_REPLY_ARRAY) {
        return queue_bad_reply(err, "cancel");
    }
    int dropped = 0; /* a job may have two entries, of which one was claimed: the guard decides */
    for (size_t i = 0; i < r->elements && dropped < n; i++) {
        const redisReply *e = r->element[i];
        if (e->type == REDIS_REPLY_STRING && e->len == ID_TEXT_BYTES - 1 && id_valid(e->str)) {
            memcpy(ret_dropped[dropped++].text, e->str, ID_TEXT_BYTES);
        }
    }
    return dropped;
}

int queue_cancel_next(struct queue *q, char cursor[40], int64_t block_ms,
                      char ret_job[ID_TEXT_BYTES], struct err *err)
{
    if (strcmp(cursor, "$") == 0) {
        int rc = pin_cursor(q, KEY_CANCEL, cursor, err);
        if (rc < 0) {
            return rc;
        }
    }
    cleanup_reply redisReply *r = NULL;
    const redisReply *fields = NULL;
    int rc = read_one(q, KEY_CANCEL, cursor, block_ms, &r, &fields, err);
    if (rc <= 0) {
        return rc;
    }
    (void)!field_copy(fields, "job", ret_job, ID_TEXT_BYTES);
    return 1;
}

static void log_key(const char *job_id, char out[LOG_KEY_MAX])
{
    (void)snprintf(out, LOG_KEY_MAX, QUEUE_PREFIX "log:%s", job_id);
}

static int log_put(struct queue *q, const char *job_id, const struct log_piece *p, const void *data,
                   size_t len, struct err *err)
{
    char key[LOG_KEY_MAX], node[16], stream[2] = { (char)('0' + p->stream), 0 }, at[24];
    log_key(job_id, key);
    (void)snprintf(node, sizeof node, "%d", p->node);
    (void)snprintf(at, sizeof at, "%" PRIu64, p->at);
    struct args add = { .n = 0 }, expire = { .n = 0 };
    args_strs(&add, "XADD", key, "MAXLEN", "~", LOG_PIECES_MAX, "*", "node", node, "stream", stream,
              "at", at, "data", NULL);
    args_mem(&add, data, len);
    args_strs(&expire, "PEXPIRE", key, LOG_TTL_MS, NULL);
    int rc = queue_ensure(q, 0, err);
    rc = rc < 0 ? rc : queue_append(q, &add, err);
    rc = rc < 0 ? rc : queue_append(q, &expire, err);
    return rc < 0 ? rc : queue_replies(q, 2, NULL, err);
}

int queue_log_add(struct queue *q, const char *job_id, const struct log_piece *p, const void *data,
                  size_t len, struct err *err)
{
    assert((p->stream == 1 || p->stream == 2) && p->node >= 0);
    return log_put(q, job_id, p, data, len, err);
}

int queue_log_end(struct queue *q, const char *job_id, struct err *err)
{
    return log_put(q, job_id, &(struct log_piece){ .stream = 0 }, "", 0, err);
}

bool log_piece_new(const struct log_piece *p, uint64_t shown, const char **data, size_t *len)
{
    if (p->at > shown) {
        return false;
    }
    uint64_t seen = shown - p->at;
    size_t skip = seen < *len ? (size_t)seen : *len;
    *data += skip;
    *len -= skip;
    return true;
}

int queue_log_next(struct queue *q, const char *job_id, char cursor[40], int64_t block_ms,
                   struct buf *out, struct log_piece *ret_piece, struct err *err)
{
    char key[LOG_KEY_MAX];
    log_key(job_id, key);
    cleanup_reply redisReply *r = NULL;
    const redisReply *fields = NULL;
    int rc = read_one(q, key, cursor, block_ms, &r, &fields, err);
    if (rc <= 0) {
        return rc;
    }
    int64_t stream, node, at;
    if (!field_int(fields, "stream", 0, 2, &stream) ||
        !field_int(fields, "node", 0, JOB_TREE_NODES_MAX, &node) ||
        !field_int(fields, "at", 0, INT64_MAX, &at)) {
        return queue_bad_reply(err, "live output");
    }
    const redisReply *data = field_of(fields, "data");
    if (data && (rc = buf_add(out, data->str, data->len, err)) < 0) {
        return rc;
    }
    *ret_piece = (struct log_piece){ .node = (int)node, .stream = (int)stream, .at = (uint64_t)at };
    return 1;
}
