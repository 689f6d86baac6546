/* Claims for all slots of a worker, by as few commands as there can be.
 *
 * Theory: of the slots that want a job one reads from Redis, the others wait for what it brings. It
 * asks for as many entries as slots wait, keeps one and leaves the rest to them; when it has gone
 * the next takes its place. A lone slot reads for itself, without a hand-over to wait for. Under
 * load one command brings a claim for every slot that is free. Thread-safe. */
#pragma once
#include <stdint.h>
#include "common/store/queue.h"

#define CLAIMS_READ_MAX 32 /* entries by one command */

struct claims;

struct claims *claims_new(void);
void claims_free(struct claims *c); /* nothing may be left in it; NULL allowed */
/* One claim for the calling slot, whose connection q is used if it is its turn to read. 1: claimed;
 * 0: nothing came within wait_ms (0: what is there now); or an error of queue_claims. */
MUST_CHECK int claims_take(struct claims *c, struct queue *q, const char *consumer, int64_t wait_ms,
                           struct claim *ret_claim, struct err *err);
/* When the slots have ended: a claim that none of them took. false: there is none. */
bool claims_left(struct claims *c, struct claim *ret_claim);
