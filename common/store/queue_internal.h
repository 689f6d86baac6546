/* Inside common/store only: Redis commands over struct queue. */
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include "common/store/queue.h"

#define KEY_INTAKE QUEUE_PREFIX "intake"
#define KEY_REJECTED QUEUE_PREFIX "rejected"
#define KEY_READY QUEUE_PREFIX "ready"
#define KEY_CANCEL QUEUE_PREFIX "cancel"
#define KEY_EVENTS QUEUE_PREFIX "events"
#define KEY_WORKERS QUEUE_PREFIX "workers"
#define GROUP_SCHEDULER "scheduler"
#define GROUP_WORKERS "workers"

static inline void cleanup_reply_fn(redisReply **r)
{
    if (*r) {
        freeReplyObject(*r);
    }
}
#define cleanup_reply __attribute__((cleanup(cleanup_reply_fn)))

/* Arguments of one command, binary-safe. The pointers must live until it was sent. */
#define QUEUE_ARGS_MAX 24
struct args {
    const char *v[QUEUE_ARGS_MAX];
    size_t len[QUEUE_ARGS_MAX];
    char scratch[QUEUE_ARGS_MAX][24];
    int n;
};
void args_str(struct args *a, const char *s);
void args_mem(struct args *a, const void *data, size_t len);
void args_int(struct args *a, int64_t v);
/* Several strings at once, ended by NULL. */
void args_strs(struct args *a, ...) __attribute__((sentinel));

/* Connected afterwards, with a socket timeout of block_ms (how long the command may block; 0: not
 * at all) plus QUEUE_TIMEOUT_MS. */
MUST_CHECK int queue_ensure(struct queue *q, int64_t block_ms, struct err *err);
/* One command. An error reply is -ERR_DB, a lost connection -ERR_UNAVAILABLE. NOGROUP (Redis lost
 * its data): the groups are made and the command is sent once more; UNBLOCKED (the stream went away
 * under a blocked reader) reads as nil. */
MUST_CHECK int queue_command(struct queue *q, const struct args *a, int64_t block_ms,
                             redisReply **ret_reply, struct err *err);
/* Pipeline: append any number after queue_ensure, then take that many replies; the first error
 * reply is the error. ret_replies may be NULL, else an array of n to be freed by the caller (set on
 * success only). */
MUST_CHECK int queue_append(struct queue *q, const struct args *a, struct err *err);
MUST_CHECK int queue_replies(struct queue *q, int n, redisReply **ret_replies, struct err *err);
/* The same as one transaction: queue_begin, then append; queue_end takes the replies, of which n
 * are MULTI's and those of what was appended. A connection that breaks before EXEC leaves nothing
 * done. */
MUST_CHECK int queue_begin(struct queue *q, struct err *err);
MUST_CHECK int queue_end(struct queue *q, int n, struct err *err);
/* EVAL of one of our scripts: keys and args are strings. */
void args_eval(struct args *a, const char *script, const char *key);
/* XREADGROUP of what nobody of the group has been given, at most max; block_ms 0: what is there. */
void args_read_group(struct args *a, const char *group, const char *consumer, int max,
                     int64_t block_ms, const char *key);

/* Stream entries: [id, [field, value, ...]]. NULL when reply is not an entry (a deleted one has nil
 * fields). */
const redisReply *entry_fields(const redisReply *entry, char ret_id[QUEUE_STREAM_ID_MAX]);
/* The last value of that name; NULL when absent. */
const redisReply *field_of(const redisReply *fields, const char *name);
/* Copy a field into out[room]. false: absent, too long, or holds a NUL (out is then ""). */
bool field_copy(const redisReply *fields, const char *name, char *out, size_t room);
/* Whole number from min to max; false when absent or not one. */
bool field_int(const redisReply *fields, const char *name, int64_t min, int64_t max,
               int64_t *ret_v);
/* The entries of the first stream of an XREAD(GROUP) reply; NULL when it timed out. */
const redisReply *stream_entries(const redisReply *reply);
int queue_bad_reply(struct err *err, const char *what);
