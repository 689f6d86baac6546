#include "scheduler/scheduler.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/snapshots.h"
#include "common/base/log.h"

#define STOP_LOOK_MS 50 /* how long a stop may go unnoticed while waiting for a server */

void scheduler_init(struct scheduler *s, const struct config *config)
{
    memset(s, 0, sizeof *s);
    s->config = config;
    s->recover = true;
    s->recover_at_ms = mono_ms() + SCHED_RECOVER_MS;
    s->announced = true;
    s->due_at_ms = -1;
    s->activity = calloc(PICK_TENANTS_MAX, sizeof *s->activity); /* untouched pages cost nothing */
    if (!s->activity) {
        abort();
    }
}

void scheduler_done(struct scheduler *s)
{
    pick_free(s->pick);
    free(s->activity);
    queue_close(&s->queue);
    pg_close(&s->pg);
    lease_watch_done(&s->leases);
}

/* Others may have had the say meanwhile: everything is counted again. */
static void begin_anew(struct scheduler *s)
{
    pick_free(s->pick);
    s->pick = pick_new();
    s->counts_at_ms = s->terms_at_ms = s->recount_at_ms = s->ends_at_ms = 0;
    s->announced = true;
}

int scheduler_connect(struct scheduler *s, struct err *err)
{
    pg_close(&s->pg);
    queue_close(&s->queue);
    int rc = pg_open(&s->pg, s->config->postgres_url, err);
    rc = rc < 0 ? rc : queue_open(&s->queue, s->config->redis_url, err);
    if (rc < 0) {
        return rc;
    }
    int version = pg_schema_version(&s->pg, err);
    if (version < 0) {
        return version;
    }
    if (version == 0) {
        return err_set(err, ERR_UNAVAILABLE,
                       "Postgres has no schema of brood's yet: run `brood migrate`");
    }
    begin_anew(s);
    rc = queue_setup(&s->queue, err);
    return rc < 0 ? rc : leader_stand(&s->leader, &s->pg, err);
}

static int64_t earlier(int64_t wait, int64_t at, int64_t now)
{
    int64_t left = at > now ? at - now : 0;
    return left < wait ? left : wait;
}

/* How long intake may block: until the next thing that has a time. */
static int64_t wait_ms(const struct scheduler *s, int64_t wait_max)
{
    int64_t now = mono_ms(), wait = wait_max;
    if (s->announced || s->recover) {
        return 0;
    }
    if (s->backlog && wait > SCHED_BACKLOG_MS) {
        wait = SCHED_BACKLOG_MS;
    }
    wait = earlier(wait, s->sweep_at_ms, now);
    wait = earlier(wait, s->leases_at_ms, now);
    wait = earlier(wait, s->lost_at_ms, now);
    return s->due_at_ms < 0 ? wait : earlier(wait, s->due_at_ms, now);
}

static bool dispatch_is_due(const struct scheduler *s)
{
    int64_t now = mono_ms();
    return s->announced || s->backlog || now >= s->sweep_at_ms ||
           (s->due_at_ms >= 0 && now >= s->due_at_ms);
}

static int look_after(struct scheduler *s, struct err *err)
{
    int64_t now = mono_ms();
    int rc = 0;
    if (now >= s->leases_at_ms) {
        rc = scheduler_expire_claims(s, err);
        s->leases_at_ms = now + s->config->sched_lease_ms / 4;
    }
    if (rc == 0 && now >= s->lost_at_ms) {
        rc = scheduler_requeue_lost(s, err);
        s->lost_at_ms = now + SCHED_LOST_MS;
    }
    if (rc == 0 && now >= s->tidy_at_ms) {
        rc = queue_consumers_tidy(&s->queue, SCHED_TIDY_IDLE_MS, err);
        rc = rc < 0 ? rc : store_snapshots_expire(&s->pg, SCHED_EXPIRE_MAX, err);
        s->tidy_at_ms = now + SCHED_TIDY_MS;
    }
    if (rc >= 0 && now >= s->ends_at_ms) {
        rc = scheduler_ends(s, err);
        s->ends_at_ms = now + (rc == SCHED_ENDS_MAX ? 0 : SCHED_SWEEP_MS);
    }
    if (rc >= 0 && now >= s->activity_at_ms) {
        rc = scheduler_report(s, err);
        s->activity_at_ms = now + SCHED_ACTIVITY_MS;
    }
    if (rc >= 0 && now >= s->beat_at_ms) { /* last: everything before it has gone well */
        rc = scheduler_watch_clock(s, err);
        rc = rc < 0 ? rc : queue_scheduler_beat(&s->queue, getpid(), SCHED_BEAT_TTL_MS, err);
        s->beat_at_ms = now + SCHED_BEAT_MS;
    }
    return rc < 0 ? rc : 0;
}

int scheduler_turn(struct scheduler *s, int64_t wait_ms_max, struct err *err)
{
    assert(wait_ms_max >= 0);
    struct intake_taken taken = { .n = 0 };
    int rc = scheduler_intake(s, wait_ms(s, wait_ms_max), &taken, err);
    if (rc < 0) {
        return rc;
    }
    rc = dispatch_is_due(s) ? scheduler_dispatch(s, err)
                            : 0; /* before the acknowledgement: it is on the jobs' way */
    struct err ack_err;
    int ack = scheduler_intake_done(s, &taken, &ack_err);
    if (rc == 0 && ack < 0) {
        *err = ack_err;
        return ack;
    }
    return rc < 0 ? rc : look_after(s, err);
}

/* One that does not lead: says that it is there, and tries again. */
static int wait_to_lead(struct scheduler *s, struct err *err)
{
    int rc = queue_scheduler_beat(&s->queue, getpid(), SCHED_BEAT_TTL_MS, err);
    if (rc < 0) {
        return rc;
    }
    sleep_ms(LEADER_TRY_MS);
    rc = leader_stand(&s->leader, &s->pg, err);
    if (rc == 0 && s->leader.leads) { /* what the one before left half done is found again */
        s->recover = true;
        begin_anew(s);
        s->clock_known = false;
        s->leases_at_ms = s->lost_at_ms = s->beat_at_ms = 0;
    }
    return rc;
}

static int run_turn(struct scheduler *s, struct err *err)
{
    bool was_out = s->outage.on;
    /* After a failure both servers are asked first, so that no entry is taken that could not be
     * written. */
    int rc = was_out ? scheduler_connect(s, err) : 0;
    if (rc == 0 && s->leader.leads && !leader_holds(&s->leader, &s->pg)) {
        rc = leader_stand(&s->leader, &s->pg, err); /* a new session does not have the lock */
    }
    if (rc < 0) {
        return rc;
    }
    return s->leader.leads ? scheduler_turn(s, was_out ? 0 : SCHED_IDLE_MS, err)
                           : wait_to_lead(s, err);
}

static void log_end(const struct scheduler *s)
{
    char n[5][24];
    const int64_t v[5] = { s->n_submitted, s->n_rejected, s->n_dispatched, s->n_expired,
                           s->n_requeued };
    for (int i = 0; i < 5; i++) {
        (void)snprintf(n[i], sizeof n[i], "%lld", (long long)v[i]);
    }
    log_info("stopped", "submitted", n[0], "refused", n[1], "dispatched", n[2], "expired", n[3],
             "requeued", n[4]);
}

void scheduler_run(struct scheduler *s, const volatile sig_atomic_t *stop)
{
    struct err err;
    bool connected = false;
    while (!*stop) {
        int rc = connected ? run_turn(s, &err) : scheduler_connect(s, &err);
        if (rc == 0) {
            if (!connected) {
                log_info("ready");
            }
            connected = true;
            outage_over(&s->outage, mono_ms());
            continue;
        }
        int64_t until = mono_ms() + outage_failed(&s->outage, mono_ms(), &err);
        for (int64_t left; !*stop && (left = until - mono_ms()) > 0;) {
            sleep_ms(left < STOP_LOOK_MS ? left : STOP_LOOK_MS);
        }
    }
    if (connected) {
        (void)!queue_scheduler_gone(&s->queue, getpid(), &err); /* it expires by itself too */
    }
    log_end(s);
}
