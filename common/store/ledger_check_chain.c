/* The chain against the lines, a tenant at a time: its lines as entries (a hundred bytes each, in
 * memory), then its seals in order. A seal's content says which lines belong to its range of
 * numbers, and what each was. The same pass adds up days and closed months. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/ledger_check_internal.h"

struct entry {
    int64_t pos;
    uint8_t bytes[CHAIN_ENTRY];
    char id[ID_TEXT_BYTES];
};
struct tenant_lines {
    struct entry *rows;
    size_t n, cap;
};

static const struct statement tenants = {
    "check_tenants", "SELECT tenant FROM usage_records UNION SELECT tenant FROM usage_seals UNION "
                     "SELECT tenant FROM usage_days ORDER BY 1"
};
static const struct statement sealed_to = { "check_sealed",
                                            "SELECT coalesce(max(last_pos), 0) FROM usage_seals" };
static const struct statement lines_of = {
    "check_lines", "SELECT u.pos, u.id, u.cost_nanousd, u.period, " LINE_CANONICAL
                   " FROM usage_records u WHERE u.tenant = $1 ORDER BY u.pos"
};
static const struct statement seals_of = {
    "check_seals",
    "SELECT seal, first_pos, last_pos, lines, cost_nanousd, encode(prev_hash, 'hex'), encode(hash, "
    "'hex'), encode(content, 'hex') FROM usage_seals WHERE tenant = $1 ORDER BY seal"
};
/* $1 tenant, $2 sealed up to */
static const struct statement days_of = {
    "check_days",
    "SELECT coalesce(d.day, l.day)::text, coalesce(d.lines, 0), coalesce(d.cost_nanousd, 0), "
    "coalesce(l.lines, 0), coalesce(l.cost, 0) FROM (SELECT * FROM usage_days WHERE tenant = $1) d "
    "FULL JOIN (SELECT (from_ts AT TIME ZONE 'UTC')::date AS day, count(*) AS lines, "
    "sum(cost_nanousd)::int8 AS cost FROM usage_records WHERE tenant = $1 AND pos <= $2::int8 "
    "GROUP BY "
    "1) l ON l.day = d.day WHERE d.lines IS DISTINCT FROM l.lines OR d.cost_nanousd IS DISTINCT "
    "FROM "
    "l.cost ORDER BY 1"
};
static const struct statement closed_months = { "check_months",
                                                "SELECT period, '' AS tenant, lines, cost_nanousd, "
                                                "encode(digest, 'hex') FROM usage_periods UNION "
                                                "ALL SELECT period, tenant, lines, cost_nanousd, "
                                                "encode(digest, 'hex') FROM usage_period_totals "
                                                "ORDER BY 1, 2" };

struct closed {
    int period;
    struct month month;
};
struct chain_check {
    struct check *c;
    const char *tenant;
    int64_t sealed;
    struct tenant_lines lines;
    struct closed *closed;
    int n_closed;
    /* along the seals */
    int64_t seal;
    size_t next; /* the first line that no seal before has covered */
    uint8_t prev[CHAIN_HASH];
    int64_t n_lines;
};

static int on_line(void *ctx, const PGresult *res, int row, struct err *err)
{
    struct chain_check *k = ctx;
    struct tenant_lines *l = &k->lines;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        l->rows = reallocarray(l->rows, l->cap, sizeof *l->rows);
        if (!l->rows) {
            abort();
        }
    }
    struct entry *e = &l->rows[l->n++];
    e->pos = pg_int(res, row, 0);
    pg_copy(res, row, 1, e->id, sizeof e->id);
    if (chain_entry(e->id, PQgetvalue(res, row, 4), (size_t)PQgetlength(res, row, 4), e->bytes) <
        0) {
        return err_set(err, ERR_DB, "usage_records: the id of a line is none");
    }
    int64_t cost = pg_int(res, row, 2);
    int period = (int)pg_int(res, row, 3);
    k->c->sums->lines++;
    k->c->sums->cost_nanousd += cost;
    k->c->sums->unsealed += e->pos > k->sealed;
    for (int i = 0; i < k->n_closed; i++) {
        if (k->closed[i].period == period) {
            month_add(&k->closed[i].month, k->tenant, cost, e->bytes + CHAIN_ID);
        }
    }
    return 0;
}

static int by_id(const void *a, const void *b)
{
    return memcmp(((const struct entry *)a)->bytes, ((const struct entry *)b)->bytes, CHAIN_ID);
}

static void id_text(const uint8_t *b, char out[ID_TEXT_BYTES])
{
    char hex[2 * CHAIN_ID + 1];
    chain_hex(b, CHAIN_ID, hex);
    size_t n = 0;
    for (int i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20) {
            out[n++] = '-';
        }
        out[n++] = hex[i];
    }
    out[n] = 0;
}

/* The lines [from, to) that lie in the seal's range against its content. */
static void compare(struct chain_check *k, const struct chain_seal *s, size_t from, size_t to)
{
    size_t n = to - from;
    cleanup_free struct entry *there = calloc(n + 1, sizeof *there);
    cleanup_free bool *seen = calloc(n + 1, sizeof *seen);
    if (!there || !seen) {
        abort();
    }
    memcpy(there, k->lines.rows + from, n * sizeof *there);
    qsort(there, n, sizeof *there, by_id);
    for (int i = 0; i < s->lines; i++) {
        struct entry want = { 0 };
        memcpy(want.bytes, s->content + (size_t)i * CHAIN_ENTRY, CHAIN_ENTRY);
        const struct entry *e = bsearch(&want, there, n, sizeof *there, by_id);
        id_text(want.bytes, want.id);
        if (!e) {
            check_found(k->c, "missing", want.id,
                        "sealed for %s (seal %lld) and not in the ledger any more", k->tenant,
                        (long long)s->seal);
        } else if (seen[e - there]) {
            check_found(k->c, "chain", want.id, "twice in seal %lld of %s", (long long)s->seal,
                        k->tenant);
        } else {
            seen[e - there] = true;
            if (memcmp(e->bytes, want.bytes, CHAIN_ENTRY) != 0) {
                check_found(k->c, "changed", want.id, "is not what was sealed for %s (seal %lld)",
                            k->tenant, (long long)s->seal);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!seen[i]) {
            check_found(k->c, "inserted", there[i].id,
                        "lies in the range of seal %lld of %s and was not there when it was sealed",
                        (long long)s->seal, k->tenant);
        }
    }
}

static void outside(struct chain_check *k, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (k->lines.rows[i].pos <= k->sealed) {
            check_found(k->c, "inserted", k->lines.rows[i].id,
                        "of %s has a number that was passed when lines were sealed, and no seal",
                        k->tenant);
        }
    }
}

static int on_seal(void *ctx, const PGresult *res, int row, struct err *err)
{
    struct chain_check *k = ctx;
    struct chain_seal s = { .tenant = k->tenant,
                            .seal = pg_int(res, row, 0),
                            .first_pos = pg_int(res, row, 1),
                            .last_pos = pg_int(res, row, 2),
                            .lines = (int)pg_int(res, row, 3),
                            .cost_nanousd = pg_int(res, row, 4) };
    size_t bytes = (size_t)(s.lines > 0 ? s.lines : 0) * CHAIN_ENTRY;
    cleanup_free uint8_t *content = malloc(bytes + 1);
    uint8_t hash[CHAIN_HASH], stored[CHAIN_HASH];
    if (!content) {
        abort();
    }
    if (s.lines < 1 || chain_unhex(PQgetvalue(res, row, 5), s.prev_hash, CHAIN_HASH) < 0 ||
        chain_unhex(PQgetvalue(res, row, 6), stored, CHAIN_HASH) < 0 ||
        chain_unhex(PQgetvalue(res, row, 7), content, bytes) < 0) {
        return err_set(err, ERR_DB, "usage_seals: seal %lld of %s is not one", (long long)s.seal,
                       k->tenant);
    }
    s.content = content;
    k->c->sums->seals++;
    if (s.seal != k->seal + 1) {
        check_found(k->c, "chain", NULL, "%s: seal %lld follows seal %lld", k->tenant,
                    (long long)s.seal, (long long)k->seal);
    }
    if (memcmp(s.prev_hash, k->prev, CHAIN_HASH) != 0) {
        check_found(k->c, "chain", NULL, "%s: seal %lld does not continue the one before it",
                    k->tenant, (long long)s.seal);
    }
    chain_seal_hash(&s, hash);
    if (memcmp(hash, stored, CHAIN_HASH) != 0) {
        check_found(k->c, "chain", NULL, "%s: seal %lld was changed", k->tenant, (long long)s.seal);
    }
    memcpy(k->prev, stored, CHAIN_HASH);
    k->seal = s.seal;
    k->n_lines += s.lines;
    const struct tenant_lines *l = &k->lines;
    size_t from = k->next;
    for (; from < l->n && l->rows[from].pos < s.first_pos; from++) {
    }
    outside(k, k->next, from);
    size_t to = from;
    for (; to < l->n && l->rows[to].pos <= s.last_pos; to++) {
    }
    compare(k, &s, from, to);
    k->next = to;
    return 0;
}

static int on_day(void *ctx, const PGresult *res, int row, struct err *err)
{
    (void)err;
    struct chain_check *k = ctx;
    check_found(k->c, "day", NULL,
                "%s, %s: the sum by day has %s lines and %s nano-dollars, the ledger %s and %s",
                k->tenant, PQgetvalue(res, row, 0), PQgetvalue(res, row, 1),
                PQgetvalue(res, row, 2), PQgetvalue(res, row, 3), PQgetvalue(res, row, 4));
    return 0;
}

static void take_head(struct chain_check *k)
{
    struct ledger_check *s = k->c->sums;
    if (k->seal == 0 || s->n_heads == CHECK_HEADS_MAX) {
        return;
    }
    s->heads = reallocarray(s->heads, (size_t)s->n_heads + 1, sizeof *s->heads);
    if (!s->heads) {
        abort();
    }
    struct ledger_head *h = &s->heads[s->n_heads++];
    *h = (struct ledger_head){ .seal = k->seal, .lines = k->n_lines };
    (void)snprintf(h->tenant, sizeof h->tenant, "%s", k->tenant);
    chain_hex(k->prev, CHAIN_HASH, h->hash);
}

static int check_tenant(struct chain_check *k, const char *tenant, struct err *err)
{
    k->tenant = tenant;
    k->lines.n = 0;
    k->next = 0;
    k->seal = k->n_lines = 0;
    memset(k->prev, 0, sizeof k->prev);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    int rc = ledger_rows(k->c->pg, &lines_of, &p, on_line, k, err);
    rc = rc < 0 ? rc : ledger_rows(k->c->pg, &seals_of, &p, on_seal, k, err);
    if (rc < 0) {
        return rc;
    }
    outside(k, k->next, k->lines.n);
    take_head(k);
    pg_add_int(&p, k->sealed);
    return ledger_rows(k->c->pg, &days_of, &p, on_day, k, err);
}

/* ---- closed months: what was written down against what the lines give ---- */

static const struct month_tenant *find_tenant(const struct month *m, const char *tenant)
{
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->tenants[i].tenant, tenant) == 0) {
            return &m->tenants[i];
        }
    }
    return NULL;
}

static void compare_month(struct chain_check *k, const PGresult *res, int row, struct month *m,
                          const uint8_t digest[CHAIN_HASH])
{
    const char *tenant = PQgetvalue(res, row, 1);
    int period = (int)pg_int(res, row, 0);
    const struct month_tenant *t = *tenant ? find_tenant(m, tenant) : NULL;
    int64_t lines = *tenant ? (t ? t->digest.lines : 0) : m->lines;
    int64_t cost = *tenant ? (t ? t->digest.cost_nanousd : 0) : m->cost_nanousd;
    char hex[2 * CHAIN_HASH + 1] = "";
    if (!*tenant || t) {
        chain_hex(*tenant ? t->hash : digest, CHAIN_HASH, hex);
    }
    if (lines != pg_int(res, row, 2) || cost != pg_int(res, row, 3) ||
        strcmp(hex, PQgetvalue(res, row, 4)) != 0) {
        check_found(
            k->c, "month", NULL,
            "%d-%02d%s%s was closed with %s lines, %s nano-dollars, digest %.16s; the ledger "
            "gives %lld, %lld, %.16s",
            period / 100, period % 100, *tenant ? " of " : "", tenant, PQgetvalue(res, row, 2),
            PQgetvalue(res, row, 3), PQgetvalue(res, row, 4), (long long)lines, (long long)cost,
            hex);
    }
}

static int check_months(struct chain_check *k, const PGresult *res)
{
    int n = PQntuples(res);
    for (int i = 0; i < k->n_closed; i++) {
        uint8_t digest[CHAIN_HASH];
        struct month *m = &k->closed[i].month;
        month_end(m, digest);
        for (int row = 0; row < n; row++) {
            if (pg_int(res, row, 0) == k->closed[i].period) {
                compare_month(k, res, row, m, digest);
            }
        }
        month_done(m);
    }
    return 0;
}

int check_chain(struct check *c, struct err *err)
{
    struct chain_check k = { .c = c };
    cleanup_pgresult PGresult *who = NULL, *sealed = NULL, *months = NULL;
    int n = pg_run(c->pg, &tenants, NULL, false, &who, err);
    int rc = n < 0 ? n : pg_run(c->pg, &sealed_to, NULL, false, &sealed, err);
    rc = rc < 0 ? rc : pg_run(c->pg, &closed_months, NULL, false, &months, err);
    if (rc < 0) {
        return rc;
    }
    k.sealed = pg_int(sealed, 0, 0);
    k.closed = calloc((size_t)rc + 1, sizeof *k.closed);
    if (!k.closed) {
        abort();
    }
    for (int i = 0; i < rc; i++) {
        if (PQgetvalue(months, i, 1)[0] == 0) {
            k.closed[k.n_closed++].period = (int)pg_int(months, i, 0);
        }
    }
    c->sums->months = k.n_closed;
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = check_tenant(&k, PQgetvalue(who, i, 0), err);
    }
    rc = rc < 0 ? rc : check_months(&k, months);
    free(k.closed);
    free(k.lines.rows);
    return rc < 0 ? rc : 0;
}
