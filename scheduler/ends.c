/* Ends that nobody runs to: deadlines that have passed, jobs that were taken back and wait again
 * because their worker was lost, running jobs whose tenant's budget is spent, and workers that did
 * not hear that a job is to end. */
#include <assert.h>

#include "common/store/cancel.h"
#include "scheduler/scheduler.h"

#define TELL_AGE_MS 500 /* whoever cancels tells the workers; older ones may have been missed */

static int publish(struct scheduler *s, const struct id *ids, int n, enum verdict v,
                   struct err *err)
{
    static struct finished_event events[SCHED_ENDS_MAX];
    for (int i = 0; i < n; i++) {
        events[i] = (struct finished_event){ ids[i].text, verdict_word(v) };
    }
    return n > 0 ? queue_events_finished(&s->queue, events, n, err) : 0;
}

int scheduler_ends(struct scheduler *s, struct err *err)
{
    static struct id ids[SCHED_ENDS_MAX];
    static_assert(SCHED_ENDS_MAX <= QUEUE_DROP_MAX, "cancel_tell takes as many");
    int expired = store_expire(&s->pg, SCHED_ENDS_MAX, ids, err);
    int rc = expired < 0 ? expired : publish(s, ids, expired, VERDICT_SKIPPED, err);
    if (rc < 0) {
        return rc;
    }
    int cancelled = store_cancel_marked(&s->pg, NULL, 0, SCHED_ENDS_MAX, ids, err);
    rc = cancelled < 0 ? cancelled : publish(s, ids, cancelled, VERDICT_CANCELLED, err);
    int spent = rc < 0 ? rc : store_cancel_spent(&s->pg, SCHED_ENDS_MAX, ids, err);
    rc = spent > 0 ? cancel_tell(&s->pg, &s->queue, ids, spent, err) : spent;
    int n = rc < 0 ? rc : store_cancelling(&s->pg, TELL_AGE_MS, SCHED_ENDS_MAX, ids, err);
    if (n > 0 && (rc = cancel_tell(&s->pg, &s->queue, ids, n, err)) < 0) {
        return rc;
    }
    return n < 0                                                      ? n
           : expired == SCHED_ENDS_MAX || cancelled == SCHED_ENDS_MAX ? SCHED_ENDS_MAX
                                                                      : 0;
}
