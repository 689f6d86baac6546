#include "common/store/admission.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "common/store/tenants.h"

#define ACTIVITY_FRESH "interval '2 minutes'"

static const struct statement admit_state = {
    "admit_state",
    "SELECT coalesce(t.queued_max, d.queued_max), "
    "coalesce(t.submit_per_minute_max, d.submit_per_minute_max),"
    " (SELECT coalesce(sum(n), 0)::int8 FROM queue_counts WHERE tenant = $1),"
    " coalesce((SELECT jobs_per_minute FROM tenant_activity WHERE tenant = $1"
    "   AND updated_at > clock_timestamp() - " ACTIVITY_FRESH "), 0),"
    " s.stopped, coalesce((extract(epoch from s.stopped_until - clock_timestamp()) * 1000)::int8, "
    "0)"
    " FROM tenants d LEFT JOIN tenants t ON t.name = $1"
    " LEFT JOIN LATERAL (SELECT stopped, stopped_until FROM tenant_stops x WHERE x.name IN ($1, "
    "'*') ORDER BY x.name = '*' LIMIT 1) s ON true WHERE d.name = '*'"
};
static const struct statement rate_lock = {
    "rate_lock", "INSERT INTO submit_rates (tenant, tat) VALUES ($1, clock_timestamp())"
                 " ON CONFLICT (tenant) DO UPDATE SET tat = submit_rates.tat"
                 " RETURNING (extract(epoch from tat - clock_timestamp()) * 1000000)::int8"
};
static const struct statement rate_take = {
    "rate_take",
    "UPDATE submit_rates SET tat = clock_timestamp() + $2::int8 * interval '1 us' WHERE tenant = $1"
};

static void refuse(const char *tenant, const struct admit *a, struct admission *adm)
{
    long wait_s = (long)((a->wait_ms + 999) / 1000);
    adm->fits = (int)a->n;
    if (a->cap == ADMIT_RATE) {
        (void)err_set(&adm->why, ERR_LIMIT,
                      "tenant %s: more than %" PRId64
                      " jobs submitted in a minute; come back in %ld s",
                      tenant, adm->terms.per_minute_max, wait_s);
    } else {
        (void)err_set(&adm->why, ERR_LIMIT,
                      "tenant %s: %" PRId64 " of at most %" PRId64 " jobs wait; come back in %ld s",
                      tenant, adm->state.waiting, adm->terms.queued_max, wait_s);
    }
    adm->why.retry_after_ms = (long)a->wait_ms;
}

int admission_look(struct pg *pg, const char *tenant, int n, struct admission *ret_a,
                   struct err *err)
{
    assert(n > 0);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    cleanup_pgresult PGresult *res = NULL, *locked = NULL;
    int rc = pg_run(pg, &admit_state, &p, false, &res, err);
    if (rc <= 0) {
        return rc < 0 ? rc : err_set(err, ERR_DB, "Postgres: the tenant '*' has no row");
    }
    struct admission adm = { .fits = n };
    if (!PQgetisnull(res, 0, 4)) {
        char why[TENANT_STOPPED_MAX];
        pg_copy(res, 0, 4, why, sizeof why);
        (void)err_set(&adm.why, ERR_LIMIT, "tenant %s: no new work is taken: %s", tenant, why);
        adm.why.retry_after_ms = (long)pg_int(res, 0, 5);
        adm.fits = 0;
        *ret_a = adm;
        return 0;
    }
    adm.terms = (struct admit_terms){ .queued_max = pg_int(res, 0, 0),
                                      .per_minute_max = pg_int(res, 0, 1) };
    adm.state =
        (struct admit_state){ .waiting = pg_int(res, 0, 2), .done_per_minute = pg_int(res, 0, 3) };
    adm.state.waiting = adm.state.waiting > 0 ? adm.state.waiting : 0;
    if (adm.terms.per_minute_max > 0) {
        if ((rc = pg_run(pg, &rate_lock, &p, false, &locked, err)) < 0) {
            return rc;
        }
        adm.state.ahead_us = pg_int(locked, 0, 0);
    }
    struct admit a = admit(&adm.terms, &adm.state, n);
    if (a.cap != ADMIT_ALL) {
        refuse(tenant, &a, &adm);
    }
    *ret_a = adm;
    return 0;
}

int admission_take(struct pg *pg, const char *tenant, const struct admission *a, int n,
                   struct err *err)
{
    assert(n > 0);
    if (a->terms.per_minute_max == 0) {
        return 0;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_int(&p, admit_ahead_us(&a->terms, &a->state, n));
    int rc = pg_run(pg, &rate_take, &p, false, NULL, err);
    return rc < 0 ? rc : 0;
}
