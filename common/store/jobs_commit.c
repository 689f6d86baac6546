/* The end of an attempt that counts: state, result, usage and attempt rows by one statement for
 * many jobs (jobs_commit_rows.c), one transaction a batch.
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

static const struct statement own_attempt = {
    "own_attempt", "SELECT (outcome = 'retried')::int FROM attempts WHERE job_id = $1::uuid"
                   " AND attempt = $2::int AND worker = $3 AND outcome IN ('committed','retried')"
};
static int by_job(const void *a, const void *b)
{
    const struct commit_item *x = *(struct commit_item *const *)a,
                             *y = *(struct commit_item *const *)b;
    return strcmp(x->job_id, y->job_id);
}

/* Of a batch that is sent: what each answer is about. */
struct commit_ctx {
    struct commit_item **order;
    const int *index; /* order[i] is in the index[i]-th statement sent, BEGIN being 0 */
    int n;
    int again; /* index of the statement of commit_again_send; 0: none */
};

static int on_committed(void *ctx, int index, const PGresult *res, struct err *err)
{
    (void)err;
    struct commit_ctx *c = ctx;
    bool guarded = false, again = c->again > 0 && index == c->again;
    for (int i = 0; i < c->n && !guarded; i++) {
        guarded = c->index[i] == index;
    }
    for (int row = 0; (guarded || again) && row < PQntuples(res); row++) {
        struct commit_item key = { .job_id = PQgetvalue(res, row, 0) }, *want = &key;
        struct commit_item **found =
            bsearch(&want, c->order, (size_t)c->n, sizeof *c->order, by_job);
        if (found && again) {
            (*found)->ret_again = true;
        } else if (found) {
            (*found)->ret_won = true;
        }
    }
    return 0;
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
    for (int i = 0, step; i < n && rc >= 0; i += step) {
        step = commit_rows_step(order + i, n - i);
        for (int k = 0; k < step; k++) {
            index[i + k] = sent;
        }
        rc = commit_rows_send(pg, order + i, step, err);
        sent += rc > 0 ? rc : 0;
    }
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = commit_extras_send(pg, order[i], err);
        sent += rc > 0 ? rc : 0;
    }
    int again = rc < 0 ? rc : commit_again_send(pg, order, n, err);
    sent += again > 0;
    rc = again < 0 ? again : pg_pipeline_send(pg, &stmt_commit, NULL, false, err);
    if (rc < 0) {
        return rc;
    }
    struct commit_ctx ctx = {
        .order = order, .index = index, .n = n, .again = again > 0 ? sent - 1 : 0
    };
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
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &own_attempt, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    item->ret_won = rc > 0;
    item->ret_again = rc > 0 && pg_int(res, 0, 0) != 0;
    return 0;
}

static int prepare(struct pg *pg, const struct commit_item *items, int n, struct err *err)
{
    static const struct statement *const all[] = { &stmt_begin, &stmt_commit, &stmt_ledger_guard,
                                                   &stmt_commit_rows, &stmt_commit_again };
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
            order[i]->ret_won = order[i]->ret_again = false;
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
        items[i].ret_won = items[i].ret_again = false;
        order[i] = &items[i];
    }
    qsort(order, (size_t)n, sizeof *order, by_job);
    rc = send_priced(pg, order, n, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = items[i].ret_won ? rc : check_own(pg, &items[i], err);
    }
    return rc < 0 ? rc : 0;
}
