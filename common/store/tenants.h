/* Tenants: weight, caps, whether new work is taken; what waits of each. docs/scheduling.md. */
#pragma once
#include <stdint.h>
#include "common/model/job.h"
#include "common/store/pg.h"

#define TENANT_ANY "*" /* the row with the values of every tenant that has none of its own */
#define TENANT_WEIGHT_MAX 1000
#define TENANT_STOPPED_MAX 256 /* bytes of the reason */
#define TENANT_UNSET (-1)

struct tenant_row {
    char name[JOB_TENANT_MAX + 1];                            /* or TENANT_ANY */
    int64_t weight;                                           /* 1..TENANT_WEIGHT_MAX */
    int64_t in_flight_max, queued_max, submit_per_minute_max; /* 0: no cap */
    char stopped[TENANT_STOPPED_MAX]; /* why no new work is taken; "": it is */
    int64_t stopped_ms;               /* for how long from now; -1: until somebody says otherwise */
};
/* What is in force for name, its own values or TENANT_ANY's. Never -ERR_NOT_FOUND: a tenant exists
 * by its first job. */
MUST_CHECK int store_tenant_get(struct pg *pg, const char *name, struct tenant_row *ret_row,
                                struct err *err);
/* Set what is not TENANT_UNSET; the row is made when missing. stopped, stopped_ms are not touched.
 */
MUST_CHECK int store_tenant_set(struct pg *pg, const struct tenant_row *row, struct err *err);
/* The seam for spending limits and people: from now on no job of the tenant is taken in or
 * dispatched; what runs goes on (cancel it for more). reason NULL: work is taken again. until_ms:
 * UTC, when it ends by itself; -1: not. The scheduler knows within SCHED_TERMS_MS, submission at
 * once. */
MUST_CHECK int store_tenant_stop(struct pg *pg, const char *name, const char *reason,
                                 int64_t until_ms, struct err *err);
/* Up to max tenants that have a row, or (own_only false) jobs that have not ended, by name, those
 * behind `after` ("": from the first; TENANT_ANY comes first). */
MUST_CHECK int store_tenant_list(struct pg *pg, bool own_only, const char *after, int max,
                                 struct tenant_row *ret_rows, struct err *err);

/* ---- what waits and runs (scheduler, status) ---- */
typedef int (*tenant_count_fn)(void *ctx, const char *tenant, enum job_priority priority, int64_t n,
                               int64_t run_us);
/* Calls fn for each tenant and priority with waiting jobs (run_us 0); folds the lines of the count
 * now and then. Returns the number of calls; fn's negative result ends it. */
MUST_CHECK int store_waiting(struct pg *pg, tenant_count_fn fn, void *ctx, struct err *err);
/* The same of jobs dispatched and not ended; run_us: how long those that a worker has started have
 * been dispatched, in all. */
MUST_CHECK int store_in_flight(struct pg *pg, tenant_count_fn fn, void *ctx, struct err *err);
/* Count what waits from the jobs themselves and correct the lines. Returns how many tenants and
 * priorities were wrong. One pass over the index of waiting jobs. */
MUST_CHECK int store_recount(struct pg *pg, struct err *err);

struct activity_row {
    char tenant[JOB_TENANT_MAX + 1];
    int64_t weight, waiting[PRIORITY_COUNT], in_flight;
    int64_t jobs_per_minute, slot_ms; /* of the last minute */
    int share_milli;                  /* of all slot time of that minute */
    int64_t age_ms;                   /* of what the scheduler said; -1: it has said nothing */
    bool stopped;
};
/* What the scheduler saw: replaces the rows of these tenants. n up to ACTIVITY_MAX. */
#define ACTIVITY_MAX 256
MUST_CHECK int store_activity_put(struct pg *pg, const struct activity_row *rows, int n,
                                  struct err *err);
/* Up to max tenants with work that waits, is in flight or ended in the last minute, those with most
 * waiting first. */
MUST_CHECK int store_activity(struct pg *pg, int max, struct activity_row *ret_rows,
                              struct err *err);
