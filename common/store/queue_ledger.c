#include "common/store/queue_ledger.h"

#include "common/base/clock.h"
#include "common/store/queue_internal.h"

#define EVENTS_MAX "10000" /* as queue_events.c */

int queue_ledger_event(struct queue *q, const struct ledger_event *e, struct err *err)
{
    struct args a = { .n = 0 };
    args_strs(&a, "XADD", KEY_EVENTS, "MAXLEN", "~", EVENTS_MAX, "*", "type", e->type, "tenant",
              e->tenant, "job", e->job_id, "id", NULL);
    args_int(&a, e->id);
    args_str(&a, "spent");
    args_int(&a, e->spent_nanousd);
    args_str(&a, "limit");
    args_int(&a, e->limit_nanousd);
    args_str(&a, "at");
    args_int(&a, wall_ms());
    return queue_command(q, &a, 0, NULL, err);
}
