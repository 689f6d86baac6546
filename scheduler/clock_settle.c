#include "scheduler/clock_settle.h"

#include <assert.h>

bool clock_settled(struct clock_settle *c, int64_t before_ms, int64_t db_ms, int64_t after_ms)
{
    assert(before_ms <= after_ms);
    if (after_ms - before_ms > CLOCK_STEP_MS) {
        return false;
    }
    if (!c->known || db_ms - after_ms > c->ahead_ms + CLOCK_STEP_MS) {
        c->since_ms = after_ms;
    }
    c->known = true;
    c->ahead_ms = db_ms - before_ms;
    return after_ms - c->since_ms >= CLOCK_SETTLE_MS;
}
