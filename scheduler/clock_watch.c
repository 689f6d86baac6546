/* The database's clock against our monotonic one. */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/clock_repair.h"
#include "scheduler/scheduler.h"

int scheduler_watch_clock(struct scheduler *s, struct err *err)
{
    int64_t db_ms, now = mono_ms();
    int rc = store_clock_ms(&s->pg, &db_ms, err); /* is also the leader's sign of life */
    if (rc < 0) {
        return rc;
    }
    int64_t ahead_ms = db_ms - now;
    bool back = s->clock_known && ahead_ms < s->clock_ahead_ms - SCHED_CLOCK_STEP_MS;
    if (s->clock_known && !back) {
        s->clock_ahead_ms = ahead_ms;
        return 0;
    }
    rc = store_clock_went_back(&s->pg, s->config->sched_retry_max_ms, err);
    if (rc < 0) {
        return rc;
    }
    if (back || rc > 0) {
        char ms[24], jobs[16];
        (void)snprintf(ms, sizeof ms, "%lld",
                       back ? (long long)(s->clock_ahead_ms - ahead_ms) : -1ll);
        (void)snprintf(jobs, sizeof jobs, "%d", rc);
        log_warn("the clock of Postgres went back: what waited for its old time is due", "by_ms",
                 ms, "jobs", jobs);
        s->announced = true;
    }
    s->clock_known = true;
    s->clock_ahead_ms = ahead_ms;
    return 0;
}
