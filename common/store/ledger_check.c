/* The check's frame, and its smaller parts: storage, corrections, reports. */
#include "common/store/ledger_check.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/ledger_check_internal.h"
#include "common/store/usage.h"

#define HOURS_MAX 1000 /* of storage that are computed again, the latest */

void check_found(struct check *c, const char *what, const char *line, const char *fmt, ...)
{
    struct ledger_finding f = { .what = what };
    (void)snprintf(f.line, sizeof f.line, "%s", line ? line : "");
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(f.text, sizeof f.text, fmt, ap);
    va_end(ap);
    c->sums->findings++;
    c->fn(c->ctx, &f);
}

/* ---- storage: the hours again ---- */

static const struct statement hours = {
    "check_hours",
    "SELECT (extract(epoch from hour) * 1000)::int8, lines FROM storage_hours WHERE "
    "lines > 0 OR hour > (SELECT min(hour) FROM storage_hours) ORDER BY hour DESC LIMIT "
    "$1::int"
};
/* $1 hour ms */
static const struct statement hour_lines = {
    "check_hour_lines",
    "SELECT u.id, u.amount, u.unit_price_nanousd, u.cost_nanousd, u.tenant, u.resource, u.part, "
    "u.rate_id, "
    "u.meter FROM usage_records u WHERE u.meter IN ('snapshot_gib_hours','artifact_gib_hours') AND "
    "u.kind = 'usage' AND u.from_ts >= to_timestamp($1::int8 / 1000) AND u.from_ts < "
    "to_timestamp($1::int8 / 1000) + interval '1 hour' ORDER BY u.id"
};
static const struct statement hourless = { "check_hourless",
                                           "SELECT u.id FROM usage_records u WHERE u.meter IN "
                                           "('snapshot_gib_hours','artifact_gib_hours') AND "
                                           "u.kind = 'usage' AND NOT EXISTS (SELECT FROM "
                                           "storage_hours h WHERE h.hour <= u.from_ts AND h.hour + "
                                           "interval '1 hour' > u.from_ts)" };

struct hour_check {
    struct check *c;
    const PGresult *lines;
    int n;
    bool *seen;
};

static int on_kept(void *ctx, const struct storage_line *l, struct err *err)
{
    (void)err;
    struct hour_check *h = ctx;
    int low = 0, high = h->n;
    while (low < high) {
        int mid = (low + high) / 2;
        int d = strcmp(PQgetvalue(h->lines, mid, 0), l->u.id.text);
        if (d == 0) {
            h->seen[mid] = true;
            if (pg_int(h->lines, mid, 1) != l->u.amount ||
                pg_int(h->lines, mid, 2) != l->u.unit_price_nanousd ||
                pg_int(h->lines, mid, 3) != l->u.cost_nanousd) {
                check_found(
                    h->c, "disagrees", l->u.id.text,
                    "%s of %s: %s byte-hours at %s cost %s, by what was kept %lld at %lld cost "
                    "%lld",
                    meter_word(l->u.meter), l->resource, PQgetvalue(h->lines, mid, 1),
                    PQgetvalue(h->lines, mid, 2), PQgetvalue(h->lines, mid, 3),
                    (long long)l->u.amount, (long long)l->u.unit_price_nanousd,
                    (long long)l->u.cost_nanousd);
            }
            return 0;
        }
        if (d < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    check_found(h->c, "unbilled", l->u.id.text, "%s of %s is not in the ledger",
                meter_word(l->u.meter), l->resource);
    return 0;
}

static int check_hour(struct check *c, int64_t hour_ms, int64_t lines, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, hour_ms);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(c->pg, &hour_lines, &p, false, &res, err);
    if (n < 0) {
        return n;
    }
    struct hour_check h = { .c = c, .lines = res, .n = n, .seen = calloc((size_t)n + 1, 1) };
    if (!h.seen) {
        abort();
    }
    int rc = ledger_storage_hour(c->pg, &c->book, hour_ms, on_kept, &h, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        if (!h.seen[i]) {
            check_found(c, "unfounded", PQgetvalue(res, i, 0), "%s: nothing of the kind was kept",
                        PQgetvalue(res, i, 5));
        }
    }
    if (rc >= 0 && n != lines) {
        check_found(c, "storage", NULL, "an hour was charged with %lld lines and has %d",
                    (long long)lines, n);
    }
    free(h.seen);
    c->sums->hours++;
    return rc;
}

static int on_hourless(void *ctx, const PGresult *res, int row, struct err *err)
{
    (void)err;
    check_found(ctx, "unfounded", PQgetvalue(res, row, 0),
                "of storage, in an hour that was not charged");
    return 0;
}

static int check_storage(struct check *c, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, HOURS_MAX);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(c->pg, &hours, &p, false, &res, err), rc = n;
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = check_hour(c, pg_int(res, i, 0), pg_int(res, i, 1), err);
    }
    return rc < 0 ? rc : ledger_rows(c->pg, &hourless, NULL, on_hourless, c, err);
}

/* ---- corrections ---- */

static const struct statement corrections = {
    "check_corrections",
    "SELECT a.id, a.corrects, CASE WHEN u.id IS NULL THEN 'corrects a line that is not there' WHEN "
    "u.kind "
    "<> 'usage' THEN 'corrects a correction' WHEN u.tenant <> a.tenant THEN 'corrects a line of "
    "another "
    "tenant' WHEN a.cost_nanousd >= 0 THEN 'gives nothing back' WHEN u.cost_nanousd + (SELECT "
    "sum(x.cost_nanousd) FROM usage_records x WHERE x.corrects = u.id) < 0 THEN 'gives back more "
    "than the "
    "line cost' END AS fault FROM usage_records a LEFT JOIN usage_records u ON u.id = a.corrects "
    "WHERE "
    "a.kind = 'adjustment'"
};

static int on_correction(void *ctx, const PGresult *res, int row, struct err *err)
{
    (void)err;
    if (!PQgetisnull(res, row, 2)) {
        check_found(ctx, "correction", PQgetvalue(res, row, 0), "%s (%s)", PQgetvalue(res, row, 2),
                    PQgetvalue(res, row, 1));
    }
    return 0;
}

/* ---- reports: every grouping adds up to the ledger ---- */

struct total {
    int64_t lines, cost, parts;
};

static int on_sum(void *ctx, const struct usage_sum *s, struct err *err)
{
    (void)err;
    struct total *t = ctx;
    t->lines += s->lines;
    t->cost += s->cost_nanousd;
    t->parts += s->sandbox_nanousd + s->storage_nanousd + s->adjusted_nanousd;
    return 0;
}

static int check_reports(struct check *c, struct err *err)
{
    for (int g = 0; g < USAGE_GROUP_COUNT; g++) {
        struct total t = { 0 };
        struct usage_query q = { .by = (enum usage_group)g, .label = "suite" };
        int rc = store_usage(c->pg, &q, on_sum, &t, err);
        if (rc < 0) {
            return rc;
        }
        if (t.lines != c->sums->lines || t.cost != c->sums->cost_nanousd || t.parts != t.cost) {
            check_found(
                c, "report", NULL,
                "by %s: %lld lines, %lld nano-dollars (%lld in parts); the ledger has %lld, %lld",
                usage_group_word((enum usage_group)g), (long long)t.lines, (long long)t.cost,
                (long long)t.parts, (long long)c->sums->lines, (long long)c->sums->cost_nanousd);
        }
    }
    return 0;
}

int store_ledger_check(struct pg *pg, finding_fn fn, void *ctx, struct ledger_check *ret,
                       struct err *err)
{
    *ret = (struct ledger_check){ 0 };
    struct check c = { .pg = pg, .fn = fn, .ctx = ctx, .sums = ret };
    int rc = ledger_read_begin(pg, err);
    rc = rc < 0 ? rc : ledger_read_book(pg, &c.book, err);
    rc = rc < 0 ? rc : check_chain(&c, err);
    rc = rc < 0 ? rc : check_jobs(&c, err);
    rc = rc < 0 ? rc : check_storage(&c, err);
    rc = rc < 0 ? rc : ledger_rows(pg, &corrections, NULL, on_correction, &c, err);
    rc = rc < 0 ? rc : check_reports(&c, err);
    pg_rollback(pg); /* nothing was written */
    rate_book_done(&c.book);
    if (rc < 0) {
        free(ret->heads);
        ret->heads = NULL;
        ret->n_heads = 0;
        return rc;
    }
    return 0;
}
