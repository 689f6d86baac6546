/* What the ledger has to tell, on the stream of events: budgets and long runners. */
#pragma once
#include "common/store/queue.h"

struct ledger_event {
    const char *type; /* budget.warned, budget.stopped, budget.resumed, job.long_running */
    const char *tenant, *job_id; /* "" when it is about no job */
    int64_t id; /* of the row in budget_events: the same event told twice has the same */
    int64_t spent_nanousd, limit_nanousd; /* of job.long_running: the time's limit in ms */
};
/* XADD {type, tenant, job, id, spent, limit, at}. */
MUST_CHECK int queue_ledger_event(struct queue *q, const struct ledger_event *e, struct err *err);
