/* The intake stream: where anyone may put a job, and the scheduler takes them in batches.
 *
 * An entry stays pending in the group until it is acknowledged, which happens when its row is in
 * Postgres or its refusal is on record: a scheduler that dies in between finds it again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/store/queue_internal.h"

#define REJECTED_MAX "10000"               /* entries kept, about */
#define REJECTED_JOB_BYTES_MAX (64u << 10) /* of a refused job's text */
#define EVENTS_MAX "10000"
#define INTAKE_READ_MAX 10000

void intake_entries_done(struct intake_entry *entries, int n)
{
    for (int i = 0; i < n; i++) {
        free(entries[i].job);
        entries[i].job = NULL;
    }
}

int queue_intake_add(struct queue *q, const char *job, size_t len, const char *tenant,
                     const char *batch, int seq, struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XADD", KEY_INTAKE, "*", "job", NULL);
    args_mem(&a, job, len);
    if (tenant && *tenant) {
        args_strs(&a, "tenant", tenant, NULL);
    }
    if (batch && *batch) {
        args_strs(&a, "batch", batch, "seq", NULL);
        args_int(&a, seq);
    }
    return queue_command(q, &a, 0, NULL, err);
}

int queue_wake(struct queue *q, struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XADD", KEY_INTAKE, "*", "wake", "1", NULL);
    return queue_command(q, &a, 0, NULL, err);
}

int queue_wake_for(struct queue *q, const char *tenant, enum job_priority priority, int n,
                   struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XADD", KEY_INTAKE, "*", "wake", "1", "tenant", tenant, "priority",
              job_priority_word(priority), "jobs", NULL);
    args_int(&a, n);
    return queue_command(q, &a, 0, NULL, err);
}

int queue_done_add(struct queue *q, const struct intake_note *notes, int n, struct err *err)
{
    int sent = 0, rc = queue_ensure(q, 0, err);
    for (int i = 0; i < n && rc == 0; i++) {
        int64_t jobs = 0, slot_us = 0;
        bool first = true;
        for (int k = 0; k < n && first; k++) {
            if (notes[k].priority != notes[i].priority ||
                strcmp(notes[k].tenant, notes[i].tenant) != 0) {
                continue;
            }
            first = k >= i; /* else it went with an earlier one */
            jobs += notes[k].jobs;
            slot_us += notes[k].slot_us;
        }
        if (!first) {
            continue;
        }
        struct args a = { .n = 0 };
        args_strs(&a, "XADD", KEY_INTAKE, "*", "done", "1", "tenant", notes[i].tenant, "priority",
                  job_priority_word(notes[i].priority), "jobs", NULL);
        args_int(&a, jobs);
        args_str(&a, "slot_us");
        args_int(&a, slot_us);
        rc = queue_append(q, &a, err);
        sent++;
    }
    return rc < 0 ? rc : queue_replies(q, sent, NULL, err);
}

/* Of an entry without a job. */
static void read_note(const redisReply *fields, struct intake_entry *e)
{
    char word[16];
    int64_t n = 0, us = 0;
    struct intake_note *note = &e->note;
    *note = (struct intake_note){ .priority = PRIORITY_NORMAL };
    if (field_copy(fields, "priority", word, sizeof word)) {
        int p = job_priority_parse(word);
        note->priority = p < 0 ? PRIORITY_NORMAL : (enum job_priority)p;
    }
    if (field_copy(fields, "tenant", note->tenant, sizeof note->tenant) &&
        !job_tenant_ok(note->tenant)) {
        note->tenant[0] = 0;
    }
    (void)!field_int(fields, "jobs", 1, INT32_MAX, &n);
    (void)!field_int(fields, "slot_us", 0, INT64_MAX, &us);
    note->jobs = n;
    note->slot_us = us;
    e->done = field_of(fields, "done") != NULL;
    e->wake = field_of(fields, "wake") != NULL;
}

static void read_entry(const redisReply *fields, struct intake_entry *e)
{
    const redisReply *job = field_of(fields, "job");
    if (!job) {
        read_note(fields, e);
    } else {
        e->job = malloc(job->len + 1);
        if (!e->job) {
            abort();
        }
        memcpy(e->job, job->str, job->len);
        e->job[job->len] = 0;
        e->job_len = job->len;
    }
    if (!field_copy(fields, "tenant", e->tenant, sizeof e->tenant) && field_of(fields, "tenant")) {
        memcpy(e->tenant, "?", 2);
    }
    bool got = field_copy(fields, "batch", e->batch, sizeof e->batch);
    if (field_of(fields, "batch") && (!got || (e->batch[0] && !id_valid(e->batch)))) {
        memcpy(e->batch, "?", 2);
    }
    int64_t seq = 0;
    if (field_of(fields, "seq") && !field_int(fields, "seq", 0, INT32_MAX, &seq)) {
        seq = -1;
    }
    e->seq = (int)seq;
}

/* What an entry weighs is known when it is read, and a command says only how many: COUNT 512 of the
 * largest jobs are 12 GiB in one reply. So they are read a few at a time until they weigh enough;
 * as many as would fit if all were like the heaviest of this call. */
#define FIRST_MAX 2
#define STEP_MAX 8
struct reading {
    struct queue *q;
    const char *consumer;
    struct intake_entry *entries;
    int max, n;
    int64_t bytes_max, bytes, heaviest;
    char cursor[QUEUE_STREAM_ID_MAX]; /* in what was taken and not finished */
};

static int step(const struct reading *r)
{
    int64_t n = r->heaviest == 0 ? FIRST_MAX : (r->bytes_max - r->bytes) / r->heaviest;
    n = n < 1 ? 1 : n > STEP_MAX ? STEP_MAX : n;
    return n < r->max - r->n ? (int)n : r->max - r->n;
}

/* Takes what is in a reply; NULL: nothing. */
static int read_entries(struct reading *r, const redisReply *entries)
{
    int found = entries ? (int)entries->elements : 0;
    for (int i = 0; i < found && r->n < r->max; i++) {
        struct intake_entry e = { .seq = 0 };
        const redisReply *fields = entry_fields(entries->element[i], e.stream_id);
        if (!fields) {
            continue; /* deleted while it was pending */
        }
        int64_t bytes = 1;
        for (size_t k = 0; k < fields->elements; k++) {
            bytes += (int64_t)fields->element[k]->len;
        }
        r->bytes += bytes;
        r->heaviest = bytes > r->heaviest ? bytes : r->heaviest;
        read_entry(fields, &e);
        r->entries[r->n++] = e;
    }
    return found;
}

/* XAUTOCLAIM over the whole group: whoever took them, they were not finished. Returns 1 when there
 * may be more, as read_new. */
static int read_pending(struct reading *r, struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XAUTOCLAIM", KEY_INTAKE, GROUP_SCHEDULER, r->consumer, "0", r->cursor, "COUNT",
              NULL);
    args_int(&a, step(r));
    cleanup_reply redisReply *reply = NULL;
    int rc = queue_command(r->q, &a, 0, &reply, err);
    if (rc < 0) {
        return rc;
    }
    const redisReply *next = reply->elements > 1 ? reply->element[0] : NULL;
    if (reply->type != REDIS_REPLY_ARRAY || !next || next->type != REDIS_REPLY_STRING ||
        next->len >= sizeof r->cursor || reply->element[1]->type != REDIS_REPLY_ARRAY) {
        return queue_bad_reply(err, "XAUTOCLAIM");
    }
    memcpy(r->cursor, next->str, next->len + 1);
    (void)read_entries(r, reply->element[1]);
    return strcmp(r->cursor, "0-0") != 0;
}

static int read_new(struct reading *r, int64_t block_ms, struct err *err)
{
    int wanted = step(r);
    struct args a = { .n = 0 };
    args_read_group(&a, GROUP_SCHEDULER, r->consumer, wanted, block_ms, KEY_INTAKE);
    cleanup_reply redisReply *reply = NULL;
    int rc = queue_command(r->q, &a, block_ms, &reply, err);
    return rc < 0 ? rc : read_entries(r, stream_entries(reply)) == wanted;
}

int queue_intake_read(struct queue *q, const char *consumer, bool recover, int max,
                      int64_t bytes_max, int64_t block_ms, struct intake_entry *ret_entries,
                      struct err *err)
{
    assert(max > 0 && max <= INTAKE_READ_MAX && bytes_max > 0 && block_ms >= 0);
    struct reading r = { .q = q,
                         .consumer = consumer,
                         .entries = ret_entries,
                         .max = max,
                         .bytes_max = bytes_max,
                         .cursor = "0-0" };
    int more = 1;
    while (more > 0 && r.n < max && r.bytes < bytes_max) {
        more = recover ? read_pending(&r, err) : read_new(&r, r.n == 0 ? block_ms : 0, err);
    }
    if (more < 0) {
        intake_entries_done(ret_entries, r.n);
        return more;
    }
    return r.n;
}

/* All or nothing, as queue_claim_ack. */
int queue_intake_ack(struct queue *q, const struct intake_entry *entries, int n, struct err *err)
{
    int rc = queue_begin(q, err);
    for (int i = 0; i < n && rc == 0; i++) {
        struct args ack = { .n = 0 }, del = { .n = 0 };
        args_strs(&ack, "XACK", KEY_INTAKE, GROUP_SCHEDULER, entries[i].stream_id, NULL);
        args_strs(&del, "XDEL", KEY_INTAKE, entries[i].stream_id, NULL);
        rc = queue_append(q, &ack, err);
        rc = rc < 0 ? rc : queue_append(q, &del, err);
    }
    return rc < 0 ? rc : queue_end(q, 2 * n + 1, err);
}

int queue_intake_reject(struct queue *q, const struct intake_entry *entry, const struct err *why,
                        struct err *err)
{
    size_t len = entry->job_len < REJECTED_JOB_BYTES_MAX ? entry->job_len : REJECTED_JOB_BYTES_MAX;
    if (entry->job && memmem(entry->job, entry->job_len, "\"secrets\"", 9)) {
        len = 0; /* what was refused is kept for a while, secrets are not */
    }
    struct args c[4] = { { .n = 0 } };
    args_strs(&c[0], "XADD", KEY_REJECTED, "MAXLEN", "~", REJECTED_MAX, "*", "intake",
              entry->stream_id, "code", err_word(why->code), "reason", why->text, "tenant",
              entry->tenant, "batch", entry->batch, "job", NULL);
    args_mem(&c[0], entry->job, len);
    args_strs(&c[1], "XADD", KEY_EVENTS, "MAXLEN", "~", EVENTS_MAX, "*", "type", "job.rejected",
              "intake", entry->stream_id, "batch", entry->batch, "reason", why->text, "code",
              err_word(why->code), "retry_after_ms", NULL);
    args_int(&c[1], why->retry_after_ms);
    args_str(&c[1], "at");
    args_int(&c[1], wall_ms());
    args_strs(&c[2], "XACK", KEY_INTAKE, GROUP_SCHEDULER, entry->stream_id, NULL);
    args_strs(&c[3], "XDEL", KEY_INTAKE, entry->stream_id, NULL);
    int rc = queue_begin(q, err);
    for (int i = 0; i < 4 && rc == 0; i++) {
        rc = queue_append(q, &c[i], err);
    }
    return rc < 0 ? rc : queue_end(q, 5, err);
}

int queue_intake_lag(struct queue *q, int64_t *ret_entries, int64_t *ret_oldest_ms, struct err *err)
{
    redisReply *r[3] = { NULL, NULL, NULL };
    struct args c[3] = { { .n = 0 } };
    args_strs(&c[0], "XLEN", KEY_INTAKE, NULL);
    args_strs(&c[1], "XRANGE", KEY_INTAKE, "-", "+", "COUNT", "1", NULL);
    args_strs(&c[2], "TIME", NULL);
    int rc = queue_ensure(q, 0, err);
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = queue_append(q, &c[i], err);
    }
    rc = rc < 0 ? rc : queue_replies(q, 3, r, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_reply redisReply *len = r[0];
    cleanup_reply redisReply *first = r[1];
    cleanup_reply redisReply *now = r[2];
    if (len->type != REDIS_REPLY_INTEGER || first->type != REDIS_REPLY_ARRAY ||
        now->type != REDIS_REPLY_ARRAY || now->elements != 2) {
        return queue_bad_reply(err, "XLEN");
    }
    char id[QUEUE_STREAM_ID_MAX];
    *ret_entries = len->integer;
    *ret_oldest_ms = -1;
    if (first->elements > 0 && entry_fields(first->element[0], id)) {
        int64_t now_ms = strtoll(now->element[0]->str, NULL, 10) * 1000 +
                         strtoll(now->element[1]->str, NULL, 10) / 1000;
        int64_t at_ms = strtoll(id, NULL, 10);
        *ret_oldest_ms = now_ms > at_ms ? now_ms - at_ms : 0;
    }
    return 0;
}
