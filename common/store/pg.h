/* One connection to Postgres. Blocking; one thread at a time. The only SQL of brood is in
 * common/store.
 *
 * A lost connection is reported as -ERR_UNAVAILABLE (text says where it was looked for); the next
 * call tries to reconnect once by itself, so callers only retry. Statements are prepared on first
 * use, by name. */
#pragma once
#include <libpq-fe.h>
#include <stdbool.h>
#include "common/base/err.h"

#define PG_URL_MAX 512        /* bytes of a connection string, NUL included */
#define PG_STATEMENTS_MAX 160 /* prepared statements of one connection */

struct rate_book;
struct pg {
    PGconn *conn; /* NULL: not connected */
    char url[PG_URL_MAX];
    unsigned generation; /* counts connections: what follows belongs to one */
    const void *prepared[PG_STATEMENTS_MAX];
    int n_prepared;
    const char *viewer; /* tenant that this connection reads and cancels for, borrowed; NULL: the
                           service itself, which sees all. What is not the viewer's is not found. */
    struct rate_book *book; /* what commits price with; NULL: to be read (ledger_internal.h) */
};

/* Connect. url: a libpq connection string or URI. -ERR_UNAVAILABLE when the server cannot be
 * reached; pg is then closed but keeps the url, so pg_ensure can be called until the server is
 * there. */
MUST_CHECK int pg_open(struct pg *pg, const char *url, struct err *err);
void pg_close(struct pg *pg);
/* Reconnect when the connection is not usable; 0 when usable afterwards. */
MUST_CHECK int pg_ensure(struct pg *pg, struct err *err);
/* Map a failed PGresult to an err. What is wrong with the statement's data: 23505 -> CONFLICT,
 * class 22 (a value the database cannot hold) -> INVALID, classes 21, 23, 44, 54, P0 -> DB. All
 * else (connection lost, no room, read-only, cancelled, no right, no table) -> UNAVAILABLE. Clears
 * res (NULL allowed); the connection may be closed (pg_ensure). */
int pg_fail(struct pg *pg, PGresult *res, const char *what, struct err *err);

/* Apply the migrations of schemas/sql (compiled in) that are missing, each in a transaction, under
 * an advisory lock: safe to run twice and by two processes at once. Returns how many were applied.
 * -ERR_MISMATCH when the database is newer. */
MUST_CHECK int pg_migrate(struct pg *pg, struct err *err);
/* Schema version in force; 0 when there is none. */
MUST_CHECK int pg_schema_version(struct pg *pg, struct err *err);
