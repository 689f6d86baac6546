/* See cancel.h. Guarded like every end of a job, so that a verdict that is already there stays. A
 * job in flight is only marked: its attempt goes on being the one that may commit, so that what it
 * has cost is billed; and whoever finds it waiting again (its worker was lost) ends it. */
#include "common/store/cancel.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

#define WAITING "('queued','retrying')"
#define IN_FLIGHT "('scheduled','running')"
#define UNFINISHED "('queued','scheduled','running','retrying')"
/* Behind a CTE `e` of jobs that ended now; $1 verdict, $2 detail. Attempt 0: such an end is of no
 * attempt, and the last one may be a try with a verdict, branches and usage of its own. */
#define END_RESULTS                                                                                \
    " r AS (INSERT INTO results (job_id, attempt, verdict, detail, stdout_head, stdout_tail, "     \
    "stderr_head, stderr_tail) SELECT id, 0, $1, $2::text, '', '', '', '' FROM e)"
#define END_SET(state) "SET state = " state ", verdict = $1, finished_at = clock_timestamp()"

/* $3 max, $4 batch, $5 job, $6 viewer */
static const struct statement cancel = {
    "cancel",
    "WITH pick AS (SELECT id, state IN " WAITING " AS waits FROM jobs"
    "   WHERE (batch_id = $4::uuid OR id = $5::uuid) AND state IN " UNFINISHED "   AND " PG_VIEWER(
        "tenant",
        "$6") "   AND (cancel_at IS NULL OR state IN " WAITING
              ") ORDER BY id LIMIT $3::int FOR UPDATE),"
              " e AS (UPDATE jobs j " END_SET(
                  "'cancelled'") " FROM pick WHERE j.id = pick.id AND pick.waits"
                                 "   RETURNING j.id, j.tenant, j.priority),"
                                 " m AS (UPDATE jobs j SET cancel_at = clock_timestamp() FROM pick"
                                 "   WHERE j.id = pick.id AND NOT pick.waits)," END_RESULTS
                                     QUEUE_COUNT("e", "-") " SELECT id::text, waits FROM pick"
};
static const struct statement cancelling = { "cancelling",
                                             "SELECT id::text FROM jobs WHERE state IN " UNFINISHED
                                             " AND state IN " IN_FLIGHT
                                             " AND cancel_at < now() - $1::int8 * interval '1 ms'"
                                             " ORDER BY cancel_at LIMIT $2::int" };
static const struct statement cancel_spent = {
    "cancel_spent",
    "WITH pick AS (SELECT j.id FROM budgets_spent b JOIN jobs j ON j.tenant = b.tenant"
    "   WHERE b.cancel_running AND j.state IN " IN_FLIGHT
    "   AND j.cancel_at IS NULL ORDER BY j.id LIMIT $1::int FOR UPDATE OF j SKIP LOCKED)"
    " UPDATE jobs j SET cancel_at = clock_timestamp() FROM pick WHERE j.id = pick.id"
    "   RETURNING j.id::text"
};
/* $3 ids */
static const struct statement cancel_these = {
    "cancel_these",
    "WITH pick AS (SELECT id, state IN " WAITING " AS waits FROM jobs"
    "   WHERE id = ANY ($3::uuid[]) AND state IN " UNFINISHED
    "   AND cancel_at IS NOT NULL ORDER BY id FOR UPDATE),"
    " e AS (UPDATE jobs j " END_SET(
        "'cancelled'") "   FROM pick WHERE j.id = pick.id RETURNING j.id, j.tenant, "
                       "j.priority, pick.waits),"
                       " w AS (SELECT tenant, priority FROM e WHERE waits)," END_RESULTS
                           QUEUE_COUNT("w", "-") " SELECT id::text FROM e"
};
/* $3 max; by: the column of the index that finds them, and no other behind it (whole batches have
 * one deadline, and all of them would be sorted). What a clock is compared with must be now():
 * clock_timestamp() is volatile, so that every row would be looked at. */
#define END_WAITING(name, state, by, which)                                                        \
    {                                                                                              \
        name, "WITH pick AS (SELECT id FROM jobs WHERE state IN " which "   ORDER BY " by          \
              " LIMIT $3::int FOR UPDATE SKIP LOCKED),"                                            \
              " e AS (UPDATE jobs j " END_SET(                                                     \
                  state) "   FROM pick WHERE j.id = pick.id"                                       \
                         "   RETURNING j.id, j.tenant, j.priority)," END_RESULTS QUEUE_COUNT(      \
                             "e", "-") " SELECT id::text FROM e"                                   \
    }
static const struct statement cancel_waiting =
    END_WAITING("cancel_waiting", "'cancelled'", "cancel_at",
                UNFINISHED " AND cancel_at IS NOT NULL AND state IN " WAITING);
static const struct statement expire =
    END_WAITING("expire", "'expired'", "deadline", "('queued') AND deadline <= now()");
static const struct statement open_batches = {
    "open_batches",
    "SELECT b.id::text FROM batches b WHERE b.tenant = $1 AND b.name = $2"
    " AND EXISTS (SELECT FROM jobs j WHERE j.batch_id = b.id AND j.state IN " UNFINISHED
    ") ORDER BY b.id LIMIT $3::int"
};

#define CANCELLED_TEXT "taken back before it had ended"
#define EXPIRED_TEXT "its deadline passed before it was started"

static int take_ids(const PGresult *res, struct id *ret_ids, int max)
{
    int n = PQntuples(res);
    assert(n <= max);
    for (int i = 0; i < n; i++) {
        pg_copy(res, i, 0, ret_ids[i].text, sizeof ret_ids[i].text);
    }
    return n;
}

/* $1 and $2; *ret_detail is to be freed after the statement was run. */
static void add_end(struct pg_params *p, enum verdict v, const char *reason, char **ret_detail)
{
    struct job_result r;
    job_result_init(&r);
    r.verdict = v;
    (void)snprintf(r.reason, sizeof r.reason, "%s", reason);
    *ret_detail = job_result_detail(&r);
    job_result_done(&r);
    pg_add_text(p, verdict_word(v));
    pg_add_text(p, *ret_detail);
}

int store_cancel(struct pg *pg, const char *batch_id, const char *job_id, int max,
                 struct cancelled *ret_rows, struct err *err)
{
    assert(max > 0 && !batch_id != !job_id);
    cleanup_free char *detail = NULL;
    struct pg_params p = { .n = 0 };
    add_end(&p, VERDICT_CANCELLED, CANCELLED_TEXT, &detail);
    pg_add_int(&p, max);
    pg_add_text(&p, batch_id);
    pg_add_text(&p, job_id);
    pg_add_text(&p, pg->viewer);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &cancel, &p, &res, err);
    assert(rc <= max);
    for (int i = 0; i < rc; i++) {
        pg_copy(res, i, 0, ret_rows[i].id.text, sizeof ret_rows[i].id.text);
        ret_rows[i].ended = strcmp(PQgetvalue(res, i, 1), "t") == 0;
    }
    return rc;
}

int store_cancelling(struct pg *pg, int64_t age_ms, int max, struct id *ret_ids, struct err *err)
{
    assert(max > 0);
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, age_ms);
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &cancelling, &p, &res, err);
    return rc < 0 ? rc : take_ids(res, ret_ids, max);
}

int store_cancel_spent(struct pg *pg, int max, struct id *ret_ids, struct err *err)
{
    assert(max > 0);
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &cancel_spent, &p, &res, err);
    return rc < 0 ? rc : take_ids(res, ret_ids, max);
}

static int end_some(struct pg *pg, const struct statement *st, enum verdict v, const char *reason,
                    const char *ids, int max, struct id *ret_ids, struct err *err)
{
    cleanup_free char *detail = NULL;
    struct pg_params p = { .n = 0 };
    add_end(&p, v, reason, &detail);
    if (ids) {
        pg_add_text(&p, ids);
    } else {
        pg_add_int(&p, max);
    }
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, st, &p, &res, err);
    return rc < 0 ? rc : take_ids(res, ret_ids, max);
}

int store_cancel_marked(struct pg *pg, const struct id *ids, int n, int max, struct id *ret_ids,
                        struct err *err)
{
    if (!ids) {
        return end_some(pg, &cancel_waiting, VERDICT_CANCELLED, CANCELLED_TEXT, NULL, max, ret_ids,
                        err);
    }
    assert(n > 0 && n <= QUEUE_DROP_MAX);
    cleanup_buf struct buf text = { 0 };
    buf_init(&text, (size_t)QUEUE_DROP_MAX * (ID_TEXT_BYTES + 1));
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = buf_add_str(&text, i == 0 ? "{" : ",", err);
        rc = rc < 0 ? rc : buf_add_str(&text, ids[i].text, err);
    }
    rc = rc < 0 ? rc : buf_add_str(&text, "}", err);
    return rc < 0 ? rc
                  : end_some(pg, &cancel_these, VERDICT_CANCELLED, CANCELLED_TEXT, text.data, n,
                             ret_ids, err);
}

int store_expire(struct pg *pg, int max, struct id *ret_ids, struct err *err)
{
    return end_some(pg, &expire, VERDICT_SKIPPED, EXPIRED_TEXT, NULL, max, ret_ids, err);
}

int cancel_tell(struct pg *pg, struct queue *q, const struct id *ids, int n, struct err *err)
{
    assert(n > 0 && n <= QUEUE_DROP_MAX);
    static struct id dropped[QUEUE_DROP_MAX], ended[QUEUE_DROP_MAX];
    struct finished_event events[QUEUE_DROP_MAX];
    int n_dropped = queue_cancel(q, ids, n, dropped, err);
    if (n_dropped <= 0) {
        return n_dropped;
    }
    int n_ended = store_cancel_marked(pg, dropped, n_dropped, n_dropped, ended, err);
    for (int i = 0; i < n_ended; i++) {
        events[i] = (struct finished_event){ ended[i].text, verdict_word(VERDICT_CANCELLED) };
    }
    int rc = n_ended > 0 ? queue_events_finished(q, events, n_ended, err) : 0;
    return rc < 0 ? rc : n_ended;
}

int store_open_batches(struct pg *pg, const char *tenant, const char *name, int max,
                       struct id *ret_ids, struct err *err)
{
    assert(max > 0);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, name);
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &open_batches, &p, &res, err);
    return rc < 0 ? rc : take_ids(res, ret_ids, max);
}
