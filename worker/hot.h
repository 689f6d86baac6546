/* Machines that are shared by the jobs of one batch (isolation shared): made, lent to a slot for
 * one job, and parked in between for the next job of the same tenant, batch and template.
 *
 * Theory: a slot that has claimed such a job takes the parked machine of its batch, else leases
 * one. After the job the machine is parked only when nothing speaks against it (hot_may_stay); its
 * guest then clears the job's container away and makes the next while the slot commits and claims.
 * A machine belongs to one slot or to the park, never to both. What is parked holds memory and no
 * processor; at most as many are parked as there are slots, and none for long. Each has a
 * connection to vmpool of its own, so dropping one is closing that. Park: thread-safe. */
#pragma once
#include <stdbool.h>
#include "common/base/config.h"
#include "common/base/id.h"
#include "common/model/job.h"
#include "common/model/result.h"
#include "worker/pool_client.h"
#include "worker/session.h"

#define HOT_IDLE_MS                                                                                \
    2000 /* parked without a job for so long: the batch has nothing more, just now */

/* Whose jobs a machine takes. */
struct hot_key {
    char tenant[JOB_TENANT_MAX + 1], batch[ID_TEXT_BYTES], template_name[JOB_TEMPLATE_MAX + 1];
};

struct hot {
    struct hot_key key;
    struct pool_client pool;
    struct lease lease;
    struct session session;
    bool leased, ready; /* ready: it has its identity; the next job's container was asked for */
    bool spare;         /* the last job began in a warm interpreter */
    int64_t born_us, parked_us;
    unsigned runs;
    struct hot *next;
};

struct hot_park;

/* config must outlive it. max: machines parked at once. */
struct hot_park *hot_park_new(const struct config *config, int max);
void hot_park_free(struct hot_park *p);
/* The machine of this batch that was parked last, now the caller's; NULL: none. */
struct hot *hot_take(struct hot_park *p, const struct hot_key *key);
/* An empty one, without a lease. -ERR_TOO_LARGE: vmpool's path. */
MUST_CHECK int hot_new(const struct config *config, const struct hot_key *key, struct hot **ret_hot,
                       struct err *err);
/* Park it for the next job. Drops what was parked too long. */
void hot_put(struct hot_park *p, struct hot *h);
/* The machine ends. NULL: nothing. */
void hot_drop(struct hot *h);
/* Drop what was parked too long; all: everything parked. */
void hot_tidy(struct hot_park *p, bool all);
/* May another job run where this one did? r: its result, judged; s: its session. Pure. */
bool hot_may_stay(const struct config *config, const struct hot *h, const struct job_result *r,
                  int64_t now_us);
