/* The claims this worker holds: from the claim until the result is in Postgres.
 *
 * Theory: slots add, the committer removes, the heartbeat renews all of them and reports those that
 * were lost to another worker. A handle carries a serial number, so that news about a claim that
 * has ended meanwhile reaches nobody. A lost claim wakes its slot through the slot's eventfd,
 * written under the lock, so it never hits the slot's next job. Thread-safe. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/base/id.h"

#define INFLIGHT_STREAM_ID_MAX 40

struct inflight_ref {
    int index;
    uint64_t serial;
};

struct inflight_claim {
    struct inflight_ref ref;
    char stream_id[INFLIGHT_STREAM_ID_MAX];
    char job_id[ID_TEXT_BYTES];
    int attempt;
};

struct inflight;

struct inflight *inflight_new(int max);
void inflight_free(struct inflight *f);
/* abort_fd: eventfd to write when the claim is lost while a slot runs it; -1: none does. The table
 * is large enough by construction (asserted). */
struct inflight_ref inflight_add(struct inflight *f, const char *stream_id, const char *job_id,
                                 int attempt, int abort_fd);
/* A claim that was added with abort_fd -1 begins to run in a slot. What it missed (lost, cancelled)
 * wakes the slot now. */
void inflight_enter_slot(struct inflight *f, struct inflight_ref ref, int abort_fd);
/* The slot is done with it (its abort_fd will not be written any more); the claim stays held. */
void inflight_leave_slot(struct inflight *f, struct inflight_ref ref);
void inflight_remove(struct inflight *f, struct inflight_ref ref);
/* No-op when the claim has ended meanwhile. true when it was held. */
bool inflight_mark_lost(struct inflight *f, struct inflight_ref ref);
/* The job was cancelled: its slot is woken, once; the claim stays held. true when it is held here.
 */
bool inflight_cancel(struct inflight *f, const char *job_id);
bool inflight_cancelled(struct inflight *f, struct inflight_ref ref);
bool inflight_lost(struct inflight *f, struct inflight_ref ref);
/* Copies of up to max claims that are not lost; returns how many. */
int inflight_list(struct inflight *f, struct inflight_claim *ret_claims, int max);
/* Up to max claims that run since before_us (mono) and were not returned by an earlier call. */
int inflight_take_unmarked(struct inflight *f, int64_t before_us, struct inflight_claim *ret_claims,
                           int max);
int inflight_count(struct inflight *f);
