/* Migrations: each in a transaction of its own under one advisory lock, so that two processes that
 * start together take turns, and the second finds nothing to do. */
#include <stdio.h>
#include <string.h>

#include "common/store/migrations.h"
#include "common/store/pg_internal.h"

#define LOCK_SQL "SELECT pg_advisory_xact_lock(7310579512230481)" /* any constant of our own */
#define TABLE_SQL                                                                                  \
    "CREATE TABLE IF NOT EXISTS schema_migrations (version int PRIMARY KEY, name text NOT NULL,"   \
    " applied_at timestamptz NOT NULL DEFAULT now())"

static int newest(void)
{
    int v = 0;
    for (const struct migration *m = migrations; m->version; m++) {
        v = m->version;
    }
    return v;
}

int pg_schema_version(struct pg *pg, struct err *err)
{
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    PGresult *res = PQexec(pg->conn, "SELECT to_regclass('schema_migrations') IS NOT NULL");
    if (PQresultStatus(res) != PGRES_TUPLES_OK) {
        return pg_fail(pg, res, "read the schema version", err);
    }
    bool there = strcmp(PQgetvalue(res, 0, 0), "t") == 0;
    PQclear(res);
    if (!there) {
        return 0;
    }
    res = PQexec(pg->conn, "SELECT coalesce(max(version), 0) FROM schema_migrations");
    if (PQresultStatus(res) != PGRES_TUPLES_OK) {
        return pg_fail(pg, res, "read the schema version", err);
    }
    int v = (int)pg_int(res, 0, 0);
    PQclear(res);
    return v;
}

/* Inside the transaction that holds the lock. Returns 1 when m was applied, 0 when it was there. */
static int apply(struct pg *pg, const struct migration *m, struct err *err)
{
    int rc = pg_exec(pg, LOCK_SQL, "take the migration lock", err);
    if (rc < 0 || (rc = pg_exec(pg, TABLE_SQL, "make schema_migrations", err)) < 0) {
        return rc;
    }
    PGresult *res = PQexec(pg->conn, "SELECT coalesce(max(version), 0) FROM schema_migrations");
    if (PQresultStatus(res) != PGRES_TUPLES_OK) {
        return pg_fail(pg, res, "read the schema version", err);
    }
    int have = (int)pg_int(res, 0, 0);
    PQclear(res);
    if (have > newest()) {
        return err_set(err, ERR_MISMATCH,
                       "the database has schema %d, this brood knows %d: use the newer brood, or "
                       "another database",
                       have, newest());
    }
    if (have >= m->version) {
        return 0;
    }
    /* the ledger's tables refuse changes of their definition from anybody who does not say so */
    rc = pg_exec(pg, "SET LOCAL brood.ledger_change = 'on'", m->name, err);
    rc = rc < 0 ? rc : pg_exec(pg, m->sql, m->name, err);
    if (rc < 0) {
        return rc;
    }
    char version[16];
    (void)snprintf(version, sizeof version, "%d", m->version);
    const char *const values[] = { version, m->name };
    res = PQexecParams(pg->conn, "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", 2,
                       NULL, values, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        return pg_fail(pg, res, m->name, err);
    }
    PQclear(res);
    return 1;
}

int pg_migrate(struct pg *pg, struct err *err)
{
    int rc = pg_ensure(pg, err), applied = 0;
    if (rc < 0) {
        return rc;
    }
    for (const struct migration *m = migrations; m->version; m++) {
        if ((rc = pg_exec(pg, "BEGIN", "begin a migration", err)) < 0) {
            return rc;
        }
        int n = apply(pg, m, err);
        rc = n < 0 ? n : pg_exec(pg, "COMMIT", "commit a migration", err);
        if (rc < 0) {
            pg_rollback(pg);
            return rc;
        }
        applied += n;
    }
    return applied;
}
