#include "common/store/queue_help.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/base/cleanup.h"
#include "common/store/queue_internal.h"

#define KEY_HELP QUEUE_PREFIX "help"
#define KEY_ROOM 160
#define WORKERS_MAX 256
#define STALE_MAX 64 /* tickets that nobody wants, passed over in one take */

DEFINE_CLEANUP(cleanup_json, json_t, json_decref)

/* Keys of one attempt: brood:help:want|done|have:<job>:<attempt>; a member is <node>:<tries>. */
static void key_of(const struct help_ticket *t, const char *what, char out[KEY_ROOM])
{
    (void)snprintf(out, KEY_ROOM, KEY_HELP ":%s:%s:%d", what, t->job_id, t->attempt);
}

static void mark_key(const struct help_ticket *t, char out[KEY_ROOM])
{
    (void)snprintf(out, KEY_ROOM, KEY_HELP ":have:%s:%d:%d:%d", t->job_id, t->attempt, t->node,
                   t->tries);
}

static void member_of(const struct help_ticket *t, char out[32])
{
    (void)snprintf(out, 32, "%d:%d", t->node, t->tries);
}

static char *ticket_json(const struct help_ticket *t)
{
    json_t *layers = json_array();
    for (int i = 0; i < t->n_layers; i++) {
        (void)json_array_append_new(layers, json_string(t->layers[i]));
    }
    CLEANUP(cleanup_json)
    json_t *root = json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:o}", "job", t->job_id, "attempt",
                             t->attempt, "node", t->node, "tries", t->tries, "tenant", t->tenant,
                             "claim", t->claim, "layers", layers);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (!text) {
        abort();
    }
    return text;
}

static bool take_text(const json_t *root, const char *key, char *out, size_t room)
{
    const char *s = json_string_value(json_object_get(root, key));
    if (!s || strlen(s) >= room) {
        return false;
    }
    memcpy(out, s, strlen(s) + 1);
    return true;
}

static bool take_int(const json_t *root, const char *key, int min, int *out)
{
    const json_t *v = json_object_get(root, key);
    int64_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < min || i > INT32_MAX) {
        return false;
    }
    *out = (int)i;
    return true;
}

static bool parse_ticket(const char *text, size_t len, struct help_ticket *t)
{
    json_error_t je;
    *t = (struct help_ticket){ 0 };
    CLEANUP(cleanup_json) json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    const json_t *layers = json_object_get(root, "layers");
    size_t n = json_array_size(layers);
    if (!take_text(root, "job", t->job_id, sizeof t->job_id) || !id_valid(t->job_id) ||
        !take_text(root, "tenant", t->tenant, sizeof t->tenant) ||
        !take_text(root, "claim", t->claim, sizeof t->claim) ||
        !take_int(root, "attempt", 1, &t->attempt) || !take_int(root, "node", 1, &t->node) ||
        !take_int(root, "tries", 1, &t->tries) || n < 2 || n > HELP_LAYERS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(layers, i));
        if (!s || strlen(s) != HELP_DIGEST_MAX ||
            strspn(s, "0123456789abcdef") != HELP_DIGEST_MAX) {
            return false;
        }
        memcpy(t->layers[t->n_layers++], s, HELP_DIGEST_MAX + 1);
    }
    return true;
}

/* A script over one key whose answer is a number. */
static int number_of(struct queue *q, const struct args *a, const char *what, struct err *err)
{
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, a, 0, &r, err);
    if (rc == 0 && r->type != REDIS_REPLY_INTEGER) {
        rc = queue_bad_reply(err, what);
    }
    return rc < 0 ? rc : r->integer > 0;
}

/* ---- the owner ---- */

int queue_help_places(struct queue *q, const char *self, int *ret_places, struct err *err)
{
    cleanup_free struct worker_info *rows = calloc(WORKERS_MAX, sizeof *rows);
    if (!rows) {
        abort();
    }
    int n = queue_workers(q, rows, WORKERS_MAX, err);
    *ret_places = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].name, self) != 0 && rows[i].slots > rows[i].busy) {
            *ret_places += rows[i].slots - rows[i].busy;
        }
    }
    return n < 0 ? n : 0;
}

int queue_help_offer(struct queue *q, const struct help_ticket *t, struct err *err)
{
    assert(t->n_layers >= 2 && t->node > 0 && t->tries > 0);
    char want[KEY_ROOM], member[32];
    cleanup_free char *json = ticket_json(t);
    struct args c[3] = { { .n = 0 } };
    key_of(t, "want", want);
    member_of(t, member);
    args_strs(&c[0], "SADD", want, member, NULL);
    args_strs(&c[1], "PEXPIRE", want, NULL);
    args_int(&c[1], HELP_OWNER_TTL_MS);
    args_strs(&c[2], "LPUSH", KEY_HELP, json, NULL);
    int rc = queue_ensure(q, 0, err);
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = queue_append(q, &c[i], err);
    }
    return rc < 0 ? rc : queue_replies(q, 3, NULL, err);
}

int queue_help_renew(struct queue *q, const struct help_ticket *t, struct err *err)
{
    char want[KEY_ROOM];
    struct args a = { .n = 0 };
    key_of(t, "want", want);
    args_strs(&a, "PEXPIRE", want, NULL);
    args_int(&a, HELP_OWNER_TTL_MS);
    return number_of(q, &a, "PEXPIRE", err);
}

/* KEYS[1] list; ARGV ticket, set, member */
static const char withdraw_script[] =
    "local n = redis.call('LREM', KEYS[1], 1, ARGV[1]) "
    "if n > 0 then redis.call('SREM', ARGV[2], ARGV[3]) end return n";

int queue_help_withdraw(struct queue *q, const struct help_ticket *t, struct err *err)
{
    char want[KEY_ROOM], member[32];
    cleanup_free char *json = ticket_json(t);
    struct args a = { .n = 0 };
    key_of(t, "want", want);
    member_of(t, member);
    args_eval(&a, withdraw_script, KEY_HELP);
    args_strs(&a, json, want, member, NULL);
    return number_of(q, &a, "EVAL", err);
}

int queue_help_unwant(struct queue *q, const struct help_ticket *t, struct err *err)
{
    char want[KEY_ROOM], member[32];
    cleanup_free char *json = ticket_json(t);
    struct args c[2] = { { .n = 0 } };
    redisReply *r[2] = { NULL, NULL };
    key_of(t, "want", want);
    member_of(t, member);
    args_strs(&c[0], "SREM", want, member, NULL);
    args_strs(&c[1], "LREM", KEY_HELP, "1", json, NULL);
    int rc = queue_ensure(q, 0, err);
    rc = rc < 0 ? rc : queue_append(q, &c[0], err);
    rc = rc < 0 ? rc : queue_append(q, &c[1], err);
    rc = rc < 0 ? rc : queue_replies(q, 2, r, err);
    if (rc < 0) {
        return rc;
    }
    int wanted = r[0]->type == REDIS_REPLY_INTEGER && r[0]->integer > 0;
    freeReplyObject(r[0]);
    freeReplyObject(r[1]);
    return wanted;
}

/* KEYS[1] list; ARGV ticket, set, member, mark -> 1 it is somewhere */
static const char alive_script[] =
    "if redis.call('EXISTS', ARGV[4]) == 1 then return 1 end "
    "if redis.call('SISMEMBER', ARGV[2], ARGV[3]) == 0 then "
    " return redis.call('EXISTS', ARGV[5]) end "
    "for _, v in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do if v == ARGV[1] then return 1 end "
    "end return 0";

int queue_help_alive(struct queue *q, const struct help_ticket *t, struct err *err)
{
    char want[KEY_ROOM], mark[KEY_ROOM], done[KEY_ROOM], member[32];
    cleanup_free char *json = ticket_json(t);
    struct args a = { .n = 0 };
    key_of(t, "want", want);
    key_of(t, "done", done);
    mark_key(t, mark);
    member_of(t, member);
    args_eval(&a, alive_script, KEY_HELP);
    args_strs(&a, json, want, member, mark, done, NULL);
    return number_of(q, &a, "EVAL", err);
}

int queue_help_result(struct queue *q, const struct help_ticket *t, int *ret_node, int *ret_tries,
                      struct buf *out, struct err *err)
{
    char done[KEY_ROOM];
    struct args a = { .n = 0 };
    key_of(t, "done", done);
    args_strs(&a, "RPOP", done, NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0 || r->type == REDIS_REPLY_NIL) {
        return rc;
    }
    /* "<node>:<tries>:" and the result behind it */
    int node = 0, tries = 0, head = 0;
    if (r->type != REDIS_REPLY_STRING || sscanf(r->str, "%9d:%9d:%n", &node, &tries, &head) != 2 ||
        head == 0) {
        return queue_bad_reply(err, "a branch's result");
    }
    *ret_node = node;
    *ret_tries = tries;
    rc = buf_add(out, r->str + head, r->len - (size_t)head, err);
    return rc < 0 ? rc : 1;
}

int queue_help_end(struct queue *q, const struct help_ticket *t, struct err *err)
{
    char want[KEY_ROOM], done[KEY_ROOM];
    struct args a = { .n = 0 };
    key_of(t, "want", want);
    key_of(t, "done", done);
    args_strs(&a, "DEL", want, done, NULL);
    return queue_command(q, &a, 0, NULL, err);
}

/* ---- the helper ---- */

/* KEYS[1] list; ARGV ms -> a ticket's text (the caller marks it), or nil. The mark of a ticket is
 * made in the same step, or one that was just taken would look lost. */
static const char take_script[] =
    "for i = 1, tonumber(ARGV[4]) do "
    " local v = redis.call('RPOP', KEYS[1]) "
    " if not v then return false end "
    " local ok, t = pcall(cjson.decode, v) "
    " if ok and type(t) == 'table' and type(t.job) == 'string' and type(t.attempt) == 'number' "
    "  and type(t.node) == 'number' and type(t.tries) == 'number' then "
    "  local id = t.job .. ':' .. string.format('%d', t.attempt) "
    "  local member = string.format('%d:%d', t.node, t.tries) "
    "  if redis.call('SISMEMBER', ARGV[1] .. ':want:' .. id, member) == 1 then "
    "   redis.call('SET', ARGV[1] .. ':have:' .. id .. ':' .. member, ARGV[2], 'PX', ARGV[3]) "
    "   return v "
    "  end "
    " end "
    "end return false";

int queue_help_take(struct queue *q, const char *worker, struct help_ticket *ret_ticket,
                    struct err *err)
{
    struct args a = { .n = 0 };
    args_eval(&a, take_script, KEY_HELP);
    args_strs(&a, KEY_HELP, worker, NULL);
    args_int(&a, HELP_MARK_TTL_MS);
    args_int(&a, STALE_MAX);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0 || r->type == REDIS_REPLY_NIL) {
        return rc;
    }
    if (r->type != REDIS_REPLY_STRING) {
        return queue_bad_reply(err, "EVAL");
    }
    return parse_ticket(r->str, r->len, ret_ticket) ? 1 : 0;
}

/* KEYS[1] set; ARGV member, mark, worker, ms */
static const char mark_script[] =
    "if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "redis.call('SET', ARGV[2], ARGV[3], 'PX', ARGV[4]) return 1";
/* KEYS[1] set; ARGV member, mark, list of results, ms, result */
static const char done_script[] = "redis.call('DEL', ARGV[2]) "
                                  "if redis.call('SREM', KEYS[1], ARGV[1]) == 0 then return 0 end "
                                  "redis.call('LPUSH', ARGV[3], ARGV[1] .. ':' .. ARGV[5]) "
                                  "redis.call('PEXPIRE', ARGV[3], ARGV[4]) return 1";

int queue_help_mark(struct queue *q, const struct help_ticket *t, const char *worker,
                    struct err *err)
{
    char want[KEY_ROOM], mark[KEY_ROOM], member[32];
    struct args a = { .n = 0 };
    key_of(t, "want", want);
    mark_key(t, mark);
    member_of(t, member);
    args_eval(&a, mark_script, want);
    args_strs(&a, member, mark, worker, NULL);
    args_int(&a, HELP_MARK_TTL_MS);
    return number_of(q, &a, "EVAL", err);
}

int queue_help_done(struct queue *q, const struct help_ticket *t, const void *result, size_t len,
                    struct err *err)
{
    char want[KEY_ROOM], mark[KEY_ROOM], done[KEY_ROOM], member[32];
    struct args a = { .n = 0 };
    key_of(t, "want", want);
    key_of(t, "done", done);
    mark_key(t, mark);
    member_of(t, member);
    args_eval(&a, done_script, want);
    args_strs(&a, member, mark, done, NULL);
    args_int(&a, HELP_RESULT_TTL_MS);
    args_mem(&a, result, len);
    return number_of(q, &a, "EVAL", err);
}
