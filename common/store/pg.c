/* The connection to Postgres: connecting, prepared statements, pipelines, and what a failure means.
 *
 * Waiting is bounded where the kernel can bound it: connecting by connect_timeout, a silent TCP
 * peer by keepalives and tcp_user_timeout. A statement's own time is not bounded: the store's
 * statements are short, and giving one up would leave its outcome unknown. */
#include "common/store/pg.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/ledger_internal.h"
#include "common/store/pg_internal.h"

#define EPOCH_2000_US 946684800000000ll /* Postgres counts from there */

const struct statement stmt_begin = { "begin", "BEGIN" };
const struct statement stmt_commit = { "commit", "COMMIT" };
const struct statement stmt_async_commit = { "async_commit", "SET LOCAL synchronous_commit = off" };

/* Where the server was looked for: the effective host and port, no password. */
static void where(const struct pg *pg, char *out, size_t room)
{
    const char *host = pg->conn ? PQhost(pg->conn) : NULL;
    const char *port = pg->conn ? PQport(pg->conn) : NULL;
    const char *db = pg->conn ? PQdb(pg->conn) : NULL;
    (void)snprintf(out, room, "%s port %s, database %s", host && *host ? host : "the default host",
                   port && *port ? port : "5432", db && *db ? db : "(default)");
}

static void cut_newline(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n') {
        text[--n] = 0;
    }
    for (char *p = text; *p; p++) {
        if (*p == '\n' || *p == '\t') {
            *p = ' ';
        }
    }
}

static int unavailable(struct pg *pg, struct err *err)
{
    char at[256], why[256];
    where(pg, at, sizeof at);
    (void)snprintf(why, sizeof why, "%s", pg->conn ? PQerrorMessage(pg->conn) : "not connected");
    cut_newline(why);
    PQfinish(pg->conn);
    pg->conn = NULL;
    return err_set(err, ERR_UNAVAILABLE,
                   "Postgres not reachable at %s: start it, or run `brood up` (%s)", at, why);
}

static int connect_now(struct pg *pg, struct err *err)
{
    PQfinish(pg->conn);
    pg->n_prepared = 0;
    ledger_forget(pg);
    pg->generation++;
    /* Before dbname: the connection string may say otherwise. */
    static const char *const keys[] = {
        "connect_timeout",  "keepalives_idle",  "keepalives_interval",
        "keepalives_count", "tcp_user_timeout", "fallback_application_name",
        "dbname",           "client_encoding",  NULL
    };
    const char *values[] = { "5", "5", "5", "2", "10000", "brood", pg->url, "UTF8", NULL };
    pg->conn = PQconnectdbParams(keys, values, 1);
    if (!pg->conn) {
        abort(); /* out of memory */
    }
    if (PQstatus(pg->conn) != CONNECTION_OK) {
        return unavailable(pg, err);
    }
    /* Plans are cached and may be made while a table is empty, so they must not depend on its size:
     * no sequential scans (every statement on the hot path has its index) and no bitmap scans (the
     * next waiting jobs are read off the ordered index, not collected and sorted). No JIT: it costs
     * more than these statements take. No parallel workers: a penalised sequential scan of a table
     * of one row looks dear enough for them, and starting two processes takes up to 250 ms. */
    PGresult *res = PQexec(pg->conn, "SET client_min_messages = warning; SET jit = off; SET "
                                     "enable_seqscan = off; SET enable_bitmapscan = off;"
                                     " SET max_parallel_workers_per_gather = 0;"
                                     " SET TIME ZONE 'UTC'");
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        return pg_fail(pg, res, "set up the session", err);
    }
    PQclear(res);
    return 0;
}

int pg_open(struct pg *pg, const char *url, struct err *err)
{
    memset(pg, 0, sizeof *pg);
    if (strlen(url) >= sizeof pg->url) {
        return err_set(err, ERR_TOO_LARGE, "postgres.url: at most %d bytes", PG_URL_MAX - 1);
    }
    memcpy(pg->url, url, strlen(url) + 1);
    return connect_now(pg, err);
}

void pg_close(struct pg *pg)
{
    ledger_forget(pg);
    PQfinish(pg->conn);
    pg->conn = NULL;
}

int pg_ensure(struct pg *pg, struct err *err)
{
    if (!pg->conn || PQstatus(pg->conn) != CONNECTION_OK ||
        PQpipelineStatus(pg->conn) != PQ_PIPELINE_OFF) {
        return connect_now(pg, err);
    }
    PGTransactionStatusType t = PQtransactionStatus(pg->conn);
    if (t == PQTRANS_IDLE) {
        return 0;
    }
    if (t == PQTRANS_INTRANS || t == PQTRANS_INERROR) { /* an earlier call gave up in the middle */
        pg_rollback(pg);
        if (PQtransactionStatus(pg->conn) == PQTRANS_IDLE) {
            return 0;
        }
    }
    return connect_now(pg, err);
}

/* What a SQLSTATE says of the statement and of the session. */
struct meaning {
    char state[6]; /* or how it begins; the first that fits */
    enum err_code code;
    enum { SESSION_STAYS, SESSION_ANEW, SESSION_AWAY } session;
};
static const struct meaning meanings[] = {
    /* the server goes, comes, or has no connection left */
    { "08", ERR_UNAVAILABLE, SESSION_AWAY },
    { "57P", ERR_UNAVAILABLE, SESSION_AWAY },
    { "53300", ERR_UNAVAILABLE, SESSION_AWAY },
    /* a new session may fare better: it finds the primary, after a failover (25006), or prepares
     * anew what is not as it was */
    { "25006", ERR_UNAVAILABLE, SESSION_ANEW },
    { "0A000", ERR_UNAVAILABLE, SESSION_ANEW },
    { "26000", ERR_UNAVAILABLE, SESSION_ANEW },
    /* wrong with the data of the statement itself: the same again fails again */
    { "23505", ERR_CONFLICT, SESSION_STAYS },
    { "22", ERR_INVALID, SESSION_STAYS },
    { "21", ERR_DB, SESSION_STAYS },
    { "23", ERR_DB, SESSION_STAYS },
    { "44", ERR_DB, SESSION_STAYS },
    { "54", ERR_DB, SESSION_STAYS },
    { "P0", ERR_DB, SESSION_STAYS },
    /* Everything else is Postgres' own: out of room, cancelled, locked, without the right or the
     * table. It is the same for every statement, and somebody will mend it: nothing may be thrown
     * away for it. */
    { "", ERR_UNAVAILABLE, SESSION_STAYS },
};

/* state NULL: libpq itself. */
static struct meaning meaning_of(const char *state)
{
    const struct meaning *m = meanings;
    if (!state) {
        return (struct meaning){ "", ERR_UNAVAILABLE, SESSION_ANEW };
    }
    while (strncmp(state, m->state, strlen(m->state)) != 0) {
        m++;
    }
    return *m;
}

int pg_fail(struct pg *pg, PGresult *res, const char *what, struct err *err)
{
    const char *state = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
    struct meaning m = meaning_of(state);
    if (!pg->conn || PQstatus(pg->conn) != CONNECTION_OK || m.session == SESSION_AWAY) {
        PQclear(res);
        return unavailable(pg, err);
    }
    char why[384];
    const char *primary = res ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    (void)snprintf(why, sizeof why, "%s", primary ? primary : PQerrorMessage(pg->conn));
    cut_newline(why);
    int rc = err_set(err, m.code, "Postgres: %s: %s%s%s%s", what, why, state ? " (" : "",
                     state ? state : "", state ? ")" : "");
    if (m.session == SESSION_ANEW) {
        PQfinish(pg->conn);
        pg->conn = NULL;
    }
    PQclear(res);
    return rc;
}

/* ---- parameters ---- */

void pg_add_text(struct pg_params *p, const char *text)
{
    assert(p->n < PG_PARAMS_MAX);
    p->values[p->n] = text;
    p->lengths[p->n] = 0;
    p->formats[p->n++] = 0;
}

void pg_add_int(struct pg_params *p, int64_t value)
{
    assert(p->n < PG_PARAMS_MAX);
    (void)snprintf(p->scratch[p->n], sizeof p->scratch[0], "%lld", (long long)value);
    pg_add_text(p, p->scratch[p->n]);
}

void pg_add_bytes(struct pg_params *p, const void *data, size_t len)
{
    assert(p->n < PG_PARAMS_MAX && len <= INT32_MAX);
    assert(data || len == 0);
    p->values[p->n] = data ? data : ""; /* a NULL pointer would be SQL NULL */
    p->lengths[p->n] = (int)len;
    p->formats[p->n++] = 1;
}

/* ---- statements ---- */

int pg_prepare(struct pg *pg, const struct statement *st, struct err *err)
{
    for (int i = 0; i < pg->n_prepared; i++) {
        if (pg->prepared[i] == st) {
            return 0;
        }
    }
    assert(pg->n_prepared < PG_STATEMENTS_MAX);
    PGresult *res = PQprepare(pg->conn, st->name, st->sql, 0, NULL);
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        return pg_fail(pg, res, st->name, err);
    }
    PQclear(res);
    pg->prepared[pg->n_prepared++] = st;
    return 0;
}

static int result_count(const PGresult *res)
{
    if (PQresultStatus(res) == PGRES_TUPLES_OK) {
        return PQntuples(res);
    }
    const char *n = PQcmdTuples((PGresult *)(uintptr_t)res);
    return n && *n ? (int)strtol(n, NULL, 10) : 0;
}

int pg_run(struct pg *pg, const struct statement *st, const struct pg_params *p, bool binary,
           PGresult **ret_res, struct err *err)
{
    int rc = pg_prepare(pg, st, err);
    if (rc < 0) {
        return rc;
    }
    PGresult *res = PQexecPrepared(pg->conn, st->name, p ? p->n : 0, p ? p->values : NULL,
                                   p ? p->lengths : NULL, p ? p->formats : NULL, binary);
    ExecStatusType s = PQresultStatus(res);
    if (s != PGRES_TUPLES_OK && s != PGRES_COMMAND_OK) {
        return pg_fail(pg, res, st->name, err);
    }
    rc = result_count(res);
    if (ret_res) {
        *ret_res = res;
    } else {
        PQclear(res);
    }
    return rc;
}

int pg_ask(struct pg *pg, const struct statement *st, const struct pg_params *p, PGresult **ret_res,
           struct err *err)
{
    int rc = pg_ensure(pg, err);
    return rc < 0 ? rc : pg_run(pg, st, p, false, ret_res, err);
}

int pg_exec(struct pg *pg, const char *sql, const char *what, struct err *err)
{
    PGresult *res = PQexec(pg->conn, sql);
    ExecStatusType s = PQresultStatus(res);
    if (s != PGRES_TUPLES_OK && s != PGRES_COMMAND_OK) {
        return pg_fail(pg, res, what, err);
    }
    PQclear(res);
    return 0;
}

void pg_rollback(struct pg *pg)
{
    if (pg->conn && PQtransactionStatus(pg->conn) != PQTRANS_IDLE) {
        PQclear(PQexec(pg->conn, "ROLLBACK"));
    }
}

/* ---- pipelines ---- */

int pg_pipeline_begin(struct pg *pg, struct err *err)
{
    if (!PQenterPipelineMode(pg->conn)) {
        return pg_fail(pg, NULL, "pipeline", err);
    }
    return 0;
}

int pg_pipeline_send(struct pg *pg, const struct statement *st, const struct pg_params *p,
                     bool binary, struct err *err)
{
    if (!PQsendQueryPrepared(pg->conn, st->name, p ? p->n : 0, p ? p->values : NULL,
                             p ? p->lengths : NULL, p ? p->formats : NULL, binary)) {
        return pg_fail(pg, NULL, st->name, err);
    }
    return 0;
}

int pg_pipeline_finish(struct pg *pg, int n, pipeline_fn fn, void *ctx, const char *what,
                       struct err *err)
{
    if (!PQpipelineSync(pg->conn)) {
        return pg_fail(pg, NULL, what, err);
    }
    int rc = 0;
    for (int i = 0; i < n; i++) {
        PGresult *res = PQgetResult(pg->conn);
        ExecStatusType s = PQresultStatus(res);
        if (rc == 0 && s != PGRES_TUPLES_OK && s != PGRES_COMMAND_OK) {
            rc = pg_fail(pg, res, what, err);
            res = NULL;
            if (!pg->conn) {
                return rc;
            }
        } else if (rc == 0 && fn) {
            rc = fn(ctx, i, res, err);
        }
        PQclear(res);
        if (s == PGRES_PIPELINE_SYNC) { /* cannot be: one sync, sent last */
            return rc < 0 ? rc : err_set(err, ERR_DB, "Postgres: %s: results out of step", what);
        }
        while ((res = PQgetResult(pg->conn))) { /* the NULL behind each statement's results */
            PQclear(res);
        }
    }
    PGresult *sync = PQgetResult(pg->conn);
    ExecStatusType s = PQresultStatus(sync);
    if (s != PGRES_PIPELINE_SYNC) {
        if (rc == 0) {
            return pg_fail(pg, sync, what, err);
        }
        PQclear(sync);
        return rc; /* pg_ensure makes a new connection: this one is still in the pipeline */
    }
    PQclear(sync);
    if (!PQexitPipelineMode(pg->conn) && rc == 0) {
        rc = pg_fail(pg, NULL, what, err);
    }
    return rc;
}

/* ---- leaves of a result ---- */

int64_t pg_int(const PGresult *res, int row, int col)
{
    return PQgetisnull(res, row, col) ? 0 : strtoll(PQgetvalue(res, row, col), NULL, 10);
}

void pg_copy(const PGresult *res, int row, int col, char *out, size_t room)
{
    assert(room > 0);
    (void)snprintf(out, room, "%s", PQgetvalue(res, row, col));
}

char *pg_dup(const PGresult *res, int row, int col, size_t *ret_len)
{
    if (PQgetisnull(res, row, col)) {
        return NULL;
    }
    size_t n = (size_t)PQgetlength(res, row, col);
    char *copy = malloc(n + 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, PQgetvalue(res, row, col), n);
    copy[n] = 0;
    if (ret_len) {
        *ret_len = n;
    }
    return copy;
}

int64_t pg_bin_int(const PGresult *res, int row, int col, int64_t or_null)
{
    if (PQgetisnull(res, row, col)) {
        return or_null;
    }
    assert(PQgetlength(res, row, col) == 8); /* our own SQL casts to int8 */
    const uint8_t *b = (const uint8_t *)PQgetvalue(res, row, col);
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        v = v << 8 | b[i];
    }
    return (int64_t)v;
}

void pg_copy_uuid(const PGresult *res, int row, int col, char out[ID_TEXT_BYTES])
{
    out[0] = '\0';
    if (!PQgetisnull(res, row, col)) {
        assert(PQgetlength(res, row, col) == ID_BYTES);
        struct id id = id_of_bytes((const uint8_t *)PQgetvalue(res, row, col));
        memcpy(out, id.text, sizeof id.text);
    }
}

int64_t pg_bin_time_us(const PGresult *res, int row, int col)
{
    assert(!PQgetisnull(res, row, col));
    return pg_bin_int(res, row, col, 0) + EPOCH_2000_US;
}
