/* When a job whose attempt failed through our fault may run again, and when it is given up: the one
 * rule of scheduler and worker. Pure.
 *
 * Two counts, since the causes are different. A lease that brought no sandbox says nothing of the
 * job, none of its code ran: that costs no attempt, only a wait, and many waits are allowed, so
 * that a host which is overloaded for a minute loses no job; but not for ever, or a template that
 * never starts would hold its jobs for good. A sandbox that broke, or a worker that was lost, with
 * the job in it may be the job's doing: few of these, and the delays grow faster. A worker that
 * ends and gives its jobs back says nothing of them: rolling restarts cost no job anything. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/config.h"

enum retry_cause {
    RETRY_NO_SANDBOX,  /* the lease failed, or a large job's spec or an archive could not be
                          read: a wait */
    RETRY_BROKEN,      /* the attempt failed after the lease, or can never get one: a fault */
    RETRY_WORKER_LOST, /* its claim expired: a fault */
    RETRY_GIVEN_BACK,  /* the worker ends in good order: neither, and no delay */
};

struct retry_policy {
    int64_t base_ms, max_ms; /* of config scheduler.retry_*; 0 or more */
    int attempts_max;        /* the fault with this number ends the job; 1 or more */
    int waits_max;           /* the wait with this number does */
};
struct retry_policy retry_policy_of(const struct config *c);

struct retry_plan {
    bool dead;        /* infra_error */
    int64_t delay_ms; /* else: not before this time from now */
    int count, max;   /* of faults or waits, this one included */
};
/* What becomes of the job after attempt number `attempt` (1 or more; those that were given back not
 * counted) failed by `cause`; faults is
 * how many of the attempts before it counted as faults (0 to attempt - 1). Delay: base, doubled for
 * each further wait and times four for each further fault, up to max; of that at least three
 * quarters, the rest by seed, so that jobs which failed together do not come back together. */
struct retry_plan retry_plan(const struct retry_policy *p, enum retry_cause cause, int attempt,
                             int faults, uint64_t seed);
/* A seed from a job's id (FNV-1a): different jobs, different delays; the same job, the same. */
uint64_t retry_seed(const char *job_id);
