/* The scheduler: from the intake stream into Postgres, from Postgres onto the ready stream, and
 * back when a claim expires.
 *
 * One thread, one blocking loop. A turn: take what is on intake (waiting there when there is
 * nothing else to do), write the rows, make ready what the workers can use, acknowledge the intake,
 * then look after expired claims and lost entries when their time has come. Nothing is remembered
 * that cannot be found again in Postgres or Redis, so a scheduler may be killed anywhere and
 * started again. Of several one leads and does all of this, the others wait to take its place
 * (leader.h); should two ever do it at once, it does no harm (row locks, job ids derived from
 * stream ids). */
#pragma once
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/base/config.h"
#include "common/store/jobs.h"
#include "common/store/queue.h"
#include "scheduler/leader.h"
#include "common/base/outage.h"
#include "common/store/tenants.h"
#include "scheduler/pick.h"

#define SCHED_CONSUMER "scheduler"
#define SCHED_IDLE_MS 100    /* longest wait on intake */
#define SCHED_BACKLOG_MS 10  /* wait while jobs are waiting for room */
#define SCHED_SWEEP_MS 500   /* look for waiting jobs that nobody announced */
#define SCHED_WORKERS_MS 500 /* how old the count of live slots may be */
#define SCHED_BEAT_MS 1000   /* between two signs of life */
#define SCHED_BEAT_TTL_MS 10000
#define SCHED_RECOVER_MS 5000 /* between two looks for what a former leader was given last */
#define SCHED_CLOCK_LOOKS 2   /* for what transactions open at the time bring afterwards */
#define SCHED_EXPIRE_MAX 100  /* snapshots deleted at a time */
#define SCHED_TIDY_MS 60000   /* between two looks for consumers that nobody is any more */
#define SCHED_TIDY_IDLE_MS 60000
#define SCHED_LOST_MS 3000           /* between two looks for entries that Redis lost */
#define SCHED_LOST_AGE_MS 5000       /* a dispatched job without an entry is lost only after this */
#define SCHED_COUNTS_MS 500          /* how old the counts of what waits and runs may be */
#define SCHED_TERMS_MS 1000          /* and the tenants' weights, caps and stops */
#define SCHED_UNPARK_MS 5000         /* look again at queues that had nothing due */
#define SCHED_WHOLE_MS 1000          /* look at whole queues, not only behind what was taken last */
#define SCHED_FROM_MARGIN_US 1000000 /* begin so long before it: submissions overlap */
#define SCHED_RECOUNT_MS                                                                           \
    600000                     /* between two corrections of the counts from the jobs themselves   \
                                */
#define SCHED_ACTIVITY_MS 1000 /* between two reports of who got what */
#define SCHED_MINUTE_SLOTS 60  /* of SCHED_ACTIVITY_MS: what a minute's share is added up from */
#define SCHED_ENDS_MAX 500     /* jobs expired, or cancelled, in one turn */
#define SCHED_TEMPLATES_MAX 64
#define SCHED_TEMPLATE_TTL_MS 2000

struct template_slot {
    char name[JOB_TEMPLATE_MAX + 1]; /* as asked for, maybe with a digest; "" = free */
    struct template_info info;
    int64_t fetched_ms;
};

/* What is known of the claims: leases.c. */
#define LEASE_CLAIMS_MAX                                                                           \
    65536 /* watched at once; what is beyond is watched when these have ended */
struct watched_claim {
    struct pending_claim claim;
    int64_t silent_ms; /* for how long it was seen to stand as it does */
};
struct lease_watch {
    struct watched_claim *last, *now; /* arrays of LEASE_CLAIMS_MAX, in the order of the stream */
    int n;                            /* of last */
    int64_t looked_ms;                /* mono_ms */
};
void lease_watch_done(struct lease_watch *w);

/* What a tenant got lately: totals of pick_look() at the last SCHED_MINUTE_SLOTS reports. */
struct activity {
    char name[JOB_TENANT_MAX + 1]; /* of the place's tenant then */
    int64_t jobs[SCHED_MINUTE_SLOTS], us[SCHED_MINUTE_SLOTS];
};

struct scheduler {
    const struct config *config;
    struct pick *pick;         /* rebuilt from Postgres by every connect */
    struct activity *activity; /* PICK_TENANTS_MAX: of the places of pick */
    int n_reports;
    int64_t counts_at_ms, terms_at_ms, unpark_at_ms, recount_at_ms, activity_at_ms, ends_at_ms,
        whole_at_ms;
    struct pg pg;
    struct queue queue;
    struct outage outage;
    struct lease_watch leases;
    struct leader leader;
    bool recover; /* the group may hold entries that were taken and not finished */
    int64_t recover_at_ms;
    bool announced; /* rows are known to be new since the last dispatch */
    bool backlog;   /* more jobs wait than there was room for */
    int64_t slots, slots_at_ms, sweep_at_ms, due_at_ms, leases_at_ms, lost_at_ms, tidy_at_ms,
        beat_at_ms; /* mono_ms; due -1: none */
    bool clock_known;
    int64_t clock_ahead_ms; /* the database's clock, less mono_ms */
    int64_t clock_look_at_ms;
    int clock_looks; /* that are left */
    struct template_slot templates[SCHED_TEMPLATES_MAX];
    int64_t n_submitted, n_rejected, n_dispatched, n_expired,
        n_requeued; /* since start; logged at the end */
};

/* Does not connect: run does, and waits for servers that are not there. config must outlive s. */
void scheduler_init(struct scheduler *s, const struct config *config);
void scheduler_done(struct scheduler *s);
/* Until *stop is not 0 (set by a signal handler): finishes the turn it is in. Never fails. */
void scheduler_run(struct scheduler *s, const volatile sig_atomic_t *stop);
/* One turn; waits at most wait_ms_max for intake. An error says which server failed; everything not
 * finished is found again. */
MUST_CHECK int scheduler_turn(struct scheduler *s, int64_t wait_ms_max, struct err *err);
/* Connect to both, check the schema's version, make the consumer groups, stand for leader. 0 also
 * when another scheduler leads: s->leader.leads says which. */
MUST_CHECK int scheduler_connect(struct scheduler *s, struct err *err);

/* ---- the steps of a turn (one file each) ---- */
/* intake.c: read, validate, write rows, refuse. *ret_entries[n] are to be acknowledged by
 * scheduler_intake_done, which frees them. */
struct intake_taken {
    struct intake_entry *entries; /* array of capacity n_max */
    int n;
};
MUST_CHECK int scheduler_intake(struct scheduler *s, int64_t block_ms,
                                struct intake_taken *ret_taken, struct err *err);
MUST_CHECK int scheduler_intake_done(struct scheduler *s, struct intake_taken *taken,
                                     struct err *err);
/* The job id of an intake entry: version 7, its time and order those of the stream id, its rest
 * from the id and the content. The same entry delivered twice is the same job. */
struct id scheduler_job_id(const char *stream_id, const uint8_t spec_hash[32]);
/* tenants.c: what the choice is made from. What is due of: counts, terms, recount. */
MUST_CHECK int scheduler_refresh(struct scheduler *s, struct err *err);
/* n jobs of the tenant are known to wait since the last count; a name that Redis made up is
 * ignored. */
void scheduler_announce(struct scheduler *s, const char *tenant, enum job_priority priority,
                        int64_t n);
/* Tell who got what. */
MUST_CHECK int scheduler_report(struct scheduler *s, struct err *err);
/* ends.c: what ends without having run: deadlines that have passed; and cancels that workers did
 * not hear of. Returns SCHED_ENDS_MAX when there may be more. */
MUST_CHECK int scheduler_ends(struct scheduler *s, struct err *err);
/* dispatch.c */
MUST_CHECK int scheduler_dispatch(struct scheduler *s, struct err *err);
/* leases.c */
MUST_CHECK int scheduler_expire_claims(struct scheduler *s, struct err *err);
MUST_CHECK int scheduler_requeue_lost(struct scheduler *s, struct err *err);
/* clock_watch.c: notice a step back of the database's clock, and mend what waits because of it. */
MUST_CHECK int scheduler_watch_clock(struct scheduler *s, struct err *err);
/* templates.c: store_base_get; templates through a small cache, a tenant's snapshots not. */
MUST_CHECK int scheduler_template(struct scheduler *s, const char *tenant, const char *name,
                                  struct template_info *ret_t, struct err *err);
