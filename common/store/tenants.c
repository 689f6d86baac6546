#include "common/store/tenants.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/pg_internal.h"

#define FOLD_SLACK                                                                                 \
    256 /* lines of the count beyond one a tenant and priority before they are folded */

#define TENANT_COLUMNS                                                                             \
    "n.name, coalesce(t.weight, d.weight), coalesce(t.in_flight_max, d.in_flight_max),"            \
    " coalesce(t.queued_max, d.queued_max), coalesce(t.submit_per_minute_max, "                    \
    "d.submit_per_minute_max), s.stopped,"                                                         \
    " (extract(epoch from s.stopped_until - clock_timestamp()) * 1000)::int8"
#define TENANT_JOINS                                                                               \
    " JOIN tenants d ON d.name = '*' LEFT JOIN tenants t ON t.name = n.name"                       \
    " LEFT JOIN LATERAL (SELECT stopped, stopped_until FROM tenant_stops x WHERE x.name IN "       \
    "(n.name, '*') ORDER BY x.name = '*' LIMIT 1) s ON true"

static const struct statement tenant_get = { "tenant_get",
                                             "SELECT " TENANT_COLUMNS
                                             " FROM (SELECT $1::text AS name) n" TENANT_JOINS };
static const struct statement tenant_list = {
    "tenant_list",
    "SELECT " TENANT_COLUMNS " FROM (SELECT name FROM tenants UNION SELECT name FROM tenant_stops"
    "   UNION SELECT tenant FROM queue_counts"
    "   WHERE NOT $3::bool UNION SELECT tenant FROM jobs"
    "   WHERE NOT $3::bool AND state IN ('scheduled','running')) n" TENANT_JOINS
    " WHERE n.name COLLATE \"C\" > $1 ORDER BY n.name COLLATE \"C\""
    " LIMIT $2::int"
};
static const struct statement tenant_set = {
    "tenant_set",
    "INSERT INTO tenants (name, weight, in_flight_max, queued_max, submit_per_minute_max)"
    " VALUES ($1, nullif($2::int, -1), nullif($3::int, -1), nullif($4::int8, -1), "
    "nullif($5::int8, -1))"
    " ON CONFLICT (name) DO UPDATE SET weight = coalesce(excluded.weight, tenants.weight),"
    " in_flight_max = coalesce(excluded.in_flight_max, tenants.in_flight_max),"
    " queued_max = coalesce(excluded.queued_max, tenants.queued_max),"
    " submit_per_minute_max = coalesce(excluded.submit_per_minute_max, "
    "tenants.submit_per_minute_max), updated_at = clock_timestamp()"
};
static const struct statement tenant_stop = {
    "tenant_stop", "INSERT INTO tenants (name, stopped, stopped_until)"
                   " VALUES ($1, $2, to_timestamp(nullif($3::int8, -1) / 1000.0))"
                   " ON CONFLICT (name) DO UPDATE SET stopped = excluded.stopped,"
                   " stopped_until = excluded.stopped_until, updated_at = clock_timestamp()"
};
/* TENANT_ANY has values of its own that an insertion would lack: it is only updated. */
static const struct statement any_set = {
    "any_set", "UPDATE tenants SET weight = coalesce(nullif($2::int, -1), weight),"
               " in_flight_max = coalesce(nullif($3::int, -1), in_flight_max),"
               " queued_max = coalesce(nullif($4::int8, -1), queued_max),"
               " submit_per_minute_max = coalesce(nullif($5::int8, -1), submit_per_minute_max),"
               " updated_at = clock_timestamp() WHERE name = $1"
};
static const struct statement any_stop = {
    "any_stop",
    "UPDATE tenants SET stopped = $2, stopped_until = to_timestamp(nullif($3::int8, -1) "
    "/ 1000.0), updated_at = clock_timestamp() WHERE name = $1"
};
static const struct statement waiting = {
    "waiting", "SELECT tenant, priority, sum(n)::int8, count(*) FROM queue_counts GROUP BY 1, 2"
};
/* Who comes second waits for the rows that the first has deleted, and then does not see them. */
static const struct statement fold = {
    "fold", "WITH d AS (DELETE FROM queue_counts RETURNING tenant, priority, n)"
            " INSERT INTO queue_counts (tenant, priority, n)"
            " SELECT tenant, priority, sum(n) FROM d GROUP BY 1, 2 HAVING sum(n) <> 0"
};
/* The clock may have gone back since a job was scheduled. */
static const struct statement in_flight = {
    "in_flight",
    "SELECT tenant, priority, count(*), coalesce(sum(greatest(extract(epoch from clock_timestamp()"
    " - scheduled_at), 0) * 1000000) FILTER (WHERE state = 'running'), 0)::int8"
    " FROM jobs WHERE state IN ('scheduled','running') GROUP BY 1, 2"
};
/* One snapshot: whoever moves a job writes its line in the same transaction. */
static const struct statement recount = {
    "recount",
    "WITH have AS (SELECT tenant, priority, sum(n) AS n FROM queue_counts GROUP BY 1, 2),"
    " want AS (SELECT tenant, priority, count(*) AS n FROM jobs"
    "   WHERE state IN ('queued','retrying') GROUP BY 1, 2)"
    " INSERT INTO queue_counts (tenant, priority, n)"
    " SELECT tenant, priority, coalesce(want.n, 0) - coalesce(have.n, 0)"
    " FROM want FULL JOIN have USING (tenant, priority)"
    " WHERE coalesce(want.n, 0) <> coalesce(have.n, 0)"
};
static const struct statement activity_put = {
    "activity_put",
    "INSERT INTO tenant_activity (tenant, in_flight, jobs_per_minute, slot_ms, share_milli)"
    " VALUES ($1, $2::int8, $3::int8, $4::int8, $5::int4)"
    " ON CONFLICT (tenant) DO UPDATE SET in_flight = excluded.in_flight,"
    " jobs_per_minute = excluded.jobs_per_minute, slot_ms = excluded.slot_ms,"
    " share_milli = excluded.share_milli, updated_at = clock_timestamp()"
};
static const struct statement activity_tidy = {
    "activity_tidy",
    "DELETE FROM tenant_activity WHERE updated_at < clock_timestamp() - interval '2 minutes'"
};
static const struct statement activity = {
    "activity",
    "WITH q AS (SELECT tenant, sum(n) FILTER (WHERE priority = 0) AS high,"
    "   sum(n) FILTER (WHERE priority = 1) AS normal, sum(n) FILTER (WHERE priority = 2) AS bulk"
    "   FROM queue_counts GROUP BY tenant HAVING sum(n) > 0),"
    " f AS (SELECT tenant, count(*) AS n FROM jobs WHERE state IN ('scheduled','running')"
    "   GROUP BY tenant),"
    " n AS (SELECT tenant FROM q UNION SELECT tenant FROM f UNION SELECT tenant FROM "
    "tenant_activity WHERE updated_at > clock_timestamp() - interval '1 minute')"
    " SELECT n.tenant, coalesce(t.weight, d.weight), coalesce(q.high, 0)::int8, coalesce(q.normal, "
    "0)::int8, coalesce(q.bulk, 0)::int8, coalesce(f.n, 0), coalesce(a.jobs_per_minute, 0),"
    " coalesce(a.slot_ms, 0), coalesce(a.share_milli, 0), coalesce((extract(epoch from "
    "clock_timestamp() - a.updated_at) * 1000)::int8, -1), EXISTS (SELECT FROM "
    "tenant_stops x WHERE x.name IN (n.tenant, '*'))"
    " FROM n JOIN tenants d ON d.name = '*' LEFT JOIN tenants t ON t.name = n.tenant"
    " LEFT JOIN q ON q.tenant = n.tenant LEFT JOIN f ON f.tenant = n.tenant"
    " LEFT JOIN tenant_activity a ON a.tenant = n.tenant"
    " ORDER BY coalesce(q.high, 0) + coalesce(q.normal, 0) + coalesce(q.bulk, 0) DESC, n.tenant"
    " LIMIT $1::int"
};

static void read_tenant(const PGresult *res, int i, struct tenant_row *r)
{
    pg_copy(res, i, 0, r->name, sizeof r->name);
    r->weight = pg_int(res, i, 1);
    r->in_flight_max = pg_int(res, i, 2);
    r->queued_max = pg_int(res, i, 3);
    r->submit_per_minute_max = pg_int(res, i, 4);
    pg_copy(res, i, 5, r->stopped, sizeof r->stopped);
    r->stopped_ms = PQgetisnull(res, i, 6) ? -1 : pg_int(res, i, 6);
}

int store_tenant_get(struct pg *pg, const char *name, struct tenant_row *ret_row, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, name);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &tenant_get, &p, &res, err);
    if (rc <= 0) {
        return rc < 0 ? rc : err_set(err, ERR_DB, "Postgres: the tenant '*' has no row");
    }
    read_tenant(res, 0, ret_row);
    return 0;
}

static bool is_any(const char *name)
{
    return strcmp(name, TENANT_ANY) == 0;
}

int store_tenant_set(struct pg *pg, const struct tenant_row *row, struct err *err)
{
    assert(is_any(row->name) || job_tenant_ok(row->name));
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, row->name);
    pg_add_int(&p, row->weight);
    pg_add_int(&p, row->in_flight_max);
    pg_add_int(&p, row->queued_max);
    pg_add_int(&p, row->submit_per_minute_max);
    int rc = pg_ask(pg, is_any(row->name) ? &any_set : &tenant_set, &p, NULL, err);
    return rc < 0 ? rc : 0;
}

int store_tenant_stop(struct pg *pg, const char *name, const char *reason, int64_t until_ms,
                      struct err *err)
{
    assert(is_any(name) || job_tenant_ok(name));
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, name);
    pg_add_text(&p, reason);
    pg_add_int(&p, reason ? until_ms : -1);
    int rc = pg_ask(pg, is_any(name) ? &any_stop : &tenant_stop, &p, NULL, err);
    return rc < 0 ? rc : 0;
}

int store_tenant_list(struct pg *pg, bool own_only, const char *after, int max,
                      struct tenant_row *ret_rows, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, after);
    pg_add_int(&p, max);
    pg_add_text(&p, own_only ? "t" : "f");
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &tenant_list, &p, &res, err);
    for (int i = 0; i < rc; i++) {
        read_tenant(res, i, &ret_rows[i]);
    }
    return rc;
}

/* ---- what waits and runs ---- */

static int each_count(const PGresult *res, int n, bool run_us, tenant_count_fn fn, void *ctx,
                      struct err *err)
{
    int called = 0;
    for (int i = 0; i < n; i++) {
        int64_t priority = pg_int(res, i, 1), count = pg_int(res, i, 2);
        if (count <= 0 || priority < 0 || priority >= PRIORITY_COUNT) {
            continue;
        }
        int rc = fn(ctx, PQgetvalue(res, i, 0), (enum job_priority)priority, count,
                    run_us ? pg_int(res, i, 3) : 0);
        if (rc < 0) {
            return rc;
        }
        called++;
    }
    (void)err;
    return called;
}

int store_waiting(struct pg *pg, tenant_count_fn fn, void *ctx, struct err *err)
{
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &waiting, NULL, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    int64_t lines = 0;
    for (int i = 0; i < rc; i++) {
        lines += pg_int(res, i, 3);
    }
    if (lines > 2 * (int64_t)rc + FOLD_SLACK) {
        int folded = pg_run(pg, &fold, NULL, false, NULL, err);
        if (folded < 0) {
            return folded;
        }
    }
    return each_count(res, rc, false, fn, ctx, err);
}

int store_in_flight(struct pg *pg, tenant_count_fn fn, void *ctx, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &in_flight, NULL, &res, err);
    return rc < 0 ? rc : each_count(res, rc, true, fn, ctx, err);
}

int store_recount(struct pg *pg, struct err *err)
{
    return pg_ask(pg, &recount, NULL, NULL, err);
}

int store_activity_put(struct pg *pg, const struct activity_row *rows, int n, struct err *err)
{
    assert(n >= 0 && n <= ACTIVITY_MAX);
    static const struct statement *const all[] = { &stmt_begin, &stmt_async_commit, &activity_put,
                                                   &activity_tidy, &stmt_commit };
    int rc = pg_ensure(pg, err);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && rc >= 0; i++) {
        rc = pg_prepare(pg, all[i], err);
    }
    rc = rc < 0 ? rc : pg_pipeline_begin(pg, err);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_begin, NULL, false, err);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_async_commit, NULL, false, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        struct pg_params p = { .n = 0 };
        pg_add_text(&p, rows[i].tenant);
        pg_add_int(&p, rows[i].in_flight);
        pg_add_int(&p, rows[i].jobs_per_minute);
        pg_add_int(&p, rows[i].slot_ms);
        pg_add_int(&p, rows[i].share_milli);
        rc = pg_pipeline_send(pg, &activity_put, &p, false, err);
    }
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &activity_tidy, NULL, false, err);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_commit, NULL, false, err);
    rc = rc < 0 ? rc : pg_pipeline_finish(pg, n + 4, NULL, NULL, "tenants' activity", err);
    if (rc < 0) {
        pg_rollback(pg);
    }
    return rc < 0 ? rc : 0;
}

int store_activity(struct pg *pg, int max, struct activity_row *ret_rows, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &activity, &p, &res, err);
    for (int i = 0; i < rc; i++) {
        struct activity_row *r = &ret_rows[i];
        pg_copy(res, i, 0, r->tenant, sizeof r->tenant);
        r->weight = pg_int(res, i, 1);
        for (int k = 0; k < PRIORITY_COUNT; k++) {
            r->waiting[k] = pg_int(res, i, 2 + k);
        }
        r->in_flight = pg_int(res, i, 5);
        r->jobs_per_minute = pg_int(res, i, 6);
        r->slot_ms = pg_int(res, i, 7);
        r->share_milli = (int)pg_int(res, i, 8);
        r->age_ms = pg_int(res, i, 9);
        r->stopped = strcmp(PQgetvalue(res, i, 10), "t") == 0;
    }
    return rc;
}
