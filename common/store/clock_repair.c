#include "common/store/clock_repair.h"

#include <assert.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

static const struct statement clock_ms = { "clock_ms", "SELECT " PG_MS("clock_timestamp()") };
/* $1 how long a retry may wait, $2 by how much the clock went back, $3 jobs in one submission. A
 * job that did not ask to wait has not_before <= submitted_at: both are taken at its submission.
 * What is owed for submissions is as long as before; when nobody saw by how much, it is cut to what
 * the largest one can owe.
 *
 * Of the jobs that wait only those are looked at that are not due (jobs_waiting, from now on, for
 * each tenant and priority that has any: found by skipping from one to the next in the same index),
 * of those in flight all. The time is that of the statement: of clock_timestamp(), which changes
 * while it runs, no index can be asked. */
static const struct statement went_back = {
    "clock_went_back",
    "WITH RECURSIVE lines AS ((SELECT tenant, priority FROM jobs WHERE state IN "
    "('queued','retrying')"
    "   ORDER BY tenant, priority LIMIT 1)"
    "  UNION ALL SELECT n.tenant, n.priority FROM lines l, LATERAL (SELECT tenant, priority FROM "
    "jobs"
    "   WHERE state IN ('queued','retrying') AND (tenant, priority) > (l.tenant, l.priority)"
    "   ORDER BY tenant, priority LIMIT 1) n),"
    " late AS MATERIALIZED (SELECT j.id FROM lines l, LATERAL (SELECT id FROM jobs"
    "   WHERE tenant = l.tenant AND priority = l.priority AND state IN ('queued','retrying')"
    "   AND not_before > statement_timestamp() AND ((state = 'queued' AND not_before <= "
    "submitted_at)"
    "    OR (state = 'retrying' AND not_before > statement_timestamp() + $1::int8 * interval '1 "
    "ms'))"
    "   OFFSET 0) j),"
    " w AS (UPDATE jobs SET not_before = clock_timestamp() + CASE state WHEN 'retrying' THEN "
    "   $1::int8 * interval '1 ms' ELSE interval '0' END"
    "  WHERE id = ANY (ARRAY(SELECT id FROM late)) AND state IN ('queued','retrying')"
    "   AND not_before > statement_timestamp() RETURNING 1),"
    " f AS (UPDATE jobs SET scheduled_at = least(scheduled_at, clock_timestamp()), cancel_at ="
    "   CASE WHEN cancel_at > clock_timestamp() THEN clock_timestamp() ELSE cancel_at END"
    "  WHERE state IN ('scheduled','running') AND (scheduled_at > statement_timestamp()"
    "   OR cancel_at > statement_timestamp()) RETURNING 1),"
    " s AS (UPDATE submit_rates s SET tat = least(tat - $2::int8 * interval '1 ms',"
    "   clock_timestamp() + greatest(1, $3::float8 / nullif((SELECT"
    "   coalesce(t.submit_per_minute_max, d.submit_per_minute_max) FROM tenants d LEFT JOIN"
    "   tenants t ON t.name = s.tenant WHERE d.name = '*'), 0)) * interval '1 minute')"
    "  WHERE tat > clock_timestamp())"
    " SELECT (SELECT count(*) FROM w) + (SELECT count(*) FROM f)"
};

int store_clock_ms(struct pg *pg, int64_t *ret_ms, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &clock_ms, NULL, &res, err);
    if (rc < 0) {
        return rc;
    }
    *ret_ms = pg_int(res, 0, 0);
    return 0;
}

int store_clock_went_back(struct pg *pg, int64_t by_ms, int64_t retry_max_ms, struct err *err)
{
    assert(by_ms >= 0);
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, retry_max_ms);
    pg_add_int(&p, by_ms);
    pg_add_int(&p, SUBMIT_MAX);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &went_back, &p, &res, err);
    return rc < 0 ? rc : (int)pg_int(res, 0, 0);
}
