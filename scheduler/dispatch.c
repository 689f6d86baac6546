/* Dispatch: as many waiting jobs onto the ready stream as the workers alive will soon use. */
#include <assert.h>
#include <string.h>

#include "common/base/clock.h"
#include "scheduler/pick.h"
#include "scheduler/scheduler.h"

#define WORKERS_MAX 1024
#define DISPATCH_TRIES_MAX 8

static int count_slots(struct scheduler *s, int64_t now, struct err *err)
{
    if (s->slots_at_ms > now) {
        return 0;
    }
    static struct worker_info
        workers[WORKERS_MAX]; /* too large for the stack; the scheduler is one thread */
    int n = queue_workers(&s->queue, workers, WORKERS_MAX, err);
    if (n < 0) {
        return n;
    }
    s->slots = 0;
    for (int i = 0; i < n; i++) {
        s->slots += workers[i].slots;
    }
    s->slots_at_ms = now + SCHED_WORKERS_MS;
    return 0;
}

/* What was taken, in the order in which the tenants' turns came. */
static int make_ready(struct scheduler *s, const struct dispatch_row *rows, int n, const int *order,
                      int n_order, struct err *err)
{
    struct ready_item items[PICK_TURN_MAX];
    int next[PICK_TURN_MAX], n_items = 0; /* next[share]: its first row not yet placed */
    memset(next, 0, sizeof next);
    for (int i = 0; i < n_order; i++) {
        int k = next[order[i]];
        while (k < n && rows[k].share != order[i]) {
            k++; /* rows are sorted by share: this happens once a share */
        }
        next[order[i]] = k + 1;
        if (k >= n) {
            continue; /* fewer were due than waited */
        }
        items[n_items++] = (struct ready_item){ .job_id = rows[k].job_id,
                                                .tenant = rows[k].tenant,
                                                .batch = rows[k].batch,
                                                .spec = rows[k].spec,
                                                .spec_len = rows[k].spec_len,
                                                .attempt = rows[k].attempt,
                                                .submitted_ms = rows[k].submitted_ms };
    }
    assert(n_items == n);
    return queue_ready_add(&s->queue, items, n_items,
                           err); /* failed: found again by scheduler_requeue_lost */
}

/* One turn of the choice. Returns how many jobs were made ready. */
static int turn(struct scheduler *s, int room, struct err *err)
{
    static struct pick_share shares[PICK_TURN_MAX];
    static int order[PICK_TURN_MAX];
    static struct dispatch_want wants[PICK_TURN_MAX];
    static struct dispatch_row rows[PICK_TURN_MAX];
    int got[PICK_TURN_MAX], n_jobs;
    int64_t last_us[PICK_TURN_MAX];
    int n = pick_turn(s->pick, room, shares, order, &n_jobs);
    if (n == 0) {
        return 0;
    }
    static_assert(PICK_TURN_MAX <= DISPATCH_WANTS_MAX, "a turn is one statement");
    for (int i = 0; i < n; i++) {
        wants[i] = (struct dispatch_want){ .tenant = pick_name(s->pick, shares[i].tenant),
                                           .priority = shares[i].priority,
                                           .n = shares[i].n,
                                           .from_us = pick_from(s->pick, &shares[i]) };
        got[i] = 0;
        last_us[i] = 0;
    }
    int n_rows = store_dispatch(&s->pg, wants, n, rows, PICK_TURN_MAX, err);
    if (n_rows < 0) {
        return n_rows; /* the connection is made anew, and the counts with it */
    }
    for (int i = 0; i < n_rows; i++) {
        got[rows[i].share]++;
        last_us[rows[i].share] = rows[i].not_before_us; /* they come in their order */
    }
    for (int i = 0; i < n; i++) {
        if (got[i] > 0) {
            pick_set_from(s->pick, &shares[i], last_us[i] - SCHED_FROM_MARGIN_US);
        }
        pick_taken(s->pick, &shares[i], got[i]);
    }
    int rc = n_rows > 0 ? make_ready(s, rows, n_rows, order, n_jobs, err) : 0;
    dispatch_rows_done(rows, n_rows);
    s->n_dispatched += rc < 0 ? 0 : n_rows;
    return rc < 0 ? rc : n_rows;
}

int scheduler_dispatch(struct scheduler *s, struct err *err)
{
    int64_t now = mono_ms(), unclaimed, claimed;
    bool due = s->due_at_ms >= 0 && now >= s->due_at_ms;
    int rc = count_slots(s, now, err);
    rc = rc < 0 ? rc : queue_ready_depth(&s->queue, &unclaimed, &claimed, err);
    rc = rc < 0 ? rc : scheduler_refresh(s, err);
    if (rc < 0) {
        return rc;
    }
    if (due) {
        pick_unpark(s->pick);
    }
    if (due || now >= s->whole_at_ms) { /* whoever committed later than its place in the queue */
        pick_forget_from(s->pick);
        s->whole_at_ms = now + SCHED_WHOLE_MS;
    }
    struct pick_input in = { .slots = s->slots,
                             .ready_depth = s->config->sched_ready_depth,
                             .unclaimed = unclaimed,
                             .claimed = claimed,
                             .mean_us = pick_mean_us(s->pick) };
    int room = pick_room(&in);
    /* Queues that turn out to have nothing due are parked: then others get their room. */
    for (int tries = 0; room > 0 && pick_pending(s->pick) && tries < DISPATCH_TRIES_MAX; tries++) {
        int n = turn(s, room, err);
        if (n < 0) {
            return n;
        }
        room -= n;
    }
    s->announced = false;
    s->backlog = pick_pending(s->pick);
    s->sweep_at_ms = now + SCHED_SWEEP_MS;
    if (!s->backlog || due) {
        int64_t left;
        if ((rc = store_next_due(&s->pg, &left, err)) < 0) {
            return rc;
        }
        s->due_at_ms = left < 0 ? -1 : mono_ms() + left;
    }
    return 0;
}
