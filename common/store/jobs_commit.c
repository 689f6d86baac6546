/* The end of an attempt that counts: state, result, usage and attempt rows by one statement a job,
 * one transaction a batch.
 *
 * The guarded UPDATE is the head of the statement and feeds the INSERTs, so a job that another
 * attempt has won adds nothing at all. Items are taken in the order of their ids, whatever the
 * order given: two committers that hold the same two jobs then wait for each other instead of
 * deadlocking. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/commit_internal.h"

#define COMMIT_ITEMS_MAX 10000
#define REPRICE_MAX 3 /* times that a commit meets a newer price book */

/* $1 job, $2 attempt, $3 worker, $4 state, $5 verdict, $6 detail, $7..$12 output bytes, $13
 * template or NULL */
#define COMMIT_HEAD                                                                                \
    "WITH u AS (UPDATE jobs SET state = $4, verdict = $5, finished_at = clock_timestamp()"         \
    "  WHERE id = $1::uuid AND attempt = $2::int AND state IN ('scheduled','running')"             \
    "  RETURNING id, tenant, coalesce($13, template) AS template, labels, batch_id),"              \
    " r AS (INSERT INTO results (job_id, attempt, verdict, detail, stdout_head, stdout_tail,"      \
    "   stderr_head, stderr_tail, setup_stdout, setup_stderr)"                                     \
    "  SELECT id, $2::int, $5, $6, $7::bytea, $8::bytea, $9::bytea, $10::bytea, $11::bytea, "      \
    "$12::bytea FROM u),"                                                                          \
    " a AS (INSERT INTO attempts (job_id, attempt, worker, outcome)"                               \
    "  SELECT id, $2::int, $3::text, 'committed' FROM u)"
#define COMMIT_TAIL " SELECT count(*) FROM u"
/* $14 on: commit_usage_params of the sandbox's first part */
#define USAGE_ROW(id, meter, amount, price, cost)                                                  \
    "(" id "::uuid, " meter "::text, " amount "::int8, " price "::int8, " cost "::int8)"
#define COMMIT_USAGE                                                                               \
    ", g AS (INSERT INTO usage_records (id, tenant, job_id, attempt, meter, template, labels,"     \
    "   batch_id, verdict, from_ts, to_ts, measured_ms, charged_ms, rate_id, period, amount,"      \
    "   unit_price_nanousd, cost_nanousd)"                                                         \
    "  SELECT m.id, u.tenant, u.id, $2::int, m.meter, u.template, u.labels, u.batch_id, $5::text," \
    "   to_timestamp($14::int8 / 1000.0), to_timestamp($15::int8 / 1000.0), $16::int8, $17::int8," \
    "   $18::int, $19::int, m.amount, m.price, m.cost FROM u CROSS JOIN (VALUES " USAGE_ROW(       \
        "$20", "$21", "$22", "$23",                                                                \
        "$24") ", " USAGE_ROW("$25", "$26", "$27", "$28",                                          \
                              "$29") ") m (id, meter, amount, price, cost))"

static const struct statement commit_free = { "commit_free", COMMIT_HEAD COMMIT_TAIL };
static const struct statement commit_billed = { "commit_billed",
                                                COMMIT_HEAD COMMIT_USAGE COMMIT_TAIL };
static const struct statement own_attempt = {
    "own_attempt",
    "SELECT 1 FROM attempts WHERE job_id = $1::uuid AND attempt = $2::int AND worker = $3"
    " AND outcome = 'committed'"
};
static_assert(METER_COUNT == 2, "COMMIT_USAGE writes two meters");

static const char *final_state(enum verdict v)
{
    return job_state_word(v == VERDICT_INFRA_ERROR ? STATE_DEAD
                          : v == VERDICT_CANCELLED ? STATE_CANCELLED
                                                   : STATE_COMPLETED);
}

static void add_bytes(struct pg_params *p, const struct bytes *b)
{
    pg_add_bytes(p, b->data, b->len);
}

/* Returns how many statements: the guarded one, and the parts of the sandbox's time behind its
 * first. */
static int send_item(struct pg *pg, const struct commit_item *item, struct err *err)
{
    const struct job_result *r = item->result;
    int rc;
    cleanup_free char *detail = job_result_detail(r);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, item->job_id);
    pg_add_int(&p, item->attempt);
    pg_add_text(&p, item->worker);
    pg_add_text(&p, final_state(r->verdict));
    pg_add_text(&p, verdict_word(r->verdict));
    pg_add_text(&p, detail);
    add_bytes(&p, &r->run.out.head);
    add_bytes(&p, &r->run.out.tail);
    add_bytes(&p, &r->run.err_out.head);
    add_bytes(&p, &r->run.err_out.tail);
    add_bytes(&p, &r->setup.out.head);
    add_bytes(&p, &r->setup.err_out.head);
    pg_add_text(&p, item->template_name);
    if (!item->billed) {
        rc = pg_pipeline_send(pg, &commit_free, &p, false, err);
        return rc < 0 ? rc : 1;
    }
    struct usage_record u[USAGE_RECORDS_MAX];
    int n = commit_usage_price(pg, item, "", r, u, err);
    if (n < 0) {
        return n;
    }
    commit_usage_params(&p, u);
    rc = pg_pipeline_send(pg, &commit_billed, &p, false, err);
    rc = rc < 0 ? rc : commit_usage_send(pg, item, "", u + METER_COUNT, n - METER_COUNT, err);
    return rc < 0 ? rc : rc + 1;
}

struct commit_ctx {
    struct commit_item **order;
    const int *index; /* order[i]'s guarded statement was the index[i]-th sent, BEGIN being 0 */
    int n, next;      /* the first of order whose answer has not come */
};

static int on_committed(void *ctx, int index, const PGresult *res, struct err *err)
{
    (void)err;
    struct commit_ctx *c = ctx;
    if (c->next < c->n && index == c->index[c->next]) {
        c->order[c->next++]->ret_won = pg_int(res, 0, 0) > 0;
    }
    return 0;
}

static int by_job(const void *a, const void *b)
{
    const struct commit_item *x = *(struct commit_item *const *)a,
                             *y = *(struct commit_item *const *)b;
    return strcmp(x->job_id, y->job_id);
}

static int send_all(struct pg *pg, struct commit_item **order, int n, struct err *err)
{
    cleanup_free int *index = calloc((size_t)n, sizeof *index);
    if (!index) {
        abort();
    }
    const struct rate_book *book = pg->book;
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, book->version);
    pg_add_int(&p, book->closed_through);
    int sent = 2, rc = pg_pipeline_begin(pg, err);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_begin, NULL, false, err);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_ledger_guard, &p, false, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        index[i] = sent;
        int own = rc = send_item(pg, order[i], err);
        rc = rc < 0 ? rc : commit_extras_send(pg, order[i], err);
        sent += rc < 0 ? 0 : own + rc;
    }
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_commit, NULL, false, err);
    if (rc < 0) {
        return rc;
    }
    struct commit_ctx ctx = { .order = order, .index = index, .n = n };
    return pg_pipeline_finish(pg, sent + 1, on_committed, &ctx, "commit results", err);
}

/* An item that changed nothing is lost, unless it is ours from a call whose answer never came. A
 * statement of its own, after the guarded one: that one waited for any transaction that still held
 * the row. */
static int check_own(struct pg *pg, struct commit_item *item, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, item->job_id);
    pg_add_int(&p, item->attempt);
    pg_add_text(&p, item->worker);
    int rc = pg_run(pg, &own_attempt, &p, false, NULL, err);
    if (rc < 0) {
        return rc;
    }
    item->ret_won = rc > 0;
    return 0;
}

static int prepare(struct pg *pg, const struct commit_item *items, int n, struct err *err)
{
    static const struct statement *const all[] = { &stmt_begin, &stmt_commit, &stmt_ledger_guard,
                                                   &commit_free, &commit_billed };
    int rc = pg_ensure(pg, err);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && rc >= 0; i++) {
        rc = pg_prepare(pg, all[i], err);
    }
    rc = rc < 0 ? rc : commit_usage_prepare(pg, err);
    return rc < 0 ? rc : commit_extras_prepare(pg, items, n, err);
}

/* The book that the connection had may be an old one: then the guard refuses, and it is read again.
 */
static int send_priced(struct pg *pg, struct commit_item **order, int n, struct err *err)
{
    for (int again = 0;; again++) {
        const struct rate_book *book;
        int rc = ledger_book(pg, &book, err);
        int version = rc < 0 ? 0 : book->version, closed = rc < 0 ? 0 : book->closed_through;
        rc = rc < 0 ? rc : send_all(pg, order, n, err);
        if (rc >= 0) {
            return rc;
        }
        pg_rollback(pg);
        struct err why = *err;
        if (again == REPRICE_MAX || !pg->conn || PQstatus(pg->conn) != CONNECTION_OK ||
            PQpipelineStatus(pg->conn) != PQ_PIPELINE_OFF) {
            return rc;
        }
        ledger_forget(pg);
        if (ledger_book(pg, &book, err) < 0 ||
            (book->version == version && book->closed_through == closed)) {
            *err = why;
            return rc;
        }
        for (int i = 0; i < n; i++) {
            order[i]->ret_won = false;
        }
    }
}

int store_commit(struct pg *pg, struct commit_item *items, int n, struct err *err)
{
    assert(n > 0 && n <= COMMIT_ITEMS_MAX);
    int rc = prepare(pg, items, n, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_free struct commit_item **order = calloc((size_t)n, sizeof *order);
    if (!order) {
        abort();
    }
    for (int i = 0; i < n; i++) {
        items[i].ret_won = false;
        order[i] = &items[i];
    }
    qsort(order, (size_t)n, sizeof *order, by_job);
    rc = send_priced(pg, order, n, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = items[i].ret_won ? rc : check_own(pg, &items[i], err);
    }
    return rc < 0 ? rc : 0;
}
