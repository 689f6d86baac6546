/* What finance does to the ledger: corrections, and closing a month.
 *
 * A correction is a new line that names the one it corrects; all corrections of a line together
 * never exceed it. Closing a month writes its totals and digests down; whatever belongs to it and
 * comes later is billed in the next month that is open. Most of the digest is computed before the
 * table is locked: sealed lines do not change, and only what was not sealed yet is read under the
 * lock. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/ledger_internal.h"

/* ---- corrections ---- */

static const struct statement adjust_lock = { "adjust_lock",
                                              "SELECT pg_advisory_xact_lock(7310579512230484)" };
static const struct statement adjusted = {
    "adjust_look",
    "SELECT u.kind, u.cost_nanousd, u.cost_nanousd + (SELECT coalesce(sum(c."
    "cost_nanousd), 0)::int8 FROM usage_records c WHERE c.corrects = u.id), "
    "(extract(epoch from clock_timestamp()) * 1000)::int8 FROM usage_records u WHERE "
    "u.id = $1::uuid"
};
/* $1 id, $2 line, $3 cost, $4 reason, $5 period, $6 at ms */
static const struct statement add_adjustment = {
    "adjust_add",
    "INSERT INTO usage_records (id, tenant, job_id, attempt, branch, meter, template, labels, "
    "from_ts, to_ts, measured_ms, charged_ms, amount, unit_price_nanousd, cost_nanousd, kind, "
    "period, batch_id, verdict, resource, corrects, reason) SELECT $1::uuid, tenant, job_id, "
    "attempt, "
    "branch, meter, template, labels, to_timestamp($6::int8 / 1000.0), to_timestamp($6::int8 / "
    "1000.0), 0, 0, 0, 0, $3::int8, 'adjustment', $5::int, batch_id, verdict, resource, id, "
    "$4::text "
    "FROM usage_records WHERE id = $2::uuid"
};

static int adjust(struct pg *pg, const char *line_id, int64_t nanousd, const char *reason,
                  struct id *ret_id, struct err *err)
{
    const struct rate_book *book;
    struct pg_params g = { .n = 0 }, p = { .n = 0 };
    cleanup_pgresult PGresult *res = NULL;
    ledger_forget(pg);
    int rc = pg_run(pg, &adjust_lock, NULL, false, NULL, err);
    rc = rc < 0 ? rc : ledger_book(pg, &book, err);
    if (rc < 0) {
        return rc;
    }
    pg_add_int(&g, book->version);
    pg_add_int(&g, book->closed_through);
    pg_add_text(&p, line_id);
    rc = pg_run(pg, &stmt_ledger_guard, &g, false, NULL, err);
    rc = rc < 0 ? rc : pg_run(pg, &adjusted, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        return err_set(err, ERR_NOT_FOUND, "there is no usage line %s", line_id);
    }
    if (strcmp(PQgetvalue(res, 0, 0), "usage") != 0) {
        return err_set(err, ERR_INVALID, "line %s is a correction itself", line_id);
    }
    if (pg_int(res, 0, 2) + nanousd < 0) {
        return err_set(err, ERR_INVALID,
                       "line %s cost %lld nano-dollars, of which %lld are left: no more can be "
                       "given back",
                       line_id, (long long)pg_int(res, 0, 1), (long long)pg_int(res, 0, 2));
    }
    int64_t now_ms = pg_int(res, 0, 3);
    *ret_id = id_new();
    struct pg_params a = { .n = 0 };
    pg_add_text(&a, ret_id->text);
    pg_add_text(&a, line_id);
    pg_add_int(&a, nanousd);
    pg_add_text(&a, reason);
    pg_add_int(&a, usage_period(now_ms, book->closed_through));
    pg_add_int(&a, now_ms);
    return pg_run(pg, &add_adjustment, &a, false, NULL, err);
}

int store_adjust(struct pg *pg, const char *line_id, int64_t nanousd, const char *reason,
                 struct id *ret_id, struct err *err)
{
    if (!id_valid(line_id)) {
        return err_set(err, ERR_INVALID, "line: must be the id of a usage line");
    }
    if (nanousd >= 0) {
        return err_set(err, ERR_INVALID, "amount: a correction gives something back: below 0");
    }
    if (!*reason || strlen(reason) >= LEDGER_REASON_MAX) {
        return err_set(err, ERR_INVALID, "reason: 1 to %d bytes", LEDGER_REASON_MAX - 1);
    }
    for (const char *p = reason; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            return err_set(err, ERR_INVALID, "reason: one line of text, no control characters");
        }
    }
    int rc = pg_ask(pg, &stmt_begin, NULL, NULL, err);
    rc = rc < 0 ? rc : adjust(pg, line_id, nanousd, reason, ret_id, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
        return rc;
    }
    return 0;
}

/* ---- closing ---- */

/* $1 period */
static const struct statement may_close = {
    "close_look",
    "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMM')::int, (SELECT coalesce(max("
    "period), 0) FROM usage_periods), coalesce((SELECT min(period) FROM usage_records WHERE period "
    "> "
    "(SELECT coalesce(max(period), 0) FROM usage_periods) AND period < $1::int), 0),"
    " (SELECT coalesce(max(last_pos), 0) FROM usage_seals)"
};
/* $1 period, $2 above, $3 up to (0: no end) */
static const struct statement month_lines = {
    "close_lines",
    "SELECT u.tenant, u.cost_nanousd, u.id, " LINE_CANONICAL
    " FROM usage_records u WHERE u.period = $1::int AND u.pos > $2::int8 AND ($3::int8 = "
    "0 OR u.pos <= $3::int8) ORDER BY u.tenant, u.pos"
};
static const struct statement lock_lines = { "close_lock",
                                             "LOCK TABLE usage_records IN SHARE MODE" };
static const struct statement add_period = {
    "close_period",
    "INSERT INTO usage_periods (period, lines, cost_nanousd, digest) VALUES ($1::int, "
    "$2::int8, $3::int8, $4::bytea)"
};
static const struct statement add_total = {
    "close_total", "INSERT INTO usage_period_totals VALUES ($1::int, $2, $3::int8, $4::int8, "
                   "$5::bytea)"
};

static struct month_tenant *of_tenant(struct month *m, const char *tenant)
{
    if (m->n > 0 && strcmp(m->tenants[m->n - 1].tenant, tenant) == 0) {
        return &m->tenants[m->n - 1];
    }
    int low = 0;
    for (; low < m->n && strcmp(m->tenants[low].tenant, tenant) < 0; low++) {
    }
    if (low < m->n && strcmp(m->tenants[low].tenant, tenant) == 0) {
        return &m->tenants[low];
    }
    m->tenants = reallocarray(m->tenants, (size_t)m->n + 1, sizeof *m->tenants);
    if (!m->tenants) {
        abort();
    }
    memmove(&m->tenants[low + 1], &m->tenants[low], (size_t)(m->n - low) * sizeof *m->tenants);
    m->n++;
    struct month_tenant *t = &m->tenants[low];
    (void)snprintf(t->tenant, sizeof t->tenant, "%s", tenant);
    chain_digest_init(&t->digest);
    return t;
}

void month_done(struct month *m)
{
    free(m->tenants);
    *m = (struct month){ 0 };
}

void month_add(struct month *m, const char *tenant, int64_t cost_nanousd,
               const uint8_t hash[CHAIN_HASH])
{
    chain_digest_add(&of_tenant(m, tenant)->digest, hash, cost_nanousd);
}

void month_end(struct month *m, uint8_t digest[CHAIN_HASH])
{
    struct chain_digest all;
    chain_digest_init(&all);
    for (int i = 0; i < m->n; i++) {
        struct month_tenant *t = &m->tenants[i];
        chain_digest_end(&t->digest, t->hash);
        chain_digest_add(&all, t->hash, t->digest.cost_nanousd);
        m->lines += t->digest.lines;
        m->cost_nanousd += t->digest.cost_nanousd;
    }
    chain_digest_end(&all, digest);
}

static int on_month_line(void *ctx, const PGresult *res, int row, struct err *err)
{
    uint8_t entry[CHAIN_ENTRY];
    if (chain_entry(PQgetvalue(res, row, 2), PQgetvalue(res, row, 3),
                    (size_t)PQgetlength(res, row, 3), entry) < 0) {
        return err_set(err, ERR_DB, "usage_records: the id of a line is none");
    }
    month_add(ctx, PQgetvalue(res, row, 0), pg_int(res, row, 1), entry + CHAIN_ID);
    return 0;
}

static int read_month(struct pg *pg, int period, int64_t above, int64_t up_to, struct month *m,
                      struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, period);
    pg_add_int(&p, above);
    pg_add_int(&p, up_to);
    return ledger_rows(pg, &month_lines, &p, on_month_line, m, err);
}

static int look(struct pg *pg, int period, int64_t *ret_sealed, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, period);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &may_close, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    int now = (int)pg_int(res, 0, 0), last = (int)pg_int(res, 0, 1), open = (int)pg_int(res, 0, 2);
    *ret_sealed = pg_int(res, 0, 3);
    if (period >= now) {
        return err_set(err, ERR_INVALID, "%d-%02d is not over yet", period / 100, period % 100);
    }
    if (period <= last) {
        return err_set(err, ERR_CONFLICT, "%d-%02d is closed already", period / 100, period % 100);
    }
    return open ? err_set(err, ERR_INVALID, "%d-%02d has lines and is not closed: close it first",
                          open / 100, open % 100)
                : 0;
}

static int write_month(struct pg *pg, int period, struct month *m, struct closed_month *ret,
                       struct err *err)
{
    uint8_t digest[CHAIN_HASH];
    month_end(m, digest);
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, period);
    pg_add_int(&p, m->lines);
    pg_add_int(&p, m->cost_nanousd);
    pg_add_bytes(&p, digest, sizeof digest);
    int rc = pg_run(pg, &add_period, &p, false, NULL, err);
    for (int i = 0; rc >= 0 && i < m->n; i++) {
        struct month_tenant *t = &m->tenants[i];
        struct pg_params q = { .n = 0 };
        pg_add_int(&q, period);
        pg_add_text(&q, t->tenant);
        pg_add_int(&q, t->digest.lines);
        pg_add_int(&q, t->digest.cost_nanousd);
        pg_add_bytes(&q, t->hash, sizeof t->hash);
        rc = pg_run(pg, &add_total, &q, false, NULL, err);
    }
    *ret = (struct closed_month){
        .period = period, .lines = m->lines, .cost_nanousd = m->cost_nanousd, .tenants = m->n
    };
    chain_hex(digest, sizeof digest, ret->digest);
    return rc;
}

/* The digest goes over each tenant's lines by number. A line above the sealed number comes after
 * all below it, so reading in two pieces keeps the order. */
static int close_month(struct pg *pg, int period, struct month *m, struct closed_month *ret,
                       struct err *err)
{
    int64_t sealed = 0;
    int rc = look(pg, period, &sealed, err);
    rc = rc < 0 ? rc : sealed == 0 ? 0 : read_month(pg, period, 0, sealed, m, err);
    rc = rc < 0 ? rc : pg_run(pg, &lock_lines, NULL, false, NULL, err);
    rc = rc < 0 ? rc : read_month(pg, period, sealed, 0, m, err);
    int64_t unused;
    rc = rc < 0 ? rc : look(pg, period, &unused, err); /* nobody else has closed it meanwhile */
    return rc < 0 ? rc : write_month(pg, period, m, ret, err);
}

int store_close_month(struct pg *pg, int period, struct closed_month *ret, struct err *err)
{
    if (period < 197001 || period > 999912 || period % 100 < 1 || period % 100 > 12) {
        return err_set(err, ERR_INVALID, "month: YYYY-MM");
    }
    struct month m = { 0 };
    int rc = pg_ensure(pg, err);
    rc = rc < 0
             ? rc
             : pg_exec(pg, "BEGIN; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on",
                       "begin", err);
    rc = rc < 0 ? rc : close_month(pg, period, &m, ret, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
    }
    month_done(&m);
    ledger_forget(pg);
    return rc < 0 ? rc : 0;
}
