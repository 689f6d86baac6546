/* Dispatch: which waiting jobs become ready, and finding again those whose place in Redis was lost.
 *
 * A dispatch need not be durable: when the server crashes before it reached the disk, the job is
 * waiting again and is dispatched again with the same attempt number; the entry that Redis still
 * has is then one of two for that attempt, and the guarded commit lets the first one win. Hence
 * synchronous_commit off. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

/* $1 tenants, $2 priorities, $3 counts, $4 where to begin: arrays of one length; $5 bytes of a spec
 * that are carried along. One index probe a
 * share, and no row is looked at that is not taken. What lies before the beginning is looked at
 * when the rest is too little: the index keeps the entries of what was taken until a vacuum comes
 * by, and at the head of a long queue a probe would step over all of them (a scan that stops before
 * the second branch never starts it). */
#define DUE(bound)                                                                                 \
    "(SELECT id FROM jobs WHERE tenant = w.tenant AND priority = w.priority AND state IN "         \
    "('queued','retrying') AND not_before <= now() AND not_before " bound                          \
    " to_timestamp(w.from_us / 1e6::float8) AND (deadline IS NULL OR deadline > now() OR state = " \
    "'retrying')"                                                                                  \
    " AND cancel_at IS NULL ORDER BY not_before, id LIMIT w.n FOR UPDATE SKIP LOCKED)"
/* Its rows come in binary: an id or a time as text costs the server about 1 us each, a job has four
 * of them. */
enum dispatched {
    D_ID,
    D_TENANT,
    D_TEMPLATE,
    D_ATTEMPT,
    D_SUBMITTED,
    D_SPEC,
    D_SHARE,
    D_BATCH,
    D_NOT_BEFORE
};
static const struct statement dispatch = {
    "dispatch",
    "WITH want AS (SELECT * FROM unnest($1::text[], $2::int2[], $3::int4[], $4::int8[]) WITH "
    "ORDINALITY AS w (tenant, priority, n, from_us, share)),"
    " pick AS (SELECT j.id, w.share FROM want w CROSS JOIN LATERAL (SELECT id FROM (SELECT id "
    "FROM " DUE(">=") " late UNION ALL SELECT id FROM " DUE(
        "<") " early) j LIMIT w.n) j),"
             " moved AS (UPDATE jobs j SET state = 'scheduled', attempt = j.attempt + 1, "
             "scheduled_at = "
             "  clock_timestamp() FROM pick WHERE j.id = pick.id RETURNING j.id, j.tenant, "
             "j.template,"
             "  j.attempt, j.submitted_at, CASE WHEN octet_length(j.spec) <= $5::int THEN j.spec "
             "ELSE '' END"
             "  spec, j.not_before, j.priority, j.batch_id, pick.share)" QUEUE_COUNT(
                 "moved", "-") " SELECT id, tenant, template, attempt::int8, submitted_at, spec, "
                               "share - 1, batch_id,"
                               "  not_before FROM moved ORDER BY share, not_before, moved.id"
};
static const struct statement next_due = {
    "next_due",
    "SELECT coalesce((SELECT greatest(0, ceil(extract(epoch from not_before - clock_timestamp()) * "
    "1000))::int8"
    "  FROM jobs WHERE state IN ('queued','retrying') AND not_before > submitted_at"
    "  AND not_before > now() ORDER BY not_before LIMIT 1), -1)"
};
static const struct statement requeue_lost = {
    "requeue_lost", "WITH lost AS (UPDATE jobs SET state = 'retrying', not_before = now(), "
                    "last_error = 'its entry in Redis was lost'"
                    "  WHERE state IN ('scheduled','running') AND scheduled_at < now() "
                    "- $1::int8 * interval '1 ms'"
                    "  AND NOT (id = ANY ($2::uuid[])) RETURNING id, attempt, tenant, priority),"
                    " a AS (INSERT INTO attempts (job_id, attempt, worker, outcome, error)"
                    "  SELECT id, attempt, '', 'lost', 'its entry in Redis was lost' FROM lost ON "
                    "CONFLICT DO NOTHING)" QUEUE_COUNT("lost", "") " SELECT count(*) FROM lost"
};
static const struct statement mark_running = {
    "mark_running", "UPDATE jobs SET state = 'running' WHERE id = $1::uuid AND attempt = $2::int "
                    "AND state = 'scheduled'"
};

static const struct statement one_spec = { "one_spec",
                                           "SELECT spec FROM jobs WHERE id = $1::uuid" };

int store_spec(struct pg *pg, const char *job_id, char **ret_spec, size_t *ret_len, struct err *err)
{
    struct pg_params p = { .n = 0 };
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ensure(pg, err);
    pg_add_text(&p, job_id);
    rc = rc < 0 ? rc : pg_run(pg, &one_spec, &p, false, &res, err);
    if (rc == 0) {
        rc = err_set(err, ERR_NOT_FOUND, "there is no job %s", job_id);
    }
    if (rc < 0) {
        return rc;
    }
    *ret_spec = pg_dup(res, 0, 0, ret_len);
    return 0;
}

void dispatch_rows_done(struct dispatch_row *rows, int n)
{
    for (int i = 0; i < n; i++) {
        free(rows[i].spec);
        rows[i].spec = NULL;
    }
}

struct dispatch_ctx {
    struct dispatch_row *rows;
    int max, n;
};

#define DISPATCH_INDEX 2 /* of the statement in its pipeline */

static int on_dispatched(void *ctx, int index, const PGresult *res, struct err *err)
{
    (void)err;
    struct dispatch_ctx *d = ctx;
    if (index != DISPATCH_INDEX) {
        return 0;
    }
    int n = PQntuples(res);
    assert(n <= d->max);
    for (int i = 0; i < n; i++) {
        struct dispatch_row *r = &d->rows[i];
        pg_copy_uuid(res, i, D_ID, r->job_id);
        pg_copy(res, i, D_TENANT, r->tenant, sizeof r->tenant);
        pg_copy(res, i, D_TEMPLATE, r->template_name, sizeof r->template_name);
        r->attempt = (int)pg_bin_int(res, i, D_ATTEMPT, 0);
        r->submitted_ms = pg_bin_time_us(res, i, D_SUBMITTED) / 1000;
        r->spec = pg_dup(res, i, D_SPEC, &r->spec_len);
        r->share = (int)pg_bin_int(res, i, D_SHARE, 0);
        pg_copy_uuid(res, i, D_BATCH, r->batch);
        r->not_before_us = pg_bin_time_us(res, i, D_NOT_BEFORE);
    }
    d->n = n;
    return 0;
}

/* The arrays as texts: "{a,b}". Tenants' names need no quotes. */
#define WANT_COLUMNS 4
static int put_wants(struct buf *const text[WANT_COLUMNS], const struct dispatch_want *wants, int n,
                     struct err *err)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        char number[3][24];
        assert(job_tenant_ok(wants[i].tenant));
        (void)snprintf(number[0], sizeof number[0], "%d", (int)wants[i].priority);
        (void)snprintf(number[1], sizeof number[1], "%d", wants[i].n);
        (void)snprintf(number[2], sizeof number[2], "%lld", (long long)wants[i].from_us);
        const char *column[WANT_COLUMNS] = { wants[i].tenant, number[0], number[1], number[2] };
        for (int k = 0; k < WANT_COLUMNS && rc == 0; k++) {
            rc = buf_add_str(text[k], i == 0 ? "{" : ",", err);
            rc = rc < 0 ? rc : buf_add_str(text[k], column[k], err);
        }
    }
    for (int k = 0; k < WANT_COLUMNS && rc == 0; k++) {
        rc = buf_add_str(text[k], "}", err);
    }
    return rc;
}

int store_dispatch(struct pg *pg, const struct dispatch_want *wants, int n_wants,
                   struct dispatch_row *ret_rows, int max, struct err *err)
{
    assert(n_wants > 0 && n_wants <= DISPATCH_WANTS_MAX);
    static const struct statement *const all[] = { &stmt_begin, &stmt_async_commit, &dispatch,
                                                   &stmt_commit };
    const int n_all = sizeof all / sizeof all[0];
    cleanup_buf struct buf tenants = { 0 }, priorities = { 0 }, counts = { 0 }, starts = { 0 };
    struct buf *const text[WANT_COLUMNS] = { &tenants, &priorities, &counts, &starts };
    for (int k = 0; k < WANT_COLUMNS; k++) {
        buf_init(text[k], (size_t)DISPATCH_WANTS_MAX * (JOB_TENANT_MAX + 2));
    }
    int rc = put_wants(text, wants, n_wants, err);
    rc = rc < 0 ? rc : pg_ensure(pg, err);
    for (int i = 0; i < n_all && rc >= 0; i++) {
        rc = pg_prepare(pg, all[i], err);
    }
    if (rc < 0 || (rc = pg_pipeline_begin(pg, err)) < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenants.data);
    pg_add_text(&p, priorities.data);
    pg_add_text(&p, counts.data);
    pg_add_text(&p, starts.data);
    pg_add_int(&p, DISPATCH_SPEC_BYTES_MAX);
    for (int i = 0; i < n_all; i++) { /* one trip to the server: this is on the way of every job */
        bool rows = i == DISPATCH_INDEX;
        if ((rc = pg_pipeline_send(pg, all[i], rows ? &p : NULL, rows, err)) < 0) {
            return rc;
        }
    }
    struct dispatch_ctx ctx = { .rows = ret_rows, .max = max };
    rc = pg_pipeline_finish(pg, n_all, on_dispatched, &ctx, "dispatch", err);
    if (rc < 0) {
        dispatch_rows_done(ret_rows, ctx.n);
        pg_rollback(pg);
        return rc;
    }
    return ctx.n;
}

int store_requeue_lost(struct pg *pg, int64_t age_ms, const char *const *keep_ids, int n_keep,
                       struct err *err)
{
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_buf struct buf keep = { 0 };
    buf_init(&keep, 64u << 20);
    rc = buf_add_str(&keep, "{", err);
    for (int i = 0; i < n_keep && rc == 0; i++) {
        if (!id_valid(
                keep_ids[i])) { /* somebody else's writing on the stream: it protects nothing */
            continue;
        }
        rc = keep.len > 1 ? buf_add_str(&keep, ",", err) : 0;
        rc = rc < 0 ? rc : buf_add_str(&keep, keep_ids[i], err);
    }
    rc = rc < 0 ? rc : buf_add_str(&keep, "}", err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, age_ms);
    pg_add_text(&p, keep.data);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &requeue_lost, &p, false, &res, err);
    return rc < 0 ? rc : (int)pg_int(res, 0, 0);
}

int store_next_due(struct pg *pg, int64_t *ret_ms, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &next_due, NULL, &res, err);
    if (rc < 0) {
        return rc;
    }
    *ret_ms = pg_int(res, 0, 0);
    return 0;
}

int store_mark_running(struct pg *pg, const char *job_id, int attempt, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_int(&p, attempt);
    int rc = pg_ask(pg, &mark_running, &p, NULL, err);
    return rc < 0 ? rc : 0;
}
