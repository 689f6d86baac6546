/* Workers alive: a hash for each that expires unless its worker beats, and a set of their names, so
 * that nobody has to scan the key space. Names whose hash is gone are taken off the set by whoever
 * notices. A scheduler has a key of that kind by its pid, which says that both servers answer it.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/store/queue_internal.h"

#define WORKER_KEY_MAX (sizeof QUEUE_PREFIX + 8 + QUEUE_WORKER_MAX)
#define WORKERS_MAX 1024

/* KEYS[1] ready stream; ARGV group, consumer: forget a consumer that holds nothing */
static const char forget_script[] =
    "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end "
    "local p = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) "
    "if #p == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end return #p";

/* KEYS[1] ready stream; ARGV group, idle ms, prefix of the workers' keys, the one consumer that has
 * no such key -> how many were forgotten. What a consumer holds is never touched: with one entry
 * pending it stays. */
static const char tidy_script[] =
    "if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end "
    "local n = 0 "
    "for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do "
    " local f = {} "
    " for i = 1, #c, 2 do f[c[i]] = c[i + 1] end "
    " if f.pending == 0 and f.idle >= tonumber(ARGV[2]) and f.name ~= ARGV[4] "
    "  and redis.call('EXISTS', ARGV[3] .. f.name) == 0 then "
    "  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], f.name) n = n + 1 "
    " end "
    "end return n";

static void worker_key(const char *name, char out[WORKER_KEY_MAX])
{
    (void)snprintf(out, WORKER_KEY_MAX, QUEUE_PREFIX "worker:%s", name);
}

int queue_worker_beat(struct queue *q, const struct worker_info *w, int64_t ttl_ms, struct err *err)
{
    assert(ttl_ms > 0);
    char key[WORKER_KEY_MAX];
    worker_key(w->name, key);
    struct args c[3] = { { .n = 0 } };
    args_strs(&c[0], "SADD", KEY_WORKERS, w->name, NULL);
    args_strs(&c[1], "HSET", key, "slots", NULL);
    args_int(&c[1], w->slots);
    args_str(&c[1], "busy");
    args_int(&c[1], w->busy);
    args_str(&c[1], "pid");
    args_int(&c[1], w->pid);
    args_str(&c[1], "spooled");
    args_int(&c[1], w->spooled);
    args_str(&c[1], "spool_bytes");
    args_int(&c[1], w->spool_bytes);
    args_strs(&c[1], "warm", w->warm, NULL);
    args_strs(&c[2], "PEXPIRE", key, NULL);
    args_int(&c[2], ttl_ms);
    int rc = queue_ensure(q, 0, err);
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = queue_append(q, &c[i], err);
    }
    return rc < 0 ? rc : queue_replies(q, 3, NULL, err);
}

/* 1 alive, 0 gone. */
static int read_worker(struct queue *q, const char *name, struct worker_info *ret_w,
                       struct err *err)
{
    char key[WORKER_KEY_MAX];
    worker_key(name, key);
    struct args a = { .n = 0 };
    args_strs(&a, "HGETALL", key, NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    int64_t slots, busy = 0, pid = 0, spooled = 0, spool_bytes = 0;
    if (r->type != REDIS_REPLY_ARRAY || !field_int(r, "slots", 0, 1 << 20, &slots)) {
        struct args rem = { .n = 0 };
        args_strs(&rem, "SREM", KEY_WORKERS, name, NULL);
        return queue_command(q, &rem, 0, NULL, err);
    }
    (void)field_int(r, "busy", 0, 1 << 20, &busy);
    (void)field_int(r, "pid", 0, INT32_MAX, &pid);
    (void)field_int(r, "spooled", 0, INT32_MAX, &spooled);
    (void)field_int(r, "spool_bytes", 0, INT64_MAX, &spool_bytes);
    *ret_w = (struct worker_info){ .slots = (int)slots,
                                   .busy = (int)busy,
                                   .pid = pid,
                                   .spooled = (int)spooled,
                                   .spool_bytes = spool_bytes };
    (void)snprintf(ret_w->name, sizeof ret_w->name, "%s", name);
    (void)field_copy(r, "warm", ret_w->warm, sizeof ret_w->warm);
    return 1;
}

int queue_workers(struct queue *q, struct worker_info *ret_rows, int max, struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "SMEMBERS", KEY_WORKERS, NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (r->type != REDIS_REPLY_ARRAY) {
        return queue_bad_reply(err, "SMEMBERS");
    }
    int n = 0;
    for (size_t i = 0; i < r->elements && i < WORKERS_MAX && n < max; i++) {
        const redisReply *name = r->element[i];
        if (name->type != REDIS_REPLY_STRING || name->len >= QUEUE_WORKER_MAX) {
            continue;
        }
        if ((rc = read_worker(q, name->str, &ret_rows[n], err)) < 0) {
            return rc;
        }
        n += rc;
    }
    return n;
}

void queue_worker_name(const char *configured, int64_t pid, char ret_name[QUEUE_WORKER_MAX])
{
    if (configured[0]) {
        (void)snprintf(ret_name, QUEUE_WORKER_MAX, "%s", configured);
        return;
    }
    char host[40] = "";
    if (gethostname(host, sizeof host - 1) < 0 || !host[0]) {
        memcpy(host, "host", sizeof "host");
    }
    (void)snprintf(ret_name, QUEUE_WORKER_MAX, "%s-%lld", host, (long long)pid);
}

int queue_worker_alive(struct queue *q, const char *name, int64_t pid, struct err *err)
{
    char key[WORKER_KEY_MAX], want[24];
    worker_key(name, key);
    (void)snprintf(want, sizeof want, "%lld", (long long)pid);
    struct args a = { .n = 0 };
    args_strs(&a, "HGET", key, "pid", NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    return rc < 0 ? rc : r->type == REDIS_REPLY_STRING && strcmp(r->str, want) == 0;
}

int queue_worker_gone(struct queue *q, const char *name, struct err *err)
{
    char key[WORKER_KEY_MAX];
    worker_key(name, key);
    struct args c[3] = { { .n = 0 } };
    args_strs(&c[0], "SREM", KEY_WORKERS, name, NULL);
    args_strs(&c[1], "DEL", key, NULL);
    int rc = queue_ensure(q, 0, err);
    rc = rc < 0 ? rc : queue_append(q, &c[0], err);
    rc = rc < 0 ? rc : queue_append(q, &c[1], err);
    rc = rc < 0 ? rc : queue_replies(q, 2, NULL, err);
    args_eval(&c[2], forget_script, KEY_READY);
    args_strs(&c[2], GROUP_WORKERS, name, NULL);
    return rc < 0 ? rc : queue_command(q, &c[2], 0, NULL, err);
}

int queue_consumers_tidy(struct queue *q, int64_t idle_ms, struct err *err)
{
    assert(idle_ms > 0);
    struct args a = { .n = 0 };
    args_eval(&a, tidy_script, KEY_READY);
    args_str(&a, GROUP_WORKERS);
    args_int(&a, idle_ms);
    args_strs(&a, QUEUE_PREFIX "worker:", GROUP_SCHEDULER, NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    return r->type == REDIS_REPLY_INTEGER ? (int)r->integer : queue_bad_reply(err, "tidy");
}

static void scheduler_key(int64_t pid, char out[WORKER_KEY_MAX])
{
    (void)snprintf(out, WORKER_KEY_MAX, QUEUE_PREFIX "scheduler:%" PRId64, pid);
}

int queue_scheduler_beat(struct queue *q, int64_t pid, int64_t ttl_ms, struct err *err)
{
    assert(pid > 0 && ttl_ms > 0);
    char key[WORKER_KEY_MAX];
    scheduler_key(pid, key);
    struct args a = { .n = 0 };
    args_strs(&a, "SET", key, "1", "PX", NULL);
    args_int(&a, ttl_ms);
    return queue_command(q, &a, 0, NULL, err);
}

int queue_scheduler_gone(struct queue *q, int64_t pid, struct err *err)
{
    char key[WORKER_KEY_MAX];
    scheduler_key(pid, key);
    struct args a = { .n = 0 };
    args_strs(&a, "DEL", key, NULL);
    return queue_command(q, &a, 0, NULL, err);
}

int queue_scheduler_alive(struct queue *q, int64_t pid, struct err *err)
{
    char key[WORKER_KEY_MAX];
    scheduler_key(pid, key);
    struct args a = { .n = 0 };
    args_strs(&a, "EXISTS", key, NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    return r->type == REDIS_REPLY_INTEGER ? r->integer > 0 : queue_bad_reply(err, "EXISTS");
}
