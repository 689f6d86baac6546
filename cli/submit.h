/* Submitting so that a connection that breaks neither loses a job nor makes two of it
 * (docs/cli.md, "brood submit"). */
#pragma once
#include "common/store/jobs.h"
#include "common/store/queue.h"

#define SUBMIT_REPEAT_MS_MAX 30000 /* from the first failure on */

struct submit_to {
    const char *tenant, *batch, *name; /* name of the batch; both NULL: none */
    int first_seq;
    bool all_or_nothing;
};
/* store_submit, repeated while Postgres is away. The ids are made here, so what an earlier call did
 * whose answer was lost is found again: that is no duplicate. Says on stderr when it waits. */
MUST_CHECK int submit_jobs(struct pg *pg, const struct submit_to *to, struct submit_item *items,
                           int n, struct err *err);
/* Tell the scheduler of n jobs that are stored. That is for speed only, it looks into Postgres by
 * itself: a Redis that is away is a note on stderr. */
void submit_wake(struct queue *q, const char *tenant, enum job_priority priority, int n);
/* The note. */
void submit_not_told(const struct err *err);
