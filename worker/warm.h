/* Which kept states are warm where, so that a job goes to a worker that has its state at hand.
 *
 * Theory: a worker that starts a machine from a kept state for the first time fetches it and opens
 * it; the next one costs no more than a template's. Workers say in their heartbeat what they have
 * used lately. Who claims a job whose state is not warm here asks who else there is; when it is
 * warm at a worker with a slot to spare, the entry is passed on: in one step it leaves this worker
 * and goes to the end of the stream, where Redis gives it to the reader that has waited longest.
 * Each worker has one reader (claims.h), so after at most one pass by each idle worker it is there.
 * All of that is a matter of speed only: what is said may be old, nothing waits for anybody, and
 * after WARM_PASSES_MAX passes whoever has the entry runs it. Jobs of templates pay nothing for it,
 * nor do those whose state is warm here. Any thread. docs/scheduling.md. */
#pragma once
#include <stdbool.h>
#include "common/store/queue.h"

#define WARM_STATES_MAX 32   /* remembered; what was not used for longest is forgotten */
#define WARM_AGE_MS 600000   /* not used for so long: not warm */
#define WARM_PASSES_MAX 4    /* of one entry */
#define WARM_WORKERS_MAX 256 /* that are listened to */
#define WARM_LOOK_MS 500     /* how old what they said may be */

struct warm;

struct warm *warm_new(const char *worker); /* its name, which must outlive it */
void warm_free(struct warm *w);            /* NULL allowed */
/* A machine was started from that base ("snapshot:NAME") of the tenant's. */
void warm_used(struct warm *w, const char *tenant, const char *base);
/* What is warm here, for worker_info.warm. */
void warm_text(struct warm *w, char out[WORKER_WARM_MAX]);
/* Should this claim be passed on? Asks Redis over q who is there, at most every WARM_LOOK_MS, and
 * only about a job whose state is not warm here. */
bool warm_elsewhere(struct warm *w, struct queue *q, const struct claim *claim);
