/* Reading jobs and their results back. Results of a batch come off the wire one row at a time
 * (libpq's single-row mode): a batch of any size needs the memory of its largest row. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

enum {
    COL_ID,
    COL_SEQ,
    COL_ATTEMPT,
    COL_NAME,
    COL_TEMPLATE,
    COL_LABELS,
    COL_STATE,
    COL_SUBMITTED,
    COL_FINISHED,
    COL_ERROR,
    COL_DETAIL,
    COL_OUT_HEAD,
    COL_OUT_TAIL,
    COL_ERR_HEAD,
    COL_ERR_TAIL,
    COL_SETUP_OUT,
    COL_SETUP_ERR,
    COL_COST,
    COL_CHARGED,
    COL_MEASURED,
    COL_TRIES
};
#define ROW_SQL                                                                                    \
    "SELECT j.id::text, j.seq::int8, j.attempt::int8, j.name, j.template, j.labels::text, "        \
    "j.state, " PG_MS("j.submitted_at") ", " PG_MS(                                                \
        "j.finished_at") ", j.last_error, r.detail,"                                               \
                         " r.stdout_head, r.stdout_tail, r.stderr_head, r.stderr_tail, "           \
                         "r.setup_stdout, r.setup_stderr,"                                         \
                         " coalesce(u.cost, 0)::int8, coalesce(u.charged, 0)::int8, "              \
                         "coalesce(u.measured, 0)::int8,"                                          \
                         " CASE WHEN j.tries > 0 THEN (SELECT "                                    \
                         "json_agg(json_build_object('attempt', "                                  \
                         "a.attempt, 'verdict', a.verdict, 'worker', a.worker, 'result', "         \
                         "a.detail::json) ORDER BY a.attempt)::text FROM attempts a"               \
                         "   WHERE a.job_id = j.id AND a.outcome = 'retried') END"                 \
                         " FROM jobs j LEFT JOIN results r ON r.job_id = j.id"                     \
                         " LEFT JOIN LATERAL (SELECT sum(cost_nanousd) AS cost,"                   \
                         "   sum(charged_ms) FILTER (WHERE meter = 'vcpu_seconds') AS charged,"    \
                         "   sum(measured_ms) FILTER (WHERE meter = 'vcpu_seconds') AS measured"   \
                         "   FROM usage_records WHERE job_id = j.id) u ON true"

static const struct statement batch_results = { "batch_results", ROW_SQL
                                                " WHERE j.batch_id = $1::uuid AND " PG_VIEWER(
                                                    "j.tenant", "$2") " ORDER BY j.seq, j.id" };
static const struct statement one_job = {
    "one_job", ROW_SQL " WHERE j.id = $1::uuid AND " PG_VIEWER("j.tenant", "$2")
};
static const struct statement batch_counts = {
    "batch_counts", "SELECT state, coalesce(verdict, 'none'), count(*) FROM jobs WHERE batch_id = "
                    "$1::uuid AND " PG_VIEWER("tenant", "$2") " GROUP BY 1, 2"
};
static const struct statement batch_there = {
    "batch_there", "SELECT 1 FROM batches WHERE id = $1::uuid AND " PG_VIEWER("tenant", "$2")
};
static const struct statement latest_batch = {
    "latest_batch",
    "SELECT id::text FROM batches WHERE tenant = $1 ORDER BY created_at DESC, id DESC LIMIT 1"
};
static const struct statement queue_counts = {
    "queue_counts",
    "SELECT state, count(*), coalesce((extract(epoch from clock_timestamp() - min(submitted_at)"
    "  FILTER (WHERE state IN ('queued','retrying'))) * 1000)::int8, -1) FROM jobs GROUP BY state"
};

void result_row_done(struct result_row *row)
{
    free(row->name);
    free(row->labels);
    free(row->last_error);
    free(row->tries);
    if (row->has_result) {
        job_result_done(&row->result);
    }
    memset(row, 0, sizeof *row);
}

static void take_bytes(const PGresult *res, int row, int col, struct bytes *b)
{
    free(b->data);
    b->len = 0;
    b->data = pg_dup(res, row, col, &b->len);
}

static int read_result(const PGresult *res, int i, struct result_row *row, struct err *err)
{
    if (PQgetisnull(res, i, COL_DETAIL)) {
        return 0;
    }
    job_result_init(&row->result);
    row->has_result = true;
    int rc = job_result_parse_detail(PQgetvalue(res, i, COL_DETAIL),
                                     (size_t)PQgetlength(res, i, COL_DETAIL), &row->result, err);
    if (rc < 0) {
        return err_prefix(err, "stored result of job %s", row->job_id);
    }
    struct job_result *r = &row->result;
    take_bytes(res, i, COL_OUT_HEAD, &r->run.out.head);
    take_bytes(res, i, COL_OUT_TAIL, &r->run.out.tail);
    take_bytes(res, i, COL_ERR_HEAD, &r->run.err_out.head);
    take_bytes(res, i, COL_ERR_TAIL, &r->run.err_out.tail);
    take_bytes(res, i, COL_SETUP_OUT, &r->setup.out.head);
    take_bytes(res, i, COL_SETUP_ERR, &r->setup.err_out.head);
    return 0;
}

static int read_row(const PGresult *res, int i, struct result_row *row, struct err *err)
{
    memset(row, 0, sizeof *row);
    pg_copy(res, i, COL_ID, row->job_id, sizeof row->job_id);
    row->seq = (int)pg_bin_int(res, i, COL_SEQ, 0);
    row->attempt = (int)pg_bin_int(res, i, COL_ATTEMPT, 0);
    pg_copy(res, i, COL_TEMPLATE, row->template_name, sizeof row->template_name);
    int state = job_state_parse(PQgetvalue(res, i, COL_STATE));
    if (state < 0) {
        return err_set(err, ERR_DB, "job %s has the unknown state %s", row->job_id,
                       PQgetvalue(res, i, COL_STATE));
    }
    row->state = (enum job_state)state;
    row->name = pg_dup(res, i, COL_NAME, NULL);
    row->labels = pg_dup(res, i, COL_LABELS, NULL);
    row->last_error = pg_dup(res, i, COL_ERROR, NULL);
    row->tries = pg_dup(res, i, COL_TRIES, NULL);
    row->submitted_ms = pg_bin_int(res, i, COL_SUBMITTED, -1);
    row->finished_ms = pg_bin_int(res, i, COL_FINISHED, -1);
    row->cost_nanousd = pg_bin_int(res, i, COL_COST, 0);
    row->charged_ms = pg_bin_int(res, i, COL_CHARGED, 0);
    row->measured_ms = pg_bin_int(res, i, COL_MEASURED, 0);
    return read_result(res, i, row, err);
}

static int bad_id(const char *what, const char *id, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s: \"%.60s\" is no id (36 characters, lower case)", what,
                   id);
}

/* The rows of a query that was just sent, until it ends or fn stops. Drains the connection in every
 * case. */
static int each_row(struct pg *pg, result_fn fn, void *ctx, struct err *err)
{
    int rc = 0, count = 0;
    for (PGresult *res; pg->conn && (res = PQgetResult(pg->conn));) {
        ExecStatusType s = PQresultStatus(res);
        if (rc == 0 && s == PGRES_SINGLE_TUPLE) {
            struct result_row row;
            rc = read_row(res, 0, &row, err);
            rc = rc < 0 ? rc : fn(ctx, &row, err);
            result_row_done(&row);
            if (rc < 0) { /* the rest is not wanted */
                PGcancel *c = PQgetCancel(pg->conn);
                char why[64];
                (void)(c && PQcancel(c, why, sizeof why));
                PQfreeCancel(c);
            } else {
                rc = 0;
                count++;
            }
        } else if (rc == 0 && s != PGRES_TUPLES_OK) {
            rc = pg_fail(pg, res, "read results", err);
            continue;
        }
        PQclear(res);
    }
    return rc < 0 ? rc : count;
}

int store_results(struct pg *pg, const char *batch_id, result_fn fn, void *ctx, struct err *err)
{
    if (!id_valid(batch_id)) {
        return bad_id("batch", batch_id, err);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0 || (rc = pg_prepare(pg, &batch_results, err)) < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, batch_id);
    pg_add_text(&p, pg->viewer);
    if (!PQsendQueryPrepared(pg->conn, batch_results.name, p.n, p.values, p.lengths, p.formats,
                             1) ||
        !PQsetSingleRowMode(pg->conn)) {
        return pg_fail(pg, NULL, "read results", err);
    }
    return each_row(pg, fn, ctx, err);
}

int store_job(struct pg *pg, const char *job_id, struct result_row *ret_row, struct err *err)
{
    if (!id_valid(job_id)) {
        return bad_id("job", job_id, err);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_text(&p, pg->viewer);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &one_job, &p, true, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        return err_set(err, ERR_NOT_FOUND, "there is no job %s", job_id);
    }
    struct result_row row;
    rc = read_row(res, 0, &row, err);
    if (rc < 0) {
        result_row_done(&row);
        return rc;
    }
    *ret_row = row;
    return 0;
}

int store_batch_counts(struct pg *pg, const char *batch_id, struct batch_counts *ret_counts,
                       struct err *err)
{
    if (!id_valid(batch_id)) {
        return bad_id("batch", batch_id, err);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, batch_id);
    pg_add_text(&p, pg->viewer);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &batch_counts, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    struct batch_counts c = { .total = 0 };
    for (int i = 0; i < rc; i++) {
        int state = job_state_parse(PQgetvalue(res, i, 0)),
            verdict = verdict_parse(PQgetvalue(res, i, 1));
        int n = (int)pg_int(res, i, 2);
        if (state < 0 || verdict < 0) {
            return err_set(err, ERR_DB, "batch %s has the unknown state %s or verdict %s", batch_id,
                           PQgetvalue(res, i, 0), PQgetvalue(res, i, 1));
        }
        c.total += n;
        c.done += job_state_terminal((enum job_state)state) ? n : 0;
        c.by_state[state] += n;
        c.by_verdict[verdict] += n;
    }
    if (c.total == 0) { /* empty, or not there? */
        int there = pg_run(pg, &batch_there, &p, false, NULL, err);
        if (there <= 0) {
            return there < 0 ? there
                             : err_set(err, ERR_NOT_FOUND, "there is no batch %s", batch_id);
        }
    }
    *ret_counts = c;
    return 0;
}

int store_latest_batch(struct pg *pg, const char *tenant, struct id *ret_id, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &latest_batch, &p, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        return err_set(err, ERR_NOT_FOUND, "tenant %s has no batch yet", tenant);
    }
    pg_copy(res, 0, 0, ret_id->text, sizeof ret_id->text);
    return 0;
}

int store_queue_counts(struct pg *pg, struct queue_counts *ret_counts, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &queue_counts, NULL, &res, err);
    if (rc < 0) {
        return rc;
    }
    struct queue_counts c = { .oldest_queued_ms = -1 };
    for (int i = 0; i < rc; i++) {
        int state = job_state_parse(PQgetvalue(res, i, 0));
        if (state < 0) {
            return err_set(err, ERR_DB, "a job has the unknown state %s", PQgetvalue(res, i, 0));
        }
        c.by_state[state] = pg_int(res, i, 1);
        int64_t age = pg_int(res, i, 2);
        c.oldest_queued_ms = age > c.oldest_queued_ms ? age : c.oldest_queued_ms;
    }
    *ret_counts = c;
    return 0;
}
