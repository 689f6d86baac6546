/* The ready stream: jobs that a worker may start now, and the claims on them.
 *
 * A claim is an entry of the group's pending list. Its holder renews it by counting its delivery
 * number up; whoever watches for silence sees the number change, or not, and measures with a clock
 * of its own. The idle times that Redis computes are not used: they come from its wall clock, and a
 * jump of that would end every lease at once, or none for an hour. What must not be torn apart
 * (check the owner and renew; take over and say who held it) is a script: Redis runs it as one
 * step. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/store/queue_internal.h"

#define RENEW_MAX 8192
#define ACK_STEP 20 /* ids in one command: QUEUE_ARGS_MAX less its head */

/* KEYS[1] stream; ARGV group, consumer, ids... -> array of 1 or 0 */
static const char renew_script[] =
    "local out = {} "
    "for i = 3, #ARGV do "
    " local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2]) "
    " if #p > 0 then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'RETRYCOUNT', "
    "p[1][4] + 1, 'JUSTID') end "
    " out[#out + 1] = #p > 0 and 1 or 0 "
    "end return out";
/* KEYS[1] stream; ARGV group, owner, id, how often -> 1 passed on, 0 not the owner's */
static const char pass_script[] =
    "if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2]) == 0 then "
    "return 0 end "
    "local r = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3]) "
    "if #r == 0 then return 0 end "
    "local f, out = r[1][2], {} "
    "for i = 1, #f, 2 do if f[i] ~= 'passed' then out[#out + 1] = f[i] out[#out + 1] = f[i + 1] "
    "end "
    "end "
    "out[#out + 1] = 'passed' out[#out + 1] = ARGV[4] "
    "redis.call('XADD', KEYS[1], '*', unpack(out)) "
    "redis.call('XACK', KEYS[1], ARGV[1], ARGV[3]) redis.call('XDEL', KEYS[1], ARGV[3]) return 1";
/* KEYS[1] stream; ARGV group, new owner, id, owner, delivery -> {job, attempt}, or nothing when it
 * has been renewed, given on or ended meanwhile */
static const char take_over_script[] =
    "local p = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[4]) "
    "if #p == 0 or p[1][4] ~= tonumber(ARGV[5]) then return {} end "
    "local r = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3]) "
    "if #r == 0 then redis.call('XACK', KEYS[1], ARGV[1], ARGV[3]) return {} end "
    "redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'RETRYCOUNT', p[1][4] + 1, "
    "'JUSTID') "
    "local f = r[1][2] local job, attempt = '', '' "
    "for i = 1, #f, 2 do if f[i] == 'job' then job = f[i + 1] elseif f[i] == 'attempt' then "
    "attempt = f[i + 1] end end "
    "return { job, attempt }";
/* KEYS[1] stream; ARGV max -> job ids, at most max + 1 */
static const char ids_script[] =
    "local out, from = {}, '-' "
    "while #out <= tonumber(ARGV[1]) do "
    " local r = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 64) "
    " if #r == 0 then break end "
    " for _, e in ipairs(r) do "
    "  local f = e[2] "
    "  for i = 1, #f, 2 do if f[i] == 'job' then out[#out + 1] = f[i + 1] end end "
    "  from = '(' .. e[1] "
    " end "
    "end return out";

void claim_done(struct claim *c)
{
    free(c->spec);
    c->spec = NULL;
}

int queue_ready_add(struct queue *q, const struct ready_item *items, int n, struct err *err)
{
    int rc = queue_ensure(q, 0, err);
    for (int i = 0; i < n && rc == 0; i++) {
        struct args a = { .n = 0 };
        args_strs(&a, "XADD", KEY_READY, "*", "job", items[i].job_id, "tenant", items[i].tenant,
                  "batch", items[i].batch ? items[i].batch : "", "attempt", NULL);
        args_int(&a, items[i].attempt);
        args_str(&a, "submitted");
        args_int(&a, items[i].submitted_ms);
        args_str(&a, "spec");
        args_mem(&a, items[i].spec, items[i].spec_len);
        rc = queue_append(q, &a, err);
    }
    return rc < 0 ? rc : queue_replies(q, n, NULL, err);
}

static int depth_once(struct queue *q, redisReply *replies[2], struct err *err)
{
    struct args len = { .n = 0 }, pending = { .n = 0 };
    args_strs(&len, "XLEN", KEY_READY, NULL);
    args_strs(&pending, "XPENDING", KEY_READY, GROUP_WORKERS, NULL);
    int rc = queue_ensure(q, 0, err);
    rc = rc < 0 ? rc : queue_append(q, &len, err);
    rc = rc < 0 ? rc : queue_append(q, &pending, err);
    return rc < 0 ? rc : queue_replies(q, 2, replies, err);
}

int queue_ready_depth(struct queue *q, int64_t *ret_unclaimed, int64_t *ret_claimed,
                      struct err *err)
{
    redisReply *r[2] = { NULL, NULL };
    struct err first;
    int rc = depth_once(q, r, &first);
    if (rc < 0 && strstr(first.text, "NOGROUP")) { /* Redis lost its data */
        rc = queue_setup(q, err);
        rc = rc < 0 ? rc : depth_once(q, r, err);
    } else if (rc < 0 && err) {
        *err = first;
    }
    if (rc < 0) {
        return rc;
    }
    cleanup_reply redisReply *len = r[0];
    cleanup_reply redisReply *pending = r[1];
    if (len->type != REDIS_REPLY_INTEGER || pending->type != REDIS_REPLY_ARRAY ||
        pending->elements < 1 || pending->element[0]->type != REDIS_REPLY_INTEGER) {
        return queue_bad_reply(err, "XPENDING");
    }
    int64_t claimed = pending->element[0]->integer, all = len->integer;
    *ret_claimed = claimed;
    *ret_unclaimed = all > claimed ? all - claimed : 0;
    return 0;
}

/* false: malformed. */
static bool read_claim(const redisReply *fields, struct claim *c)
{
    const redisReply *spec = field_of(fields, "spec");
    int64_t attempt, submitted, passed = 0;
    if (!spec || !field_copy(fields, "job", c->job_id, sizeof c->job_id) || !id_valid(c->job_id) ||
        !field_copy(fields, "tenant", c->tenant, sizeof c->tenant) ||
        !field_int(fields, "attempt", 1, INT32_MAX, &attempt) ||
        !field_int(fields, "submitted", 0, INT64_MAX, &submitted)) {
        return false;
    }
    if (!field_copy(fields, "batch", c->batch, sizeof c->batch) || !id_valid(c->batch)) {
        c->batch[0] = 0; /* of no batch, or written by an older scheduler */
    }
    (void)field_int(fields, "passed", 0, INT32_MAX, &passed);
    c->attempt = (int)attempt;
    c->passed = (int)passed;
    c->submitted_ms = submitted;
    c->spec_len = spec->len;
    c->spec = malloc(spec->len + 1);
    if (!c->spec) {
        abort();
    }
    memcpy(c->spec, spec->str, spec->len);
    c->spec[spec->len] = 0;
    return true;
}

/* What is no job's entry is acknowledged and left out. */
static int take_claims(struct queue *q, const redisReply *entries, struct claim *ret_claims,
                       int max, struct err *err)
{
    int n = 0;
    for (size_t i = 0; i < entries->elements && n < max; i++) {
        struct claim c = { .spec = NULL };
        const redisReply *fields = entry_fields(entries->element[i], c.stream_id);
        if (fields && read_claim(fields, &c)) {
            ret_claims[n++] = c;
            continue;
        }
        const char *ids[] = { c.stream_id };
        int rc = fields ? queue_claim_ack(q, ids, 1, err) : queue_bad_reply(err, "XREADGROUP");
        if (rc < 0) {
            while (n > 0) { /* their claims expire */
                claim_done(&ret_claims[--n]);
            }
            return rc;
        }
    }
    return n;
}

int queue_claim_read(struct queue *q, const char *stream_id, struct claim *ret_claim,
                     struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XRANGE", KEY_READY, stream_id, stream_id, NULL);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0 || r->type != REDIS_REPLY_ARRAY || r->elements == 0) {
        return rc;
    }
    *ret_claim = (struct claim){ .spec = NULL };
    const redisReply *fields = entry_fields(r->element[0], ret_claim->stream_id);
    return fields && read_claim(fields, ret_claim) ? 1 : 0;
}

int queue_claims(struct queue *q, const char *consumer, int64_t block_ms, struct claim *ret_claims,
                 int max, struct err *err)
{
    assert(block_ms >= 0 && max > 0);
    int64_t until = mono_ms() + block_ms;
    for (;;) {
        int64_t left = until - mono_ms();
        struct args a = { .n = 0 };
        args_read_group(&a, GROUP_WORKERS, consumer, max, left, KEY_READY);
        cleanup_reply redisReply *r = NULL;
        int rc = queue_command(q, &a, left > 0 ? left : 0, &r, err);
        if (rc < 0) {
            return rc;
        }
        const redisReply *entries = stream_entries(r);
        if (entries && entries->elements > 0) {
            rc = take_claims(q, entries, ret_claims, max, err);
            if (rc != 0) {
                return rc;
            }
        } else if (mono_ms() >= until) {
            return 0;
        } /* else the stream went away and was made anew */
    }
}

int queue_claim(struct queue *q, const char *consumer, int64_t block_ms, struct claim *ret_claim,
                struct err *err)
{
    return queue_claims(q, consumer, block_ms, ret_claim, 1, err);
}

static int renew_one(struct queue *q, const char *consumer, const char *const *ids, int n,
                     bool *ret_owned, struct err *err)
{
    struct args a = { .n = 0 };
    args_eval(&a, renew_script, KEY_READY);
    args_strs(&a, GROUP_WORKERS, consumer, NULL);
    for (int i = 0; i < n; i++) {
        args_str(&a, ids[i]);
    }
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (r->type != REDIS_REPLY_ARRAY || r->elements != (size_t)n) {
        return queue_bad_reply(err, "renew");
    }
    for (int i = 0; i < n; i++) {
        ret_owned[i] = r->element[i]->type == REDIS_REPLY_INTEGER && r->element[i]->integer == 1;
    }
    return 0;
}

#define RENEW_STEP 16 /* ids in one call of the script: QUEUE_ARGS_MAX less its head */

int queue_claim_renew(struct queue *q, const char *consumer, const char *const *stream_ids, int n,
                      bool *ret_owned, struct err *err)
{
    assert(n >= 0 && n <= RENEW_MAX);
    for (int i = 0; i < n; i += RENEW_STEP) {
        int step = n - i < RENEW_STEP ? n - i : RENEW_STEP;
        int rc = renew_one(q, consumer, stream_ids + i, step, ret_owned + i, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int queue_claim_pass(struct queue *q, const char *consumer, const struct claim *claim,
                     struct err *err)
{
    struct args a = { .n = 0 };
    args_eval(&a, pass_script, KEY_READY);
    args_strs(&a, GROUP_WORKERS, consumer, claim->stream_id, NULL);
    args_int(&a, claim->passed + 1);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    return r->type == REDIS_REPLY_INTEGER ? (int)r->integer : queue_bad_reply(err, "pass");
}

/* All or nothing: an entry that is acknowledged and not deleted would be nobody's and stay for
 * good. */
int queue_claim_ack(struct queue *q, const char *const *stream_ids, int n, struct err *err)
{
    int rc = queue_begin(q, err), sent = 1;
    for (int i = 0; i < n && rc == 0; sent += 2) {
        struct args ack = { .n = 0 }, del = { .n = 0 };
        args_strs(&ack, "XACK", KEY_READY, GROUP_WORKERS, NULL);
        args_strs(&del, "XDEL", KEY_READY, NULL);
        for (int k = 0; k < ACK_STEP && i < n; k++, i++) {
            args_str(&ack, stream_ids[i]);
            args_str(&del, stream_ids[i]);
        }
        rc = queue_append(q, &ack, err);
        rc = rc < 0 ? rc : queue_append(q, &del, err);
    }
    return rc < 0 ? rc : queue_end(q, sent, err);
}

static void copy_reply(const redisReply *r, char *out, size_t room)
{
    (void)snprintf(out, room, "%s", r->type == REDIS_REPLY_STRING ? r->str : "");
}

/* One element of XPENDING's long form. */
static bool read_pending_claim(const redisReply *row, struct pending_claim *c)
{
    if (row->type != REDIS_REPLY_ARRAY || row->elements != 4 ||
        row->element[0]->type != REDIS_REPLY_STRING ||
        row->element[0]->len >= sizeof c->stream_id ||
        row->element[1]->type != REDIS_REPLY_STRING ||
        row->element[3]->type != REDIS_REPLY_INTEGER) {
        return false;
    }
    copy_reply(row->element[0], c->stream_id, sizeof c->stream_id);
    copy_reply(row->element[1], c->worker, sizeof c->worker);
    c->delivery = row->element[3]->integer;
    return true;
}

int queue_pending(struct queue *q, const char *after, struct pending_claim *ret_rows, int max,
                  struct err *err)
{
    char from[QUEUE_STREAM_ID_MAX + 1] = "-";
    assert(max > 0);
    if (after && *after) {
        (void)snprintf(from, sizeof from, "(%s", after);
    }
    struct args a = { .n = 0 };
    args_strs(&a, "XPENDING", KEY_READY, GROUP_WORKERS, from, "+", NULL);
    args_int(&a, max);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (r->type != REDIS_REPLY_ARRAY || r->elements > (size_t)max) {
        return queue_bad_reply(err, "XPENDING");
    }
    for (size_t i = 0; i < r->elements; i++) {
        if (!read_pending_claim(r->element[i], &ret_rows[i])) {
            return queue_bad_reply(err, "XPENDING");
        }
    }
    return (int)r->elements;
}

int queue_take_over(struct queue *q, const struct pending_claim *c, struct expired_claim *ret_e,
                    struct err *err)
{
    struct args a = { .n = 0 };
    args_eval(&a, take_over_script, KEY_READY);
    args_strs(&a, GROUP_WORKERS, GROUP_SCHEDULER, c->stream_id, c->worker, NULL);
    args_int(&a, c->delivery);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 0) {
        return 0;
    }
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2) {
        return queue_bad_reply(err, "take over");
    }
    *ret_e = (struct expired_claim){ .attempt = 0 };
    char attempt[24];
    memcpy(ret_e->stream_id, c->stream_id, sizeof ret_e->stream_id);
    memcpy(ret_e->worker, c->worker, sizeof ret_e->worker);
    copy_reply(r->element[0], ret_e->job_id, sizeof ret_e->job_id);
    copy_reply(r->element[1], attempt, sizeof attempt);
    ret_e->attempt = (int)strtol(attempt, NULL, 10); /* 0 for rubbish: it is only acknowledged */
    return 1;
}

int queue_ready_ids(struct queue *q, char (*ret_ids)[ID_TEXT_BYTES], int max, struct err *err)
{
    struct args a = { .n = 0 };
    args_eval(&a, ids_script, KEY_READY);
    args_int(&a, max);
    cleanup_reply redisReply *r = NULL;
    int rc = queue_command(q, &a, 0, &r, err);
    if (rc < 0) {
        return rc;
    }
    if (r->type != REDIS_REPLY_ARRAY) {
        return queue_bad_reply(err, "ready ids");
    }
    if (r->elements > (size_t)max) {
        return err_set(err, ERR_TOO_LARGE, "Redis: more than %d entries on %s", max, KEY_READY);
    }
    for (size_t i = 0; i < r->elements; i++) {
        copy_reply(r->element[i], ret_ids[i], ID_TEXT_BYTES);
    }
    return (int)r->elements;
}
