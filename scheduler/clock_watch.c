/* The database's clock against our monotonic one. When it went back, what waited for its old time
 * is made due; and again a little later, for a transaction that was open at that moment brings rows
 * of the old time when it commits. */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/clock_repair.h"
#include "scheduler/clock_settle.h"
#include "scheduler/scheduler.h"

static const int64_t look_after_ms[SCHED_CLOCK_LOOKS + 1] = { 5000, 60000 };

int scheduler_watch_clock(struct scheduler *s, struct err *err)
{
    int64_t db_ms, now = mono_ms();
    int rc = store_clock_ms(&s->pg, &db_ms, err); /* is also the leader's sign of life */
    if (rc < 0) {
        return rc;
    }
    int64_t ahead_ms = db_ms - now;
    bool back = s->clock_known && ahead_ms < s->clock_ahead_ms - CLOCK_STEP_MS;
    bool step = back || !s->clock_known;
    if (!step && (s->clock_looks == 0 || now < s->clock_look_at_ms)) {
        s->clock_ahead_ms = ahead_ms;
        return 0;
    }
    int64_t by_ms = back ? s->clock_ahead_ms - ahead_ms : 0;
    rc = store_clock_went_back(&s->pg, by_ms, s->config->sched_retry_max_ms, err);
    if (rc < 0) {
        return rc;
    }
    if (back || rc > 0) {
        char ms[24], jobs[16];
        (void)snprintf(ms, sizeof ms, "%lld", back ? (long long)by_ms : -1ll);
        (void)snprintf(jobs, sizeof jobs, "%d", rc);
        log_warn("the clock of Postgres went back: what waited for its old time is due", "by_ms",
                 ms, "jobs", jobs);
        s->announced = true;
    }
    s->clock_looks = step ? SCHED_CLOCK_LOOKS : s->clock_looks - 1;
    s->clock_look_at_ms = now + look_after_ms[SCHED_CLOCK_LOOKS - s->clock_looks];
    s->clock_known = true;
    s->clock_ahead_ms = ahead_ms;
    return 0;
}
