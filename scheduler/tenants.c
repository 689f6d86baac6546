/* What the choice between tenants is made from: how much waits and runs of each, and on what terms.
 *
 * The counts come from Postgres every SCHED_COUNTS_MS and whenever somebody says that there is work
 * without saying whose; in between, the scheduler's own doings and the workers' notices keep them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "scheduler/scheduler.h"

#define TERMS_STEP 512
#define SHOWN_MAX ACTIVITY_MAX

/* One refresh: which lines Postgres has named; all others are empty. */
struct seen {
    struct pick *pick;
    unsigned char (*lines)[PRIORITY_COUNT]; /* of each place */
    bool in_flight;
};

static int on_line(void *ctx, const char *tenant, enum job_priority priority, int64_t n,
                   int64_t run_us)
{
    struct seen *seen = ctx;
    int i = job_tenant_ok(tenant) ? pick_tenant(seen->pick, tenant) : -1;
    if (i < 0) {
        return 0;
    }
    seen->lines[i][priority] = 1;
    if (seen->in_flight) {
        pick_set_in_flight(seen->pick, i, priority, n, run_us);
    } else {
        pick_set_waiting(seen->pick, i, priority, n);
    }
    return 0;
}

static int count(struct scheduler *s, bool in_flight, struct err *err)
{
    struct seen seen = { .pick = s->pick, .in_flight = in_flight };
    cleanup_free unsigned char(*lines)[PRIORITY_COUNT] = calloc(PICK_TENANTS_MAX, sizeof *lines);
    if (!lines) {
        abort();
    }
    seen.lines = lines;
    int rc = in_flight ? store_in_flight(&s->pg, on_line, &seen, err)
                       : store_waiting(&s->pg, on_line, &seen, err);
    for (int i = 0; rc >= 0 && i < pick_places(s->pick); i++) {
        struct pick_view v;
        if (!pick_look(s->pick, i, &v) || (in_flight ? v.in_flight : v.waiting) == 0) {
            continue;
        }
        for (int k = 0; k < PRIORITY_COUNT; k++) {
            if (!lines[i][k] && in_flight) {
                pick_set_in_flight(s->pick, i, (enum job_priority)k, 0, 0);
            } else if (!lines[i][k]) {
                pick_set_waiting(s->pick, i, (enum job_priority)k, 0);
            }
        }
    }
    return rc < 0 ? rc : 0;
}

static struct pick_terms terms_of(const struct tenant_row *r)
{
    return (struct pick_terms){ .weight = r->weight,
                                .in_flight_max = r->in_flight_max,
                                .stopped = r->stopped[0] != 0 };
}

/* TENANT_ANY's comes first: they are in force where the others say nothing else. */
static int set_terms(struct scheduler *s, const struct tenant_row *r, struct err *err)
{
    struct pick_terms t = terms_of(r);
    if (t.weight < 1 || t.weight > PICK_WEIGHT_MAX || t.in_flight_max < 0) {
        return err_set(err, ERR_DB, "Postgres: tenant %s has a weight or cap out of range",
                       r->name);
    }
    if (strcmp(r->name, TENANT_ANY) != 0) {
        int place = pick_tenant(s->pick, r->name);
        if (place >= 0) {
            pick_set_terms(s->pick, place, &t);
        }
        return 0;
    }
    pick_set_new_terms(s->pick, &t);
    for (int k = 0; k < pick_places(s->pick); k++) {
        struct pick_view v;
        if (pick_look(s->pick, k, &v)) {
            pick_set_terms(s->pick, k, &t);
        }
    }
    return 0;
}

static int read_terms(struct scheduler *s, struct err *err)
{
    cleanup_free struct tenant_row *rows = calloc(TERMS_STEP, sizeof *rows);
    if (!rows) {
        abort();
    }
    char after[JOB_TENANT_MAX + 1] = "";
    for (int n = TERMS_STEP; n == TERMS_STEP;) {
        n = store_tenant_list(&s->pg, true, after, TERMS_STEP, rows, err);
        if (n < 0) {
            return n;
        }
        for (int i = 0; i < n; i++) {
            int rc = set_terms(s, &rows[i], err);
            if (rc < 0) {
                return rc;
            }
        }
        if (n > 0) {
            (void)snprintf(after, sizeof after, "%s", rows[n - 1].name);
        }
    }
    return 0;
}

int scheduler_refresh(struct scheduler *s, struct err *err)
{
    int64_t now = mono_ms();
    int rc = 0;
    if (now >= s->recount_at_ms) {
        if ((rc = store_recount(&s->pg, err)) < 0) {
            return rc;
        }
        if (rc > 0) {
            log_warn("the counts of waiting jobs were wrong and are corrected");
        }
        s->recount_at_ms = now + SCHED_RECOUNT_MS;
        s->counts_at_ms = now;
    }
    if (now >= s->counts_at_ms && rc >= 0) {
        rc = count(s, true, err);
        rc = rc < 0 ? rc : count(s, false, err);
        int64_t took = mono_ms() - now; /* many tenants: no more than a twentieth of the time */
        s->counts_at_ms = now + (took * 20 > SCHED_COUNTS_MS ? took * 20 : SCHED_COUNTS_MS);
    }
    now = mono_ms();
    if (rc >= 0 && now >= s->terms_at_ms) {
        rc = read_terms(s, err);
        int64_t took = mono_ms() - now;
        s->terms_at_ms = now + (took * 20 > SCHED_TERMS_MS ? took * 20 : SCHED_TERMS_MS);
    }
    if (rc >= 0 && now >= s->unpark_at_ms) {
        pick_unpark(s->pick);
        s->unpark_at_ms = now + SCHED_UNPARK_MS;
    }
    return rc < 0 ? rc : 0;
}

void scheduler_announce(struct scheduler *s, const char *tenant, enum job_priority priority,
                        int64_t n)
{
    int i = job_tenant_ok(tenant) ? pick_tenant(s->pick, tenant) : -1;
    if (i < 0) {
        s->counts_at_ms = 0;
        return;
    }
    pick_add_waiting(s->pick, i, priority, n);
}

/* ---- who got what ---- */

static int by_slot_time(const void *a, const void *b)
{
    const struct activity_row *x = a, *y = b;
    return x->slot_ms != y->slot_ms ? (x->slot_ms < y->slot_ms ? 1 : -1)
                                    : strcmp(x->tenant, y->tenant);
}

int scheduler_report(struct scheduler *s, struct err *err)
{
    int n_places = pick_places(s->pick), n = 0, slot = s->n_reports++ % SCHED_MINUTE_SLOTS;
    cleanup_free struct activity_row *rows = calloc((size_t)n_places + 1, sizeof *rows);
    if (!rows) {
        abort();
    }
    int64_t all_us = 0;
    for (int i = 0; i < n_places; i++) {
        struct pick_view v;
        struct activity *a = &s->activity[i];
        if (!pick_look(s->pick, i, &v)) {
            continue;
        }
        if (strcmp(a->name, v.name) != 0) { /* the place is another's now */
            *a = (struct activity){ .jobs = { 0 } };
            (void)snprintf(a->name, sizeof a->name, "%s", v.name);
        }
        int64_t jobs = v.done_jobs - a->jobs[slot], us = v.done_us - a->us[slot];
        a->jobs[slot] = v.done_jobs;
        a->us[slot] = v.done_us;
        all_us += us;
        if (jobs == 0 && v.in_flight == 0) {
            continue;
        }
        rows[n] = (struct activity_row){ .in_flight = v.in_flight,
                                         .jobs_per_minute = jobs,
                                         .slot_ms = us / 1000 };
        (void)snprintf(rows[n].tenant, sizeof rows[n].tenant, "%s", v.name);
        n++;
    }
    for (int i = 0; i < n; i++) {
        rows[i].share_milli =
            all_us >= 1000 ? (int)((rows[i].slot_ms * 1000 + all_us / 2000) / (all_us / 1000)) : 0;
    }
    qsort(rows, (size_t)n, sizeof *rows, by_slot_time);
    return n == 0 ? 0 : store_activity_put(&s->pg, rows, n < SHOWN_MAX ? n : SHOWN_MAX, err);
}
