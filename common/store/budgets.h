/* Budgets: what a tenant may spend in a day, a month (UTC) or in all, and what happens at which
 * share of it. The scheduler's keeper looks at them about once a second; who picks or admits work
 * asks what it found. docs/billing.md. */
#pragma once
#include "common/base/id.h"
#include "common/model/job.h"
#include "common/store/pg.h"

enum budget_period { BUDGET_DAY, BUDGET_MONTH, BUDGET_TOTAL };
const char *budget_period_word(enum budget_period p); /* "day", "month", "total" */
int budget_period_parse(const char *word);            /* -1: none */

enum budget_state { BUDGET_OK, BUDGET_WARNED, BUDGET_STOPPED };
const char *budget_state_word(enum budget_state s);

struct budget {
    char tenant[JOB_TENANT_MAX + 1];
    enum budget_period period;
    int64_t limit_nanousd;
    int warn_percent;        /* 1..100 */
    bool cancel_running;     /* at the limit also what runs is taken back */
    int64_t long_running_ms; /* an event for each attempt that runs longer; 0: none */
    /* read only: what the last look found */
    enum budget_state state;
    int64_t spent_nanousd;
};
#define BUDGETS_MAX 100000

/* Add or replace; the state is looked at anew by the next store_budgets_look. -ERR_INVALID names
 * the field. */
MUST_CHECK int store_budget_put(struct pg *pg, const struct budget *b, struct err *err);
/* -ERR_NOT_FOUND when there was none. */
MUST_CHECK int store_budget_remove(struct pg *pg, const char *tenant, struct err *err);
/* Up to max, by tenant; returns how many. */
MUST_CHECK int store_budgets(struct pg *pg, struct budget *ret_rows, int max, struct err *err);

/* ---- for the keeper; whom a budget stops: the view budgets_spent ---- */

/* Compare what was spent (sealed days, and the lines that are not sealed yet) with every budget:
 * states change, and each change is written as an event, once a period and limit. Attempts that run
 * too long become events too. Returns how many events were written. */
MUST_CHECK int store_budgets_look(struct pg *pg, struct err *err);

struct budget_event {
    int64_t id;
    char kind[24]; /* budget.warned, budget.stopped, budget.resumed, job.long_running */
    char tenant[JOB_TENANT_MAX + 1];
    char job_id[ID_TEXT_BYTES]; /* "" but for job.long_running */
    int attempt;
    int64_t spent_nanousd, limit_nanousd, at_ms;
};
#define BUDGET_EVENTS_MAX 100
/* Events that were not put on the stream yet, oldest first, up to max; store_budget_told
 * afterwards. At least once: a reader knows them by their id. */
MUST_CHECK int store_budget_events(struct pg *pg, struct budget_event *ret_rows, int max,
                                   struct err *err);
MUST_CHECK int store_budget_told(struct pg *pg, int64_t up_to_id, struct err *err);
