/* Inside common/store only: statements, parameters and results over struct pg.
 *
 * A statement is a static object; its address is its identity, its name the prepared name on the
 * server. Parameters are collected into a struct of fixed size; numbers are written as text into
 * its own scratch space, program bytes go in binary. Nothing here reconnects but pg_ensure, which
 * every public call of the store starts with: a lost connection in mid-transaction must surface,
 * not continue on a new session. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/base/id.h"
#include "common/store/pg.h"

struct statement {
    const char *name;
    const char *sql;
};

#define PG_PARAMS_MAX 40

/* A condition: the row is of the tenant that pg.viewer names, or the service itself asks. */
#define PG_VIEWER(column, param) "(" param "::text IS NULL OR " column " = " param "::text)"

struct pg_params {
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
    char scratch[PG_PARAMS_MAX][24];
    int n;
};

/* NULL value: SQL NULL. Text must live until the statement was sent. */
void pg_add_text(struct pg_params *p, const char *text);
void pg_add_int(struct pg_params *p, int64_t value);
/* Binary; data may be NULL when len is 0. */
void pg_add_bytes(struct pg_params *p, const void *data, size_t len);

/* Prepare st on this connection when it is not yet. */
MUST_CHECK int pg_prepare(struct pg *pg, const struct statement *st, struct err *err);
/* Run st; p may be NULL; binary: format of the result. *ret_res (PQclear) may be NULL pointer when
 * it is not wanted. Returns the number of rows returned or affected. */
MUST_CHECK int pg_run(struct pg *pg, const struct statement *st, const struct pg_params *p,
                      bool binary, PGresult **ret_res, struct err *err);
/* A call that is one statement: pg_ensure, then pg_run with its result as text. */
MUST_CHECK int pg_ask(struct pg *pg, const struct statement *st, const struct pg_params *p,
                      PGresult **ret_res, struct err *err);
/* Plain SQL without parameters, maybe several statements. */
MUST_CHECK int pg_exec(struct pg *pg, const char *sql, const char *what, struct err *err);
/* After a failed call inside a transaction: ROLLBACK where there still is a connection. Keeps the
 * error as it is. */
void pg_rollback(struct pg *pg);

/* Pipeline: enter, send any number, then finish: results are handed to fn in the order sent. The
 * first failure is reported (later ones are its echo), the connection is out of pipeline mode
 * afterwards. fn may be NULL. */
typedef int (*pipeline_fn)(void *ctx, int index, const PGresult *res, struct err *err);
MUST_CHECK int pg_pipeline_begin(struct pg *pg, struct err *err);
MUST_CHECK int pg_pipeline_send(struct pg *pg, const struct statement *st,
                                const struct pg_params *p, bool binary, struct err *err);
/* n: how many were sent. */
MUST_CHECK int pg_pipeline_finish(struct pg *pg, int n, pipeline_fn fn, void *ctx, const char *what,
                                  struct err *err);

/* Leaves of a result. Text format: */
int64_t pg_int(const PGresult *res, int row, int col); /* 0 for NULL */
/* Copy into out[room], cut; "" for NULL. */
void pg_copy(const PGresult *res, int row, int col, char *out, size_t room);
/* malloc'ed, NUL-terminated; NULL for NULL. ret_len may be NULL. */
char *pg_dup(const PGresult *res, int row, int col, size_t *ret_len);
/* Binary format, int8 column; or_null for NULL. */
int64_t pg_bin_int(const PGresult *res, int row, int col, int64_t or_null);
/* Binary format, uuid column; "" for NULL. */
void pg_copy_uuid(const PGresult *res, int row, int col, char out[ID_TEXT_BYTES]);
/* Binary format, timestamptz column that is not NULL: microseconds since 1970. */
int64_t pg_bin_time_us(const PGresult *res, int row, int col);

static inline void cleanup_pgresult_fn(PGresult **r)
{
    PQclear(*r);
}
#define cleanup_pgresult __attribute__((cleanup(cleanup_pgresult_fn)))

/* LOCKS. Advisory locks are numbers that all of a database share; ours: 7310579512230481
 * migrations,
 * ..482 sealing, ..483 storage's hours, ..484 closing a month, ..485 budgets, ..486 the sweep of
 * objects, ..490 the leader. Two uses of one number would shut each other out: the leader's is held
 * for as long as it leads. */

extern const struct statement stmt_begin, stmt_commit, stmt_async_commit;

/* Part of a WITH: rows of the CTE `from` (tenant, priority; jobs that were moved) began to wait
 * (sign
 * "") or ceased to (sign "-"). Every statement that moves jobs into or out of queued and retrying
 * has it; see queue_counts in schemas/sql/0005_fair.sql. */
#define QUEUE_COUNT(from, sign)                                                                    \
    ", queue_count AS (INSERT INTO queue_counts (tenant, priority, n)"                             \
    " SELECT tenant, priority, " sign "count(*) FROM " from " GROUP BY tenant, priority)"

#define PG_MS(column) "coalesce((extract(epoch from " column ") * 1000)::int8, -1)"
