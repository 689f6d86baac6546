#include "common/store/budgets.h"

#include <assert.h>
#include <string.h>

#include "common/store/ledger.h"
#include "common/store/ledger_internal.h"

static const char *const period_words[] = { "day", "month", "total" };
static const char *const state_words[] = { "ok", "warned", "stopped" };

/* $1 tenant, $2 period, $3 limit, $4 percent, $5 cancel, $6 long */
static const struct statement put = { "budget_put",
                                      "INSERT INTO budgets (tenant, period, limit_nanousd, "
                                      "warn_percent, cancel_running, long_running_ms) "
                                      "VALUES ($1, $2, $3::int8, $4::int, $5::int = 1, $6::int8) "
                                      "ON CONFLICT (tenant) DO UPDATE SET period "
                                      "= excluded.period, limit_nanousd = excluded.limit_nanousd, "
                                      "warn_percent = excluded.warn_percent, "
                                      "cancel_running = excluded.cancel_running, long_running_ms = "
                                      "excluded.long_running_ms, looked_at = "
                                      "NULL" };
static const struct statement remove_one = { "budget_remove",
                                             "DELETE FROM budgets WHERE tenant = $1" };
#define COLUMNS                                                                                    \
    "tenant, period, limit_nanousd, warn_percent, cancel_running::int, long_running_ms, state, "   \
    "spent_nanousd"
static const struct statement list = { "budget_list",
                                       "SELECT " COLUMNS
                                       " FROM budgets ORDER BY tenant LIMIT $1::int" };

/* What each budget's tenant has spent since the period began: the sealed days, and what was written
 * since. The state it gives; the events that a change of state makes. One look at a time. */
static const struct statement look_lock = { "budget_lock",
                                            "SELECT pg_try_advisory_xact_lock(7310579512230485)" };
static const struct statement look_states = {
    "budget_look",
    "WITH sealed AS (SELECT coalesce(max(last_pos), 0) AS pos FROM usage_seals),"
    " fresh AS (SELECT u.tenant, u.from_ts, u.cost_nanousd FROM usage_records u, sealed WHERE "
    "u.pos > "
    "   sealed.pos),"
    " since AS (SELECT tenant, CASE period WHEN 'day' THEN date_trunc('day', clock_timestamp() AT "
    "TIME "
    "   ZONE 'UTC') WHEN 'month' THEN date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') "
    "ELSE "
    "   'epoch'::timestamp END AS at FROM budgets),"
    " spent AS (SELECT s.tenant, s.at AT TIME ZONE 'UTC' AS at,"
    "   (SELECT coalesce(sum(d.cost_nanousd), 0) FROM usage_days d WHERE d.tenant = s.tenant AND "
    "d.day >= "
    "     s.at::date)"
    "   + (SELECT coalesce(sum(f.cost_nanousd), 0) FROM fresh f WHERE f.tenant = s.tenant AND "
    "f.from_ts >= "
    "     s.at AT TIME ZONE 'UTC') AS cost FROM since s),"
    " new AS (SELECT b.tenant, b.state AS before, b.since AS since_before, b.limit_nanousd, s.at, "
    "   s.cost::int8 AS cost, CASE WHEN s.cost >= b.limit_nanousd THEN 'stopped' WHEN s.cost * 100 "
    ">= "
    "   b.limit_nanousd::numeric * b.warn_percent THEN 'warned' ELSE 'ok' END AS state FROM "
    "budgets b JOIN "
    "   spent s ON s.tenant = b.tenant WHERE b.looked_at IS NULL OR b.spent_nanousd <> s.cost OR "
    "b.since <> "
    "   s.at),"
    " up AS (UPDATE budgets b SET state = n.state, spent_nanousd = n.cost, since = n.at, looked_at "
    "= "
    "   clock_timestamp() FROM new n WHERE b.tenant = n.tenant RETURNING b.tenant)"
    " INSERT INTO budget_events (tenant, kind, since, spent_nanousd, limit_nanousd)"
    " SELECT tenant, kind, at, cost, limit_nanousd FROM (SELECT n.*, 'budget.warned' AS kind FROM "
    "new n WHERE "
    "   state IN ('warned','stopped') AND (before = 'ok' OR at <> since_before) UNION ALL SELECT "
    "n.*, "
    "   'budget.stopped' FROM new n WHERE state = 'stopped' AND (before <> 'stopped' OR at <> "
    "since_before) "
    "   UNION ALL SELECT n.*, 'budget.resumed' FROM new n WHERE state <> 'stopped' AND before = "
    "'stopped') e "
    " ORDER BY tenant, kind DESC ON CONFLICT DO NOTHING"
};
static const struct statement look_long = {
    "budget_long", "INSERT INTO budget_events (tenant, kind, since, job_id, attempt, "
                   "spent_nanousd, limit_nanousd) SELECT "
                   "j.tenant, 'job.long_running', 'epoch', j.id, j.attempt, b.spent_nanousd, "
                   "b.long_running_ms FROM jobs j "
                   "JOIN budgets b ON b.tenant = j.tenant AND b.long_running_ms > 0 WHERE j.state "
                   "IN ('scheduled','running') "
                   "AND j.scheduled_at < clock_timestamp() - b.long_running_ms * interval '1 ms' "
                   "ON CONFLICT DO NOTHING"
};
static const struct statement untold = {
    "budget_untold",
    "SELECT id, kind, tenant, coalesce(job_id::text, ''), coalesce(attempt, 0), spent_nanousd, "
    "limit_nanousd, " PG_MS("at") " FROM budget_events WHERE NOT told ORDER BY id LIMIT $1::int"
};
static const struct statement told = {
    "budget_told", "UPDATE budget_events SET told = true WHERE NOT told AND id <= $1::int8"
};

const char *budget_period_word(enum budget_period p)
{
    assert((int)p >= 0 && p <= BUDGET_TOTAL);
    return period_words[p];
}

int budget_period_parse(const char *word)
{
    for (int i = 0; i <= BUDGET_TOTAL; i++) {
        if (strcmp(word, period_words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

const char *budget_state_word(enum budget_state s)
{
    assert((int)s >= 0 && s <= BUDGET_STOPPED);
    return state_words[s];
}

int store_budget_put(struct pg *pg, const struct budget *b, struct err *err)
{
    if (!job_tenant_ok(b->tenant)) {
        return err_set(err, ERR_INVALID, "tenant: must match [a-z0-9][a-z0-9_-]{0,63}");
    }
    if (b->limit_nanousd < 0 || b->warn_percent < 1 || b->warn_percent > 100 ||
        b->long_running_ms < 0) {
        return err_set(
            err, ERR_INVALID,
            "a limit is not below 0, the share of a warning from 1 to 100 percent, a time "
            "not below 0");
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, b->tenant);
    pg_add_text(&p, budget_period_word(b->period));
    pg_add_int(&p, b->limit_nanousd);
    pg_add_int(&p, b->warn_percent);
    pg_add_int(&p, b->cancel_running);
    pg_add_int(&p, b->long_running_ms);
    int rc = pg_ask(pg, &put, &p, NULL, err);
    return rc < 0 ? rc : 0;
}

int store_budget_remove(struct pg *pg, const char *tenant, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    int rc = pg_ask(pg, &remove_one, &p, NULL, err);
    return rc == 0 ? err_set(err, ERR_NOT_FOUND, "%.64s has no budget", tenant) : rc < 0 ? rc : 0;
}

static void take_budget(const PGresult *res, int row, struct budget *b)
{
    *b = (struct budget){ .limit_nanousd = pg_int(res, row, 2),
                          .warn_percent = (int)pg_int(res, row, 3),
                          .cancel_running = pg_int(res, row, 4) != 0,
                          .long_running_ms = pg_int(res, row, 5),
                          .spent_nanousd = pg_int(res, row, 7) };
    pg_copy(res, row, 0, b->tenant, sizeof b->tenant);
    int period = budget_period_parse(PQgetvalue(res, row, 1));
    b->period =
        period < 0 ? BUDGET_TOTAL : (enum budget_period)period; /* a check keeps others out */
    for (int i = 0; i <= BUDGET_STOPPED; i++) {
        if (strcmp(PQgetvalue(res, row, 6), state_words[i]) == 0) {
            b->state = (enum budget_state)i;
        }
    }
}

int store_budgets(struct pg *pg, struct budget *ret_rows, int max, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &list, &p, &res, err);
    for (int i = 0; i < rc; i++) {
        take_budget(res, i, &ret_rows[i]);
    }
    return rc;
}

static int look(struct pg *pg, struct err *err)
{
    cleanup_pgresult PGresult *lock = NULL;
    int rc = pg_run(pg, &look_lock, NULL, false, &lock, err);
    if (rc < 0 || PQgetvalue(lock, 0, 0)[0] != 't') {
        return rc < 0 ? rc : 0;
    }
    int states = rc = pg_run(pg, &look_states, NULL, false, NULL, err);
    rc = rc < 0 ? rc : pg_run(pg, &look_long, NULL, false, NULL, err);
    return rc < 0 ? rc : states + rc;
}

int store_budgets_look(struct pg *pg, struct err *err)
{
    int rc = pg_ensure(pg, err), events = 0;
    rc = rc < 0 ? rc : pg_run(pg, &stmt_begin, NULL, false, NULL, err);
    rc = events = rc < 0 ? rc : look(pg, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
        return rc;
    }
    return events;
}

int store_budget_events(struct pg *pg, struct budget_event *ret_rows, int max, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &untold, &p, &res, err);
    for (int i = 0; i < rc; i++) {
        struct budget_event *e = &ret_rows[i];
        e->id = pg_int(res, i, 0);
        pg_copy(res, i, 1, e->kind, sizeof e->kind);
        pg_copy(res, i, 2, e->tenant, sizeof e->tenant);
        pg_copy(res, i, 3, e->job_id, sizeof e->job_id);
        e->attempt = (int)pg_int(res, i, 4);
        e->spent_nanousd = pg_int(res, i, 5);
        e->limit_nanousd = pg_int(res, i, 6);
        e->at_ms = pg_int(res, i, 7);
    }
    return rc;
}

int store_budget_told(struct pg *pg, int64_t up_to_id, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, up_to_id);
    int rc = pg_ask(pg, &told, &p, NULL, err);
    return rc < 0 ? rc : 0;
}
