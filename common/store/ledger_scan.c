/* Reading much of the ledger: in a transaction that only reads, with plans for whole tables (the
 * connection's own settings are for the small statements of the hot path), row by row off the wire.
 */
#include <assert.h>
#include <string.h>

#include "common/store/ledger_internal.h"

static int rows(struct pg *pg, const struct statement *st, row_fn fn, void *ctx, struct err *err)
{
    int n = 0, rc = 0;
    struct err why = { 0 };
    for (PGresult *res; (res = PQgetResult(pg->conn));) {
        ExecStatusType s = PQresultStatus(res);
        if (s == PGRES_SINGLE_TUPLE) {
            if (rc == 0 && (rc = fn(ctx, res, 0, &why)) >= 0) {
                n++;
                rc = 0;
            }
            if (rc < 0 && n >= 0) { /* the first time: have the rest stopped */
                PGcancel *c = PQgetCancel(pg->conn);
                char text[128];
                if (c) {
                    (void)PQcancel(c, text, sizeof text);
                }
                PQfreeCancel(c);
                n = -1;
            }
        } else if (s != PGRES_TUPLES_OK && rc == 0) {
            return pg_fail(pg, res, st->name, err);
        }
        PQclear(res);
    }
    if (rc < 0) {
        *err = why;
    }
    return rc < 0 ? rc : n;
}

int ledger_rows(struct pg *pg, const struct statement *st, const struct pg_params *p, row_fn fn,
                void *ctx, struct err *err)
{
    int rc = pg_prepare(pg, st, err);
    if (rc < 0) {
        return rc;
    }
    if (!PQsendQueryPrepared(pg->conn, st->name, p ? p->n : 0, p ? p->values : NULL,
                             p ? p->lengths : NULL, p ? p->formats : NULL, 0) ||
        !PQsetSingleRowMode(pg->conn)) {
        return pg_fail(pg, NULL, st->name, err);
    }
    return rows(pg, st, fn, ctx, err);
}

int ledger_read_begin(struct pg *pg, struct err *err)
{
    int rc = pg_ensure(pg, err);
    return rc < 0
               ? rc
               : pg_exec(
                     pg,
                     "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL "
                     "enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL "
                     "work_mem = '64MB'; SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL "
                     "max_parallel_workers_per_gather = 2",
                     "begin reading", err);
}

int ledger_scan(struct pg *pg, const struct statement *st, const struct pg_params *p, row_fn fn,
                void *ctx, struct err *err)
{
    bool inside = pg->conn && PQtransactionStatus(pg->conn) == PQTRANS_INTRANS;
    int rc = inside ? 0 : ledger_read_begin(pg, err);
    rc = rc < 0 ? rc : ledger_rows(pg, st, p, fn, ctx, err);
    if (!inside) {
        pg_rollback(pg); /* nothing was written */
    }
    return rc;
}
