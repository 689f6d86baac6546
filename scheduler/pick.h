/* Whose job comes next. Pure: no clock, no I/O.
 *
 * Weighted fair queueing over slot time. Every tenant has a virtual time, which advances by
 * (slot time / weight) of what it was given; the tenant that is furthest behind is served next (a
 * heap, O(log tenants) a pick). The charge at the pick is an estimate, a smoothed mean of what the
 * tenant's jobs took; when a job has ended its actual slot time replaces the estimate, and a job
 * that runs for longer than estimated is charged while it runs. A tenant that comes with work after
 * it had none starts where the last one served started (start-time fair queueing), so it is next:
 * nothing is saved up by staying away, and what it owes it still owes. Inside a tenant the same
 * rule divides its share between the priorities (PICK_PRIORITY_WEIGHTS), so that none of them
 * starves. Deficit round robin, which has the same long-run shares, was not taken: see
 * docs/decisions.md.
 *
 * Only counts are held, never jobs: 10,000 tenants are some 2 MB, and a million waiting jobs are
 * numbers. The counts may be wrong (others submit, cancel, dispatch): whoever has asked the
 * database says so by pick_taken, and the caller refreshes them from time to time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/model/job.h"

#define PICK_SLOTS_WHEN_NONE                                                                       \
    2 /* no worker is alive: keep this many slots' worth ready for the first one */
#define PICK_TURN_MAX 256 /* jobs made ready in one turn */
#define PICK_AHEAD_MS 20  /* how long what is ready should last */
#define PICK_TENANTS_MAX 16384
#define PICK_COST_FIRST_US 1000000 /* a job's slot time when nothing is known */
#define PICK_WEIGHT_MAX 1000
/* Shares of high, normal and bulk inside a tenant while all three wait. */
#define PICK_PRIORITY_WEIGHTS                                                                      \
    {                                                                                              \
        16, 4, 1                                                                                   \
    }

struct pick_input {
    int64_t slots;       /* of all live workers */
    int64_t ready_depth; /* most jobs kept ready for each slot, 1 or more */
    int64_t unclaimed;   /* on the ready stream, taken by nobody yet */
    int64_t claimed;     /* taken and not acknowledged: that many slots are busy */
    int64_t mean_us;     /* slot time of a job, pick_mean_us() */
};
/* Jobs to make ready now: 0 to PICK_TURN_MAX. What is ready cannot be reordered, so as few as keep
 * the slots busy: one for each idle slot, and for the busy ones what they will have ended in
 * PICK_AHEAD_MS, at least one; never more than ready_depth a slot. */
int pick_room(const struct pick_input *in);

/* ---- fair shares ---- */

struct pick; /* one thread */
struct pick *pick_new(void);
void pick_free(struct pick *p);

/* The tenant's place; made when it is new. -1: PICK_TENANTS_MAX have work (it gets a place when one
 * of them has none left). Places are given anew only inside this call. */
int pick_tenant(struct pick *p, const char *name);
const char *pick_name(const struct pick *p, int tenant);
/* Places in use are 0 to pick_places - 1; pick_name of a free one is "". */
int pick_places(const struct pick *p);

struct pick_terms {
    int64_t weight;        /* 1 to PICK_WEIGHT_MAX */
    int64_t in_flight_max; /* jobs dispatched and not ended; 0: no cap */
    bool stopped;          /* nothing of it is picked */
};
/* Of tenants that get a place from now on; before the first call weight 1, no cap. */
void pick_set_new_terms(struct pick *p, const struct pick_terms *t);
void pick_set_terms(struct pick *p, int tenant, const struct pick_terms *t);
/* From the database: how many wait (those not yet due included), and how many are in flight, which
 * have run for run_us in all so far. Both wake what was parked only when the count has grown. */
void pick_set_waiting(struct pick *p, int tenant, enum job_priority priority, int64_t n);
void pick_set_in_flight(struct pick *p, int tenant, enum job_priority priority, int64_t n,
                        int64_t run_us);
/* n more wait than the last count says. */
void pick_add_waiting(struct pick *p, int tenant, enum job_priority priority, int64_t n);
/* Jobs that were not due may be now. */
void pick_unpark(struct pick *p);

/* One share of a turn: up to n jobs of that tenant and priority, the oldest due first. */
struct pick_share {
    int tenant;
    enum job_priority priority;
    int n;
};
/* Where the queue of a share begins, as far as is known: a time in microseconds, 0: unknown. Kept
 * for the caller, who sets it from what was taken and forgets all of them now and then. */
int64_t pick_from(struct pick *p, const struct pick_share *share);
void pick_set_from(struct pick *p, const struct pick_share *share, int64_t from_us);
void pick_forget_from(struct pick *p);
/* Chooses room jobs (1..PICK_TURN_MAX). ret_order[i] is the share that the i-th job to be made
 * ready belongs to; *ret_jobs how many there are. Charges them. Returns the number of shares, each
 * with another (tenant, priority). */
int pick_turn(struct pick *p, int room, struct pick_share ret_shares[PICK_TURN_MAX],
              int ret_order[PICK_TURN_MAX], int *ret_jobs);
/* The database had got of share's n. Fewer: the rest is not charged, and that queue is parked until
 * its count grows or pick_unpark. */
void pick_taken(struct pick *p, const struct pick_share *share, int got);
/* jobs have ended after slot_us of slot time in all (branches in parallel count each). A tenant
 * without a place is ignored. */
void pick_done(struct pick *p, const char *tenant, enum job_priority priority, int64_t jobs,
               int64_t slot_us);

/* Something could be picked now. */
bool pick_pending(const struct pick *p);
/* Smoothed slot time of a job over all tenants, microseconds, at least 1. */
int64_t pick_mean_us(const struct pick *p);

struct pick_view {
    const char *name;
    int64_t weight, waiting, in_flight;
    int64_t done_jobs, done_us; /* since the place was given */
    bool stopped;
};
/* false: the place is free. */
bool pick_look(const struct pick *p, int tenant, struct pick_view *ret_view);
