#include "common/store/events.h"

#include <assert.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/pg_internal.h"

#define POLL_MS 2

static const struct statement last_position = {
    "event_last", "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM event_position"
};
/* An id of our own: whoever took a number until now has a lower one (the column's default takes the
 * transaction's id first). The xmax of a snapshot would not do: it is one above the newest that has
 * ended, so an open one above that is not below it. A statement of its own, after the other. */
static const struct statement horizon = { "event_horizon", "SELECT pg_current_xact_id()::text" };
/* xmin: every transaction below it has ended. */
static const struct statement passed = {
    "event_passed", "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8"
};
static const struct statement read_events = {
    "read_events",
    "SELECT r.event, r.job_id::text, coalesce(j.batch_id::text, ''), j.tenant, j.state, r.verdict,"
    " " PG_MS("j.finished_at") " FROM results r JOIN jobs j ON j.id = r.job_id"
                               " WHERE r.event > $1::int8 AND r.event <= $2::int8"
                               " AND ($3::text IS NULL OR j.tenant = $3)"
                               " ORDER BY r.event LIMIT $4::int"
};

static int wait_for_older(struct pg *pg, const char *own, int64_t wait_ms, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, own);
    for (int64_t until = mono_ms() + wait_ms;; sleep_ms(POLL_MS)) {
        cleanup_pgresult PGresult *res = NULL;
        int rc = pg_run(pg, &passed, &p, false, &res, err);
        if (rc < 0 || *PQgetvalue(res, 0, 0) == 't') {
            return rc < 0 ? rc : 0;
        }
        if (mono_ms() >= until) {
            return err_set(err, ERR_TIMEOUT, "events: an older transaction has not ended yet");
        }
    }
}

int store_events(struct pg *pg, const char *tenant, int64_t after, int max, int64_t wait_ms,
                 struct event_row *ret_rows, int64_t *ret_next, struct err *err)
{
    assert(max > 0 && max <= STORE_EVENTS_MAX && after >= 0);
    cleanup_pgresult PGresult *newest = NULL, *mark = NULL, *res = NULL;
    int rc = pg_ask(pg, &last_position, NULL, &newest, err);
    if (rc < 0) {
        return rc;
    }
    int64_t last = pg_int(newest, 0, 0);
    if (last <= after) {
        *ret_next = after;
        return 0;
    }
    rc = pg_run(pg, &horizon, NULL, false, &mark, err);
    if (rc < 0 || (rc = wait_for_older(pg, PQgetvalue(mark, 0, 0), wait_ms, err)) < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, after);
    pg_add_int(&p, last);
    pg_add_text(&p, tenant);
    pg_add_int(&p, max);
    if ((rc = pg_run(pg, &read_events, &p, false, &res, err)) < 0) {
        return rc;
    }
    int n = PQntuples(res);
    for (int i = 0; i < n; i++) {
        struct event_row *r = &ret_rows[i];
        r->position = pg_int(res, i, 0);
        pg_copy(res, i, 1, r->job_id, sizeof r->job_id);
        pg_copy(res, i, 2, r->batch_id, sizeof r->batch_id);
        pg_copy(res, i, 3, r->tenant, sizeof r->tenant);
        pg_copy(res, i, 4, r->state, sizeof r->state);
        pg_copy(res, i, 5, r->verdict, sizeof r->verdict);
        r->finished_ms = pg_int(res, i, 6);
    }
    *ret_next = n == max ? ret_rows[n - 1].position : last;
    return n;
}
