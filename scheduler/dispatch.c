/* Dispatch: as many waiting jobs onto the ready stream as the workers alive will soon use. */
#include <string.h>

#include "common/base/clock.h"
#include "scheduler/pick.h"
#include "scheduler/scheduler.h"

#define WORKERS_MAX 1024

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

static int make_ready(struct scheduler *s, const struct dispatch_row *rows, int n, struct err *err)
{
    struct ready_item items[PICK_TURN_MAX];
    for (int i = 0; i < n; i++) {
        items[i] = (struct ready_item){ .job_id = rows[i].job_id,
                                        .tenant = rows[i].tenant,
                                        .batch = rows[i].batch,
                                        .spec = rows[i].spec,
                                        .spec_len = rows[i].spec_len,
                                        .attempt = rows[i].attempt,
                                        .submitted_ms = rows[i].submitted_ms };
    }
    return queue_ready_add(&s->queue, items, n,
                           err); /* failed: found again by scheduler_requeue_lost */
}

int scheduler_dispatch(struct scheduler *s, struct err *err)
{
    int64_t now = mono_ms(), unclaimed, claimed;
    int rc = count_slots(s, now, err);
    rc = rc < 0 ? rc : queue_ready_depth(&s->queue, &unclaimed, &claimed, err);
    if (rc < 0) {
        return rc;
    }
    struct pick_input in = { .slots = s->slots,
                             .ready_depth = s->config->sched_ready_depth,
                             .unclaimed = unclaimed };
    int room = pick_room(&in);
    if (room == 0) {
        /* Nothing is known of more, but room will come: look again at the pace of a backlog. */
        s->announced = false;
        s->backlog = true;
        s->sweep_at_ms = now + SCHED_SWEEP_MS;
        s->due_at_ms = -1;
        return 0;
    }
    static struct dispatch_row rows[PICK_TURN_MAX];
    int n = store_dispatch(&s->pg, room, rows, err);
    if (n < 0) {
        return n;
    }
    rc = n > 0 ? make_ready(s, rows, n, err) : 0;
    dispatch_rows_done(rows, n);
    if (rc < 0) {
        return rc;
    }
    s->n_dispatched += n;
    s->announced = false;
    s->backlog = n == room;
    s->sweep_at_ms = now + SCHED_SWEEP_MS;
    if (!s->backlog) {
        int64_t due;
        if ((rc = store_next_due(&s->pg, &due, err)) < 0) {
            return rc;
        }
        s->due_at_ms = due < 0 ? -1 : mono_ms() + due;
    }
    return 0;
}
