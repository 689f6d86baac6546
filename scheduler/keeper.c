#include "scheduler/keeper.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/budgets.h"
#include "common/store/clock_repair.h"
#include "common/store/ledger.h"
#include "common/store/queue_ledger.h"
#include "scheduler/clock_settle.h"
#include "scheduler/ticker.h"

#define HOURS_A_TURN 8 /* of storage, when many are to be caught up with */
#define AWAY_MS 5000   /* a server is not there: look again after this */

struct keeper {
    const struct config *config;
    struct pg pg;
    struct queue queue;
    struct seal_state seal;
    struct clock_settle clock;
    bool open, told; /* told: that it cannot work */
    struct ticker ticker;
};

static int keeper_connect(struct keeper *k, struct err *err)
{
    if (k->open) {
        return 0;
    }
    pg_close(&k->pg);
    queue_close(&k->queue);
    int rc = pg_open(&k->pg, k->config->postgres_url, err);
    rc = rc < 0 ? rc : queue_open(&k->queue, k->config->redis_url, err);
    rc = rc < 0 ? rc : pg_schema_version(&k->pg, err);
    if (rc == 0) {
        return err_set(err, ERR_UNAVAILABLE, "Postgres has no schema of brood's yet");
    }
    k->open = rc > 0;
    return rc < 0 ? rc : 0;
}

static int seal(struct keeper *k, struct err *err)
{
    int n = SEAL_TURN_MAX;
    while (n == SEAL_TURN_MAX && !ticker_stopping(&k->ticker)) {
        n = store_seal(&k->pg, &k->seal, err);
    }
    return n < 0 ? n : 0;
}

/* By the clock that was judged, not by what it says a moment later. */
static int charge(struct keeper *k, struct err *err)
{
    int64_t before_ms = mono_ms(), db_ms;
    int rc = store_clock_ms(&k->pg, &db_ms, err);
    if (rc < 0 || !clock_settled(&k->clock, before_ms, db_ms, mono_ms())) {
        return rc;
    }
    rc = 1;
    for (int i = 0; rc == 1 && i < HOURS_A_TURN && !ticker_stopping(&k->ticker); i++) {
        rc = store_charge_storage(&k->pg, db_ms, err);
    }
    return rc < 0 ? rc : 0;
}

/* The stream first, the mark afterwards: told at least once. */
static int tell(struct keeper *k, struct err *err)
{
    struct budget_event events[BUDGET_EVENTS_MAX];
    int n = store_budget_events(&k->pg, events, BUDGET_EVENTS_MAX, err), rc = 0;
    for (int i = 0; i < n && rc >= 0; i++) {
        const struct budget_event *e = &events[i];
        const struct ledger_event on_stream = { .type = e->kind,
                                                .tenant = e->tenant,
                                                .job_id = e->job_id,
                                                .id = e->id,
                                                .spent_nanousd = e->spent_nanousd,
                                                .limit_nanousd = e->limit_nanousd };
        rc = queue_ledger_event(&k->queue, &on_stream, err);
        log_info(e->kind, "tenant", e->tenant, "job", e->job_id);
    }
    rc = n < 0 ? n : rc;
    return n > 0 && rc >= 0 ? store_budget_told(&k->pg, events[n - 1].id, err) : rc;
}

/* Budgets are looked at whatever became of the rest: they stop and let go, and count lines that are
 * not sealed too. */
static int turn(struct keeper *k, struct err *err)
{
    int rc = keeper_connect(k, err);
    if (rc < 0) {
        return rc;
    }
    struct err of_books;
    int books = seal(k, &of_books);
    books = books < 0 ? books : charge(k, &of_books);
    rc = store_budgets_look(&k->pg, err);
    rc = rc < 0 ? rc : tell(k, err);
    if (books < 0) {
        *err = of_books;
    }
    return books < 0 ? books : rc;
}

static int64_t run(void *arg)
{
    struct keeper *k = arg;
    struct err err;
    int rc = turn(k, &err);
    if (rc < 0 && !k->told) {
        log_warn("the ledger is not looked after", "reason", err.text);
    } else if (rc >= 0 && k->told) {
        log_info("the ledger is looked after again");
    }
    k->told = rc < 0;
    k->open = k->open && rc >= 0;
    return rc < 0 ? AWAY_MS : KEEPER_TURN_MS;
}

int keeper_start(const struct config *config, struct keeper **ret_keeper, struct err *err)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (!k) {
        abort();
    }
    k->config = config;
    int rc = ticker_start(&k->ticker, run, k, err);
    if (rc < 0) {
        free(k);
        return rc;
    }
    *ret_keeper = k;
    return 0;
}

void keeper_stop(struct keeper *k)
{
    if (!k) {
        return;
    }
    ticker_stop(&k->ticker);
    pg_close(&k->pg);
    queue_close(&k->queue);
    free(k);
}
