/* Storage by the hour: once an hour is over (and a grace for transactions that were under way),
 * every object that was kept in it gets its line.
 *
 * An object is a kept snapshot, or the files that the jobs of one batch (a job without a batch:
 * that job) keep as artifacts, each distinct content once (under the first by name of the templates
 * whose jobs kept it so far: one that comes later changes no hour before it). What was deleted
 * meanwhile is found in storage_ended, so an hour can be computed again at any time and gives the
 * same; that is how the check looks at it. A line's id derives from meter, tenant, resource, hour
 * and part; the hour's row in storage_hours makes the whole exactly once. An hour in which rates
 * change is cut there. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/ledger_internal.h"

#define HOUR_MS 3600000
#define GRACE_MS 600000
#define PIECES_MAX 64 /* of an hour; rate cards of one tenant are an hour apart */

/* The hour after the last one charged, when it has been over for $1 ms at $2. When there is none, a
 * row for the hour before the ledger's schema came. Serialised by the lock. */
static const struct statement lock_hours = { "storage_lock",
                                             "SELECT pg_try_advisory_xact_lock(7310579512230483)" };
static const struct statement first_hour = {
    "storage_first",
    "INSERT INTO storage_hours (hour, lines) SELECT date_trunc('hour', applied_at AT TIME ZONE "
    "'UTC') AT TIME ZONE 'UTC' - interval '1 hour', 0 FROM schema_migrations WHERE version = 3 "
    "AND NOT EXISTS (SELECT FROM storage_hours)"
};
static const struct statement next_hour = {
    "storage_next",
    "SELECT (extract(epoch from max(hour)) * 1000)::int8 + 3600000 FROM storage_hours "
    "HAVING $2::int8 - extract(epoch from max(hour)) * 1000 >= 7200000 + $1::int8"
};
static const struct statement add_hour = {
    "storage_hour",
    "INSERT INTO storage_hours (hour, lines) VALUES (to_timestamp($1::int8 / 1000), "
    "$2::int)"
};

/* Of [$1, $2) ms: tenant, meter, resource, template, job, batch, byte-hours (byte-milliseconds /
 * 3600000, half to even) */
static const struct statement kept = {
    "storage_kept",
    "WITH snap AS (SELECT tenant, id::text AS resource, template, job_id, layer_bytes AS "
    "bytes, (extract(epoch from created_at) * 1000)::int8 AS a, $2::int8 AS b "
    "FROM snapshots UNION ALL SELECT tenant, resource, template, job_id, bytes, "
    "(extract(epoch from from_ts) * 1000)::int8, (extract(epoch from to_ts) * 1000)::int8 "
    "FROM storage_ended WHERE meter = 'snapshot_gib_hours' AND to_ts > to_timestamp($1::int8 "
    "/ 1000.0)), file AS (SELECT j.tenant, coalesce(j.batch_id, j.id)::text AS resource, "
    "j.template, f.sha256, f.size_bytes AS bytes, (extract(epoch from coalesce(f.stored_at, "
    "j.finished_at)) * "
    "1000)::int8 AS a, $2::int8 AS b FROM artifacts f "
    "JOIN jobs j ON j.id = f.job_id WHERE f.stored AND f.sha256 IS NOT NULL "
    "UNION ALL SELECT tenant, split_part(resource, '/', 1), template, split_part(resource, "
    "'/', 2), bytes, (extract(epoch from from_ts) * 1000)::int8, (extract(epoch from to_ts) "
    "* 1000)::int8 FROM storage_ended WHERE meter = 'artifact_gib_hours' AND to_ts > "
    "to_timestamp($1::int8 / 1000.0)), one AS (SELECT tenant, resource, min(template) AS "
    "template, max(bytes) AS bytes, min(a) AS a, max(b) AS b FROM file WHERE a < $2::int8 "
    "GROUP BY tenant, resource, sha256), "
    "all_kept AS (SELECT tenant, 'snapshot_gib_hours' AS meter, resource, template, job_id, "
    "bytes, a, b FROM snap UNION ALL SELECT tenant, 'artifact_gib_hours', resource, "
    "template, NULL, bytes, a, b FROM one), s AS (SELECT tenant, meter, resource, template, "
    "min(job_id::text)::uuid AS job_id, sum(bytes::numeric * (least(b, $2::int8) - "
    "greatest(a, $1::int8))) AS bms FROM all_kept "
    "WHERE a < $2::int8 AND b > $1::int8 AND least(b, $2::int8) > greatest(a, $1::int8) "
    "GROUP BY 1, 2, 3, 4), h AS (SELECT *, div(bms, 3600000) AS q, 2 * mod(bms, 3600000) AS "
    "r FROM s) SELECT h.tenant, h.meter, h.resource, h.template, coalesce(j.id::text, ''), "
    "coalesce(coalesce(j.batch_id, b.id)::text, ''), coalesce(j.labels, '{}')::text, (q + "
    "CASE WHEN r > 3600000 OR (r = 3600000 AND mod(q, 2) = 1) THEN 1 ELSE 0 END)::int8 "
    "FROM h LEFT JOIN jobs j ON j.id = coalesce(h.job_id, h.resource::uuid) "
    "LEFT JOIN batches b ON h.job_id IS NULL AND b.id = h.resource::uuid "
    "ORDER BY 1, 2, 3, 4"
};

/* $1 id, $2 tenant, $3 job, $4 meter, $5 template, $6 labels, $7 from, $8 to, $9 length, $10
 * amount, $11 price, $12 cost, $13 part, $14 period, $15 rate, $16 batch, $17 resource */
static const struct statement add_line = {
    "storage_line",
    "INSERT INTO usage_records (id, tenant, job_id, attempt, branch, meter, template, labels, "
    "from_ts, to_ts, measured_ms, charged_ms, amount, unit_price_nanousd, cost_nanousd, part, "
    "period, rate_id, batch_id, resource) VALUES ($1::uuid, $2, nullif($3, '')::uuid, 0, '', $4, "
    "$5, "
    "$6::jsonb, to_timestamp($7::int8 / 1000.0), to_timestamp($8::int8 / 1000.0), $9::int8, "
    "$9::int8, $10::int8, $11::int8, $12::int8, $13::int, $14::int, $15::int, nullif($16, "
    "'')::uuid, "
    "$17)"
};

static struct id storage_line_id(enum meter meter, const char *tenant, const char *resource,
                                 const char *template_name, int64_t hour_ms, int part)
{
    char hour[24], part_text[16], prefix[16];
    (void)snprintf(hour, sizeof hour, "%lld", (long long)hour_ms);
    (void)snprintf(part_text, sizeof part_text, "%d", part);
    const char *parts[] = { meter_word(meter), tenant, resource, template_name, hour, part_text };
    struct id id = id_derive(parts, 6);
    (void)snprintf(prefix, sizeof prefix, "%08llx-%04llx", (unsigned long long)hour_ms >> 16,
                   (unsigned long long)hour_ms & 0xffff);
    memcpy(id.text, prefix, 13); /* lines of an hour lie together */
    return id;
}

static int take_line(const struct rate_book *book, const PGresult *res, int row, int64_t hour_ms,
                     int64_t from_ms, int64_t to_ms, int part, storage_fn fn, void *ctx,
                     struct err *err)
{
    int meter = meter_parse(PQgetvalue(res, row, 1));
    assert(meter >= METER_COUNT);
    struct storage_line l = { .tenant = PQgetvalue(res, row, 0),
                              .resource = PQgetvalue(res, row, 2),
                              .template_name = PQgetvalue(res, row, 3),
                              .job_id = PQgetvalue(res, row, 4),
                              .batch_id = PQgetvalue(res, row, 5),
                              .labels = PQgetvalue(res, row, 6) };
    const struct rate_card *card = rate_book_at(book, l.tenant, from_ms);
    if (!card) {
        return err_set(err, ERR_INVALID, "there is no rate card for the storage of %s", l.tenant);
    }
    int64_t price = meter == METER_SNAPSHOT_GIB_HOURS ? card->snapshot_gib_hour_nanousd
                                                      : card->artifact_gib_hour_nanousd;
    int64_t amount = pg_int(res, row, 7);
    l.u = (struct usage_record){ .id = storage_line_id((enum meter)meter, l.tenant, l.resource,
                                                       l.template_name, hour_ms, part),
                                 .meter = (enum meter)meter,
                                 .part = part,
                                 .from_ms = from_ms,
                                 .to_ms = to_ms,
                                 .measured_ms = to_ms - from_ms,
                                 .charged_ms = to_ms - from_ms,
                                 .amount = amount,
                                 .unit_price_nanousd = price,
                                 .cost_nanousd = usage_storage_cost(price, amount),
                                 .rate_id = card->id,
                                 .period = usage_period(from_ms, book->closed_through) };
    return fn(ctx, &l, err);
}

int ledger_storage_hour(struct pg *pg, const struct rate_book *book, int64_t hour_ms, storage_fn fn,
                        void *ctx, struct err *err)
{
    int64_t end_ms = hour_ms + HOUR_MS, from_ms = hour_ms;
    int lines = 0;
    for (int part = 0; from_ms < end_ms; part++) {
        int64_t to_ms = end_ms;
        for (int i = 0; i < book->n && part < PIECES_MAX - 1; i++) {
            int64_t change = book->cards[i].valid_from_ms;
            to_ms = change > from_ms && change < to_ms ? change : to_ms;
        }
        struct pg_params p = { .n = 0 };
        pg_add_int(&p, from_ms);
        pg_add_int(&p, to_ms);
        cleanup_pgresult PGresult *res = NULL;
        int n = pg_run(pg, &kept, &p, false, &res, err);
        for (int i = 0; i < n; i++) {
            int rc = take_line(book, res, i, hour_ms, from_ms, to_ms, part, fn, ctx, err);
            if (rc < 0) {
                return rc;
            }
            lines++;
        }
        if (n < 0) {
            return n;
        }
        from_ms = to_ms;
    }
    return lines;
}

static int write_line(void *ctx, const struct storage_line *l, struct err *err)
{
    struct pg *pg = ctx;
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, l->u.id.text);
    pg_add_text(&p, l->tenant);
    pg_add_text(&p, l->job_id);
    pg_add_text(&p, meter_word(l->u.meter));
    pg_add_text(&p, l->template_name);
    pg_add_text(&p, l->labels);
    pg_add_int(&p, l->u.from_ms);
    pg_add_int(&p, l->u.to_ms);
    pg_add_int(&p, l->u.measured_ms);
    pg_add_int(&p, l->u.amount);
    pg_add_int(&p, l->u.unit_price_nanousd);
    pg_add_int(&p, l->u.cost_nanousd);
    pg_add_int(&p, l->u.part);
    pg_add_int(&p, l->u.period);
    pg_add_int(&p, l->u.rate_id);
    pg_add_text(&p, l->batch_id);
    pg_add_text(&p, l->resource);
    return pg_run(pg, &add_line, &p, false, NULL, err);
}

static int charge(struct pg *pg, int64_t hour_ms, struct err *err)
{
    const struct rate_book *book;
    ledger_forget(pg); /* once an hour */
    int rc = ledger_book(pg, &book, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params g = { .n = 0 };
    pg_add_int(&g, book->version);
    pg_add_int(&g, book->closed_through);
    rc = pg_run(pg, &stmt_ledger_guard, &g, false, NULL, err);
    int lines = rc < 0 ? rc : ledger_storage_hour(pg, book, hour_ms, write_line, pg, err);
    if (lines < 0) {
        return lines;
    }
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, hour_ms);
    pg_add_int(&p, lines);
    rc = pg_run(pg, &add_hour, &p, false, NULL, err);
    return rc < 0 ? rc : 1;
}

static int take_turn(struct pg *pg, int64_t now_ms, struct err *err)
{
    cleanup_pgresult PGresult *lock = NULL, *res = NULL;
    int rc = pg_run(pg, &lock_hours, NULL, false, &lock, err);
    if (rc < 0 || PQgetvalue(lock, 0, 0)[0] != 't') {
        return rc < 0 ? rc : 0;
    }
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, GRACE_MS);
    pg_add_int(&p, now_ms);
    rc = pg_run(pg, &first_hour, NULL, false, NULL, err);
    rc = rc < 0 ? rc : pg_run(pg, &next_hour, &p, false, &res, err);
    return rc <= 0 ? rc : charge(pg, pg_int(res, 0, 0), err);
}

int store_charge_storage(struct pg *pg, int64_t now_ms, struct err *err)
{
    int rc = pg_ensure(pg, err), charged = 0;
    rc = rc < 0
             ? rc
             : pg_exec(pg, "BEGIN; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on",
                       "begin", err);
    rc = charged = rc < 0 ? rc : take_turn(pg, now_ms, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
        return rc;
    }
    return charged;
}
