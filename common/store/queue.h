/* Redis: the intake stream, the ready stream, claims, workers alive, events, live output. The only
 * Redis commands of brood.
 *
 * Keys and fields are written down in docs/protocol.md ("Redis"). One connection, blocking, one
 * thread at a time. A process that uses it ignores SIGPIPE (hiredis writes without MSG_NOSIGNAL).
 * A lost connection is -ERR_UNAVAILABLE (text says where it was looked for); the next call
 * reconnects. */
#pragma once
#include <hiredis/hiredis.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/base/id.h"
#include "common/model/job.h"

#define QUEUE_PREFIX "brood:"

#define QUEUE_URL_MAX 512
#define QUEUE_TIMEOUT_MS                                                                           \
    5000 /* connect, and every command beyond the time it was asked to block                       \
          */
#define QUEUE_STREAM_ID_MAX 40
#define QUEUE_WORKER_MAX 64

struct queue {
    redisContext *ctx; /* NULL: not connected */
    char url[QUEUE_URL_MAX];
    int64_t timeout_ms; /* in force on the socket */
};

/* url: unix:///path or redis://host[:port]. -ERR_UNAVAILABLE when the server is not there: q keeps
 * the url and the next call tries again. */
MUST_CHECK int queue_open(struct queue *q, const char *url, struct err *err);
void queue_close(struct queue *q);
/* Make the streams' consumer groups when missing. */
MUST_CHECK int queue_setup(struct queue *q, struct err *err);

/* ---- intake: brood:intake, group "scheduler" ---- */
/* Anyone may XADD brood:intake * job <json> [tenant T] [batch UUID] [seq N]. */
/* Of a waking entry: whose work came, or (jobs ended) whose work is done. */
struct intake_note {
    char tenant[JOB_TENANT_MAX + 1]; /* "": not said */
    enum job_priority priority;
    int64_t jobs;    /* that came to wait, or ended; 0: not said */
    int64_t slot_us; /* of those that ended: how long they held slots, in all */
};
struct intake_entry {
    char stream_id[40];
    char *job; /* JSON as given; NULL: none (a wake-up, or an entry without the field) */
    size_t job_len;
    bool wake; /* with note, or without */
    bool done; /* a worker's notice: note says what ended */
    struct intake_note note;
    char tenant[JOB_TENANT_MAX + 1]; /* "" = default; a tenant that breaks the rule is kept as "?"
                                        and refused by the scheduler */
    char batch[ID_TEXT_BYTES];       /* "" = none; one that is no UUID is kept as "?" */
    int seq;                         /* -1: given, but not a number from 0 to 2^31-1 */
};
void intake_entries_done(struct intake_entry *entries, int n);
MUST_CHECK int queue_intake_add(struct queue *q, const char *job, size_t len, const char *tenant,
                                const char *batch, int seq, struct err *err);
/* Wake the scheduler: rows were put into Postgres by somebody else (XADD brood:intake * wake 1). */
MUST_CHECK int queue_wake(struct queue *q, struct err *err);
/* The same when it is known whose they are: n jobs of that tenant and priority. */
MUST_CHECK int queue_wake_for(struct queue *q, const char *tenant, enum job_priority priority,
                              int n, struct err *err);
/* A worker's notices of attempts that ended; those of the same tenant and priority go as one. */
MUST_CHECK int queue_done_add(struct queue *q, const struct intake_note *notes, int n,
                              struct err *err);
/* Up to max entries for consumer, until they weigh about bytes_max (one entry more; behind small
 * ones up to 8); waits up to block_ms when there are none. recover = true returns, without waiting,
 * the first of those that the group had taken but not acknowledged (a scheduler that died, a batch
 * that failed), and 0 when there are none. Returns the count. */
MUST_CHECK int queue_intake_read(struct queue *q, const char *consumer, bool recover, int max,
                                 int64_t bytes_max, int64_t block_ms,
                                 struct intake_entry *ret_entries, struct err *err);
/* XACK + XDEL. */
MUST_CHECK int queue_intake_ack(struct queue *q, const struct intake_entry *entries, int n,
                                struct err *err);
/* Entries on the stream (taken and not acknowledged ones too), and how old the oldest is by Redis'
 * clock, milliseconds; -1: there is none. */
MUST_CHECK int queue_intake_lag(struct queue *q, int64_t *ret_entries, int64_t *ret_oldest_ms,
                                struct err *err);
/* Refused intake: in one MULTI kept on brood:rejected (capped) with the reason, announced as an
 * event, acknowledged and removed. */
MUST_CHECK int queue_intake_reject(struct queue *q, const struct intake_entry *entry,
                                   const struct err *why, struct err *err);

/* ---- ready: brood:ready, group "workers" ---- */
struct claim {
    char stream_id[40];
    char job_id[ID_TEXT_BYTES];
    char tenant[JOB_TENANT_MAX + 1];
    char batch[ID_TEXT_BYTES]; /* "": none */
    int attempt;
    int passed; /* times that a worker has passed it on */
    int64_t submitted_ms;
    char *spec; /* canonical JSON */
    size_t spec_len;
};
void claim_done(struct claim *c);
/* Pipelined. n small (bounded by ready depth). */
struct ready_item {
    const char *job_id, *tenant, *batch, *spec; /* batch: "" for none */
    size_t spec_len;
    int attempt;
    int64_t submitted_ms;
};
MUST_CHECK int queue_ready_add(struct queue *q, const struct ready_item *items, int n,
                               struct err *err);
/* Entries not yet claimed + claimed and not acknowledged. */
MUST_CHECK int queue_ready_depth(struct queue *q, int64_t *ret_unclaimed, int64_t *ret_claimed,
                                 struct err *err);
/* Claim one; waits up to block_ms. 1 = claimed, 0 = nothing came. consumer = worker's name.
 * Malformed entries are acknowledged and skipped. */
MUST_CHECK int queue_claim(struct queue *q, const char *consumer, int64_t block_ms,
                           struct claim *ret_claim, struct err *err);
/* The same for up to max at once; returns how many. */
MUST_CHECK int queue_claims(struct queue *q, const char *consumer, int64_t block_ms,
                            struct claim *ret_claims, int max, struct err *err);
/* The entry of a claim as it stands, whoever holds it: 1, or 0: it has gone. */
MUST_CHECK int queue_claim_read(struct queue *q, const char *stream_id, struct claim *ret_claim,
                                struct err *err);
/* Renew claims (delivery number + 1 by the same consumer, only where that consumer still owns it).
 * ret_owned[i] false: lost to another. */
MUST_CHECK int queue_claim_renew(struct queue *q, const char *consumer,
                                 const char *const *stream_ids, int n, bool *ret_owned,
                                 struct err *err);
/* Pass a claim on: in one step its entry is added again at the end, with passed + 1, and taken off
 * here. 1: done; 0: it was another's already, nothing is done. */
MUST_CHECK int queue_claim_pass(struct queue *q, const char *consumer, const struct claim *claim,
                                struct err *err);
/* XACK + XDEL, pipelined. */
MUST_CHECK int queue_claim_ack(struct queue *q, const char *const *stream_ids, int n,
                               struct err *err);
#define QUEUE_DROP_MAX 1000
/* A claim as it stands: every renewal counts delivery up. */
struct pending_claim {
    char stream_id[40], worker[64];
    int64_t delivery;
};
/* Up to max claims behind the stream id `after` (NULL or "": from the first), in the order of the
 * stream. Returns how many. */
MUST_CHECK int queue_pending(struct queue *q, const char *after, struct pending_claim *ret_rows,
                             int max, struct err *err);
/* Ask that jobs end (n up to QUEUE_DROP_MAX): entries that nobody has claimed are removed, their
 * jobs in ret_dropped (room for n) and counted in what is returned; of claimed ones the workers are
 * told by brood:cancel. */
MUST_CHECK int queue_cancel(struct queue *q, const struct id *ids, int n, struct id *ret_dropped,
                            struct err *err);
/* The next job on brood:cancel behind *cursor ("$": from now on); waits up to block_ms. 1 = got
 * one, 0 = none. */
MUST_CHECK int queue_cancel_next(struct queue *q, char cursor[40], int64_t block_ms,
                                 char ret_job[ID_TEXT_BYTES], struct err *err);
struct expired_claim {
    char stream_id[40], job_id[ID_TEXT_BYTES], worker[64];
    int attempt;
};
/* Give the claim to consumer "scheduler" if it still stands as *c says: then its worker may not
 * renew it any more. 1: taken, the caller fails the attempt in Postgres, then acks; 0: it was
 * renewed or ended meanwhile. */
MUST_CHECK int queue_take_over(struct queue *q, const struct pending_claim *c,
                               struct expired_claim *ret_e, struct err *err);
/* Every job id on the ready stream (claimed or not): for store_requeue_lost. Returns count, up to
 * max; -ERR_TOO_LARGE beyond. */
MUST_CHECK int queue_ready_ids(struct queue *q, char (*ret_ids)[ID_TEXT_BYTES], int max,
                               struct err *err);

/* ---- workers alive: brood:worker:<name>, expires ---- */
#define WORKER_WARM_MAX 600
struct worker_info {
    char name[64];
    int slots, busy;
    int64_t pid;
    int spooled;                /* results on its disk that Postgres has not taken yet */
    int64_t spool_bytes;        /* of that file */
    char warm[WORKER_WARM_MAX]; /* kept states used lately (worker/warm.h), each ended by a space */
};
MUST_CHECK int queue_worker_beat(struct queue *q, const struct worker_info *w, int64_t ttl_ms,
                                 struct err *err);
MUST_CHECK int queue_workers(struct queue *q, struct worker_info *ret_rows, int max,
                             struct err *err);
/* The name of the worker with that pid on this host: what the configuration says (worker.name), ""
 * for one of its own. */
void queue_worker_name(const char *configured, int64_t pid, char ret_name[QUEUE_WORKER_MAX]);
/* 1 it beats, by that name and pid; 0 not. However many others there are. */
MUST_CHECK int queue_worker_alive(struct queue *q, const char *name, int64_t pid, struct err *err);
MUST_CHECK int queue_worker_gone(struct queue *q, const char *name, struct err *err);
/* Take consumers off the ready stream's group that hold no claim, have asked for nothing during
 * idle_ms, and whose worker is not alive: workers killed long ago, which nobody else forgets. A
 * worker that was only silent is made a consumer again by its next read. Returns how many. */
MUST_CHECK int queue_consumers_tidy(struct queue *q, int64_t idle_ms, struct err *err);

/* ---- schedulers that work: brood:scheduler:<pid>, expires ---- */
/* Said after a turn in which both Redis and Postgres answered. */
MUST_CHECK int queue_scheduler_beat(struct queue *q, int64_t pid, int64_t ttl_ms, struct err *err);
MUST_CHECK int queue_scheduler_gone(struct queue *q, int64_t pid, struct err *err);
/* 1 it has said so within its ttl, 0 not. */
MUST_CHECK int queue_scheduler_alive(struct queue *q, int64_t pid, struct err *err);

/* ---- events: brood:events (capped stream): {type, job, batch, state, verdict, at} ---- */
MUST_CHECK int queue_event(struct queue *q, const char *type, const char *job_id,
                           const char *verdict, struct err *err);
/* Pipelined job.finished events. */
struct finished_event {
    const char *job_id, *verdict;
};
MUST_CHECK int queue_events_finished(struct queue *q, const struct finished_event *events, int n,
                                     struct err *err);
/* Next event after *cursor ("$" to start at the end; updated); waits up to block_ms; 1 = got one, 0
 * = none. */
struct event {
    char type[32], job_id[ID_TEXT_BYTES], verdict[32];
};
MUST_CHECK int queue_event_next(struct queue *q, char cursor[40], int64_t block_ms,
                                struct event *ret_event, struct err *err);

/* ---- live output of jobs with "stream": brood:log:<job>, capped, expires ---- */
struct log_piece {
    int node;    /* of the job's tree, 0 for a plain job */
    int stream;  /* 1 stdout, 2 stderr, 0 = end of output */
    uint64_t at; /* bytes of the stream before this piece, in this attempt at the node */
};
/* p->stream is 1 or 2. */
MUST_CHECK int queue_log_add(struct queue *q, const char *job_id, const struct log_piece *p,
                             const void *data, size_t len, struct err *err);
/* What of a piece a reader has not seen who has shown so many bytes of its stream: the pieces are
 * those of every attempt (each begins at 0), and an old one may be gone. Moves *data and *len.
 * False: there is a hole before it. */
bool log_piece_new(const struct log_piece *p, uint64_t shown, const char **data, size_t *len);
/* Next piece after *cursor ("0" at first); data appended to out. 1/0 as above. */
MUST_CHECK int queue_log_next(struct queue *q, const char *job_id, char cursor[40],
                              int64_t block_ms, struct buf *out, struct log_piece *ret_piece,
                              struct err *err);
MUST_CHECK int queue_log_end(struct queue *q, const char *job_id, struct err *err);
MUST_CHECK int queue_ping(struct queue *q, struct err *err);
