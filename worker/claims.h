/* Claims for all slots of a worker, by as few commands as there can be.
 *
 * Theory: of the slots that want a job one reads from Redis, the others wait for what it brings. It
 * asks for as many entries as slots wait, keeps one and leaves the rest to them; when it has gone
 * the next takes its place. A lone slot reads for itself, without a hand-over to wait for. Under
 * load one command brings a claim for every slot that is free. A claim is held from the moment it
 * was read: it is in flight, and the heartbeat renews it, also while it waits for a slot (which may
 * have left to help another worker, or have its place lent to a branch). One that was lost
 * meanwhile is dropped. Thread-safe. */
#pragma once
#include <stdint.h>
#include "common/store/queue.h"
#include "worker/inflight.h"

#define CLAIMS_READ_MAX 32 /* entries by one command */

struct claims;

/* inflight outlives it, and has room for CLAIMS_READ_MAX more than the slots hold. */
struct claims *claims_new(struct inflight *inflight);
void claims_free(struct claims *c); /* nothing may be left in it; NULL allowed */
/* One claim for the calling slot, whose connection q is used if it is its turn to read, and whose
 * abort_fd inflight.h writes from then on. 1: claimed, in flight as *ret_ref; 0: nothing came
 * within wait_ms (0: what is there now); or an error of queue_claims. */
MUST_CHECK int claims_take(struct claims *c, struct queue *q, const char *consumer, int64_t wait_ms,
                           int abort_fd, struct claim *ret_claim, struct inflight_ref *ret_ref,
                           struct err *err);
/* Claims that were read for others (at most CLAIMS_READ_MAX with those that wait): they wait, and
 * are in flight. */
void claims_keep(struct claims *c, const struct claim *claims, int n);
/* When the slots have ended: a claim that none of them took, still in flight. false: there is none.
 */
bool claims_left(struct claims *c, struct claim *ret_claim, struct inflight_ref *ret_ref);
