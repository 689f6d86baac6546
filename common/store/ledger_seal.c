/* The chain: the lines of each tenant in the order of their numbers (pos), sealed in blocks.
 *
 * Commits do not wait for one another: they write lines without any hash, and this, called by the
 * scheduler about once a second, chains them afterwards. What it needs is a number below which no
 * line can still appear. Every line's transaction takes its id before the line's number (see the
 * column's default), so: note the last number given out, then take a transaction id of one's own;
 * once every transaction with a lower id has ended, all lines up to that number are there or never
 * will be. No lock, nobody waits; a long transaction only delays sealing.
 *
 * A seal names each of its lines by id and SHA-256 of the canonical form, so that the check can say
 * which line was changed, is missing or was put in; its own hash covers that, the sums and the hash
 * of the seal before it. docs/billing.md has the bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/model/chain.h"
#include "common/store/ledger_internal.h"
#include "common/store/ledger_line.h"

#define LINE_BYTES_MAX (1u << 20) /* labels are the longest of it, and have a limit */

static const struct statement seal_lock = {
    "seal_lock", "SELECT pg_try_advisory_xact_lock(7310579512230482)" /* any constant of our own */
};
static const struct statement seal_horizon = {
    "seal_horizon", "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8"
};
static const struct statement last_number = {
    "seal_number", "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM usage_pos"
};
/* Not a snapshot's xmax: that is one past the highest that has ended, and others may be under way
 * above it. */
static const struct statement own_xid = { "seal_xid", "SELECT pg_current_xact_id()::text::int8" };
/* $1 up to, $2 how many; by tenant, so that each tenant's are together */
static const struct statement open_lines = {
    "seal_lines",
    "SELECT " LINE_COLUMNS
    " FROM (SELECT * FROM usage_records WHERE pos > coalesce((SELECT max(last_pos) FROM "
    "usage_seals), 0) AND pos <= $1::int8 ORDER BY pos LIMIT $2::int) u ORDER BY u.tenant, u.pos"
};
static const struct statement unsealed = {
    "unsealed",
    "SELECT count(*), coalesce((extract(epoch from clock_timestamp() - min(created_at)) * "
    "1000)::int8, -1) FROM (SELECT created_at FROM usage_records WHERE pos > coalesce((SELECT "
    "max(last_pos) FROM usage_seals), 0) ORDER BY pos LIMIT $1::int) u"
};
static const struct statement last_seal = {
    "seal_last",
    "SELECT seal, encode(hash, 'hex') FROM usage_seals WHERE tenant = $1 ORDER BY seal "
    "DESC LIMIT 1"
};
static const struct statement add_seal = {
    "seal_add", "INSERT INTO usage_seals (tenant, seal, first_pos, last_pos, lines, cost_nanousd, "
                "content, prev_hash, hash) VALUES ($1, $2::int8, $3::int8, $4::int8, $5::int, "
                "$6::int8, $7::bytea, $8::bytea, $9::bytea)"
};
static const struct statement add_day = {
    "seal_day", "INSERT INTO usage_days VALUES ($1, date '1970-01-01' + $2::int, $3::int8, "
                "$4::int8) ON CONFLICT "
                "(tenant, day) DO UPDATE SET lines = usage_days.lines + excluded.lines, "
                "cost_nanousd = usage_days.cost_nanousd + excluded.cost_nanousd"
};

static int64_t cost_of(const PGresult *res, int row)
{
    return pg_bin_int(res, row, LINE_COST, 0);
}

/* The lines from `from` on that are of the same tenant and day; what they sum to. */
static int put_days(struct pg *pg, const PGresult *res, int from, int to, struct err *err)
{
    cleanup_free bool *done = calloc((size_t)(to - from), sizeof *done);
    if (!done) {
        abort();
    }
    for (int i = from; i < to; i++) {
        if (done[i - from]) {
            continue;
        }
        int64_t day = ledger_line_day(res, i), lines = 0, cost = 0;
        for (int j = i; j < to; j++) {
            if (ledger_line_day(res, j) == day) {
                done[j - from] = true;
                lines++;
                cost += cost_of(res, j);
            }
        }
        struct pg_params p = { .n = 0 };
        pg_add_text(&p, PQgetvalue(res, from, LINE_TENANT));
        pg_add_int(&p, day);
        pg_add_int(&p, lines);
        pg_add_int(&p, cost);
        int rc = pg_run(pg, &add_day, &p, false, NULL, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* The seal that follows the last one of tenant: its number, and the hash it chains to. */
static int chain_end(struct pg *pg, const char *tenant, struct chain_seal *s, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &last_seal, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    s->seal = rc > 0 ? pg_int(res, 0, 0) + 1 : 1;
    memset(s->prev_hash, 0, sizeof s->prev_hash);
    if (rc > 0 && chain_unhex(PQgetvalue(res, 0, 1), s->prev_hash, CHAIN_HASH) < 0) {
        return err_set(err, ERR_DB, "usage_seals: the hash of a seal is no hash");
    }
    return 0;
}

/* Seal rows [from, to) of res, all of one tenant, at most SEAL_LINES_MAX. */
static int put_seal(struct pg *pg, const PGresult *res, int from, int to, struct err *err)
{
    struct chain_seal s = { .tenant = PQgetvalue(res, from, LINE_TENANT),
                            .first_pos = pg_bin_int(res, from, LINE_POS, 0),
                            .last_pos = pg_bin_int(res, to - 1, LINE_POS, 0),
                            .lines = to - from };
    int rc = chain_end(pg, s.tenant, &s, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_free uint8_t *content = malloc((size_t)s.lines * CHAIN_ENTRY);
    cleanup_buf struct buf line = { 0 };
    buf_init(&line, LINE_BYTES_MAX);
    if (!content) {
        abort();
    }
    for (int i = from; i < to; i++) {
        s.cost_nanousd += cost_of(res, i);
        if ((rc = ledger_line(res, i, &line, err)) < 0) {
            return rc;
        }
        chain_entry_of((const uint8_t *)PQgetvalue(res, i, LINE_ID), line.data, line.len,
                       content + (size_t)(i - from) * CHAIN_ENTRY);
    }
    s.content = content;
    uint8_t hash[CHAIN_HASH];
    chain_seal_hash(&s, hash);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, s.tenant);
    pg_add_int(&p, s.seal);
    pg_add_int(&p, s.first_pos);
    pg_add_int(&p, s.last_pos);
    pg_add_int(&p, s.lines);
    pg_add_int(&p, s.cost_nanousd);
    pg_add_bytes(&p, content, (size_t)s.lines * CHAIN_ENTRY);
    pg_add_bytes(&p, s.prev_hash, CHAIN_HASH);
    pg_add_bytes(&p, hash, CHAIN_HASH);
    rc = pg_run(pg, &add_seal, &p, false, NULL, err);
    return rc < 0 ? rc : put_days(pg, res, from, to, err);
}

static int seal_up_to(struct pg *pg, int64_t pos, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, pos);
    pg_add_int(&p, SEAL_TURN_MAX);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(pg, &open_lines, &p, true, &res, err);
    for (int from = 0, to; from < n; from = to) {
        for (to = from + 1;
             to < n && to - from < SEAL_LINES_MAX &&
             strcmp(PQgetvalue(res, to, LINE_TENANT), PQgetvalue(res, from, LINE_TENANT)) == 0;
             to++) {
        }
        int rc = put_seal(pg, res, from, to, err);
        if (rc < 0) {
            return rc;
        }
    }
    return n;
}

static int number(struct pg *pg, const struct statement *st, int64_t *ret_n, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, st, NULL, false, &res, err);
    *ret_n = rc > 0 ? pg_int(res, 0, 0) : 0;
    return rc < 0 ? rc : 0;
}

/* In a transaction; the lock goes with it. */
static int take_turn(struct pg *pg, struct seal_state *s, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &seal_lock, NULL, false, &res, err), sealed = 0;
    if (rc < 0 || PQgetvalue(res, 0, 0)[0] != 't') {
        return rc < 0 ? rc : 0; /* somebody else does it */
    }
    if (s->xid > 0 && s->generation == pg->generation) {
        int64_t xmin;
        if ((rc = number(pg, &seal_horizon, &xmin, err)) < 0) {
            return rc;
        }
        if (xmin <= s->xid) {
            return 0; /* a transaction of that time is still there */
        }
        if ((sealed = seal_up_to(pg, s->pos, err)) < 0 || sealed == SEAL_TURN_MAX) {
            return sealed; /* there is more up to the same number */
        }
    }
    int64_t before = s->generation == pg->generation ? s->pos : -1;
    rc = number(pg, &last_number, &s->pos, err);
    s->xid = 0;
    if (rc == 0 && s->pos != before) { /* else there is nothing to wait for */
        rc = number(pg, &own_xid, &s->xid, err);
    }
    s->generation = pg->generation;
    return rc < 0 ? rc : sealed;
}

int store_seal(struct pg *pg, struct seal_state *state, struct err *err)
{
    int rc = pg_ensure(pg, err), sealed = 0;
    struct seal_state s = *state;
    rc = rc < 0 ? rc : pg_run(pg, &stmt_begin, NULL, false, NULL, err);
    rc = sealed = rc < 0 ? rc : take_turn(pg, &s, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
        return rc;
    }
    *state = s;
    return sealed;
}

int store_unsealed(struct pg *pg, int max, int64_t *ret_lines, int64_t *ret_oldest_ms,
                   struct err *err)
{
    assert(max > 0);
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &unsealed, &p, &res, err);
    if (rc < 0) {
        return rc;
    }
    *ret_lines = pg_int(res, 0, 0);
    *ret_oldest_ms = pg_int(res, 0, 1);
    return 0;
}
