/* Reading the ledger: sums over the lines, and the lines themselves. They are all that a bill is
 * made of, so every figure comes from them and from nothing that was added up before: a report that
 * is slower (docs/billing.md has the figures) and cannot disagree.
 *
 * A billed job has exactly one line with the meter vcpu_seconds, no branch and part 0 for each try,
 * and only its last can be accepted: jobs are counted by the first of these lines, so counts add up
 * over any grouping. */
#include "common/store/usage.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/ledger_internal.h"

#define CPU "meter = 'vcpu_seconds'"
#define MEM "meter = 'gib_seconds'"
#define TRY_LINE(t) t CPU " AND " t "branch = '' AND " t "part = 0 AND " t "kind = 'usage'"
#define JOB_LINE TRY_LINE("u.") " AND again.line IS NULL"
#define ACCEPTED TRY_LINE("u.") " AND verdict = 'accepted'"
/* Such lines that have one before them: few, with an index of their own, so that the sums stay one
 * parallel scan. */
#define AGAIN                                                                                      \
    " LEFT JOIN (SELECT l.id AS line FROM usage_records l WHERE l.attempt > 1 AND " TRY_LINE(      \
        "l.") " AND EXISTS (SELECT FROM usage_records b WHERE b.job_id = l.job_id AND b.attempt <" \
              " l.attempt AND " TRY_LINE("b.") ")) again ON again.line = u.id"
#define SANDBOX "meter IN ('vcpu_seconds','gib_seconds')"

/* $1 tenant or NULL, $2 from, $3 to (0: none), $4 period (0: any), $5 limit (NULL: none) */
#define LINES " FROM usage_records u"
#define WHERE                                                                                      \
    " WHERE ($1::text IS NULL OR tenant = $1)"                                                     \
    " AND ($2::int8 = 0 OR from_ts >= to_timestamp($2::int8 / 1000.0))"                            \
    " AND ($3::int8 = 0 OR from_ts < to_timestamp($3::int8 / 1000.0))"                             \
    " AND ($4::int = 0 OR period = $4::int)"
#define SUMS                                                                                       \
    " count(*), count(*) FILTER (WHERE " JOB_LINE "),"                                             \
    " count(*) FILTER (WHERE " ACCEPTED "),"                                                       \
    " coalesce(sum(measured_ms) FILTER (WHERE " CPU "), 0)::int8,"                                 \
    " coalesce(sum(charged_ms) FILTER (WHERE " CPU "), 0)::int8,"                                  \
    " coalesce(sum(charged_ms * amount) FILTER (WHERE " CPU "), 0)::int8,"                         \
    " coalesce(sum(charged_ms * amount) FILTER (WHERE " MEM "), 0)::int8,"                         \
    " coalesce(sum(amount) FILTER (WHERE meter = 'snapshot_gib_hours'), 0)::int8,"                 \
    " coalesce(sum(amount) FILTER (WHERE meter = 'artifact_gib_hours'), 0)::int8,"                 \
    " coalesce(sum(cost_nanousd) FILTER (WHERE kind = 'usage' AND " SANDBOX "), 0)::int8,"         \
    " coalesce(sum(cost_nanousd) FILTER (WHERE kind = 'usage' AND NOT " SANDBOX "), 0)::int8,"     \
    " coalesce(sum(cost_nanousd) FILTER (WHERE kind = 'adjustment'), 0)::int8,"                    \
    " sum(cost_nanousd)::int8 AS cost" LINES AGAIN WHERE " GROUP BY 1"
#define BY_TIME                                                                                    \
    " ORDER BY CASE WHEN $5::int8 IS NULL THEN 0 ELSE -sum(cost_nanousd) END, 1 LIMIT $5::int8"
#define BY_COST " ORDER BY cost DESC, 1 LIMIT $5::int8"
#define UTC(format) "to_char(from_ts AT TIME ZONE 'UTC', '" format "')"

static const struct statement by_group[USAGE_GROUP_COUNT] = {
    [USAGE_BY_DAY] = { "usage_by_day", "SELECT " UTC("YYYY-MM-DD") "," SUMS BY_TIME },
    [USAGE_BY_HOUR] = { "usage_by_hour", "SELECT " UTC("YYYY-MM-DD\"T\"HH24") "," SUMS BY_TIME },
    [USAGE_BY_MONTH] = { "usage_by_month", "SELECT (period / 100) || '-' || to_char(period % 100, "
                                           "'FM00')," SUMS BY_TIME },
    [USAGE_BY_TENANT] = { "usage_by_tenant", "SELECT tenant," SUMS BY_COST },
    [USAGE_BY_TEMPLATE] = { "usage_by_template",
                            "SELECT split_part(template, '@', 1)," SUMS BY_COST },
    [USAGE_BY_BATCH] = { "usage_by_batch", "SELECT coalesce(batch_id::text, '-')," SUMS BY_COST },
    [USAGE_BY_JOB] = { "usage_by_job", "SELECT coalesce(job_id::text, '-')," SUMS BY_COST },
    [USAGE_BY_LABEL] = { "usage_by_label", "SELECT CASE WHEN labels ? $6 THEN $6 || '=' || (labels "
                                           "->> $6) ELSE '(no ' || $6 || ')' END," SUMS BY_COST },
};

static const struct statement all_lines = {
    "usage_lines",
    "SELECT u.id, u.tenant, u.job_id, u.branch, u.template, u.labels, u.batch_id, u.verdict, "
    "u.resource, u.corrects, u.reason, u.meter, u.kind, u.attempt, u.part, u.period, "
    "u.rate_id, " PG_MS("u.from_ts") ", " PG_MS("u.to_ts") //
    ", u.measured_ms, u.charged_ms, u.amount, u.unit_price_nanousd, u.cost_nanousd,"
    " CASE WHEN u.kind = 'adjustment' THEN (SELECT c.period < u.period FROM usage_records c WHERE "
    "c.id = u.corrects) ELSE u.period > to_char(u.from_ts AT TIME ZONE 'UTC', 'YYYYMM')::int END,"
    " EXISTS (SELECT FROM usage_periods p WHERE p.period = u.period)" LINES WHERE " ORDER BY u.pos"
};

static const char *const group_words[USAGE_GROUP_COUNT] = {
#define USAGE_GROUP(name, word) [USAGE_BY_##name] = word,
    USAGE_GROUPS
#undef USAGE_GROUP
};

const char *usage_group_word(enum usage_group g)
{
    assert((int)g >= 0 && g < USAGE_GROUP_COUNT);
    return group_words[g];
}

int usage_group_parse(const char *word)
{
    for (int g = 0; g < USAGE_GROUP_COUNT; g++) {
        if (strcmp(word, group_words[g]) == 0) {
            return g;
        }
    }
    return -1;
}

static void query_params(struct pg_params *p, const struct usage_query *q)
{
    pg_add_text(p, q->tenant);
    pg_add_int(p, q->from_ms);
    pg_add_int(p, q->to_ms);
    pg_add_int(p, q->period);
}

static int sum_row(const PGresult *res, int row, usage_sum_fn fn, void *ctx, struct err *err)
{
    struct usage_sum s;
    pg_copy(res, row, 0, s.key, sizeof s.key);
    int64_t *const fields[] = { &s.lines,
                                &s.jobs,
                                &s.accepted,
                                &s.measured_ms,
                                &s.charged_ms,
                                &s.vcpu_ms,
                                &s.mib_ms,
                                &s.snapshot_byte_hours,
                                &s.artifact_byte_hours,
                                &s.sandbox_nanousd,
                                &s.storage_nanousd,
                                &s.adjusted_nanousd,
                                &s.cost_nanousd };
    for (int i = 0; i < (int)(sizeof fields / sizeof fields[0]); i++) {
        *fields[i] = pg_int(res, row, i + 1);
    }
    return fn(ctx, &s, err);
}

struct sums {
    usage_sum_fn fn;
    void *ctx;
};

static int on_sum(void *ctx, const PGresult *res, int row, struct err *err)
{
    const struct sums *s = ctx;
    return sum_row(res, row, s->fn, s->ctx, err);
}

int store_usage(struct pg *pg, const struct usage_query *q, usage_sum_fn fn, void *ctx,
                struct err *err)
{
    bool label = q->by == USAGE_BY_LABEL;
    if (label && (!q->label || !*q->label || strlen(q->label) > JOB_LABEL_KEY_MAX)) {
        return err_set(err, ERR_INVALID, "label: a key of 1 to %d bytes is needed",
                       JOB_LABEL_KEY_MAX);
    }
    struct pg_params p = { .n = 0 };
    query_params(&p, q);
    if (q->top > 0) {
        pg_add_int(&p, q->top);
    } else {
        pg_add_text(&p, NULL);
    }
    if (label) {
        pg_add_text(&p, q->label);
    }
    struct sums s = { .fn = fn, .ctx = ctx };
    return ledger_scan(pg, &by_group[q->by], &p, on_sum, &s, err);
}

static const char *text(const PGresult *res, int row, int col)
{
    return PQgetvalue(res, row, col); /* "" for NULL */
}

struct lines {
    usage_line_fn fn;
    void *ctx;
};

static int on_line(void *ctx, const PGresult *res, int row, struct err *err)
{
    const struct lines *l = ctx;
    int meter = meter_parse(text(res, row, 11));
    struct usage_line u = { .id = text(res, row, 0),
                            .tenant = text(res, row, 1),
                            .job_id = text(res, row, 2),
                            .branch = text(res, row, 3),
                            .template_name = text(res, row, 4),
                            .labels = text(res, row, 5),
                            .batch_id = text(res, row, 6),
                            .verdict = text(res, row, 7),
                            .resource = text(res, row, 8),
                            .corrects = text(res, row, 9),
                            .reason = text(res, row, 10),
                            .meter = (enum meter)meter,
                            .adjustment = strcmp(text(res, row, 12), "adjustment") == 0,
                            .attempt = (int)pg_int(res, row, 13),
                            .part = (int)pg_int(res, row, 14),
                            .period = (int)pg_int(res, row, 15),
                            .rate_id = (int)pg_int(res, row, 16),
                            .from_ms = pg_int(res, row, 17),
                            .to_ms = pg_int(res, row, 18),
                            .measured_ms = pg_int(res, row, 19),
                            .charged_ms = pg_int(res, row, 20),
                            .amount = pg_int(res, row, 21),
                            .unit_price_nanousd = pg_int(res, row, 22),
                            .cost_nanousd = pg_int(res, row, 23),
                            .corrects_closed = text(res, row, 24)[0] == 't',
                            .closed = text(res, row, 25)[0] == 't' };
    if (meter < 0) {
        return err_set(err, ERR_DB, "line %s has a meter that is not known: %.40s", u.id,
                       text(res, row, 11));
    }
    return l->fn(l->ctx, &u, err);
}

int store_usage_lines(struct pg *pg, const struct usage_query *q, usage_line_fn fn, void *ctx,
                      struct err *err)
{
    struct pg_params p = { .n = 0 };
    query_params(&p, q);
    struct lines l = { .fn = fn, .ctx = ctx };
    return ledger_scan(pg, &all_lines, &p, on_line, &l, err);
}

/* $1 tenant or NULL, $2 from, $3 to of the attempt's end */
static const struct statement failed_attempts = {
    "overhead_attempts",
    "SELECT a.outcome, count(*), coalesce(sum(a.overhead_ms), 0)::int8 FROM attempts a JOIN jobs j "
    "ON j.id = a.job_id WHERE a.outcome <> 'committed' AND ($1::text IS NULL OR j.tenant = $1)"
    " AND ($2::int8 = 0 OR a.ended_at >= to_timestamp($2::int8 / 1000.0))"
    " AND ($3::int8 = 0 OR a.ended_at < to_timestamp($3::int8 / 1000.0)) GROUP BY 1 ORDER BY 1"
};
/* The same of sandboxes that were used and not billed: the time stands in the detail, which is ours
 * and ASCII. */
static const struct statement unbilled = {
    "overhead_unbilled",
    "SELECT 'unbilled ' || r.verdict, count(*), coalesce(sum(substring(r.detail from "
    "'\"measured_ms\":([0-9]{1,15})')::int8), 0)::int8 FROM results r JOIN jobs j ON j.id = "
    "r.job_id"
    " WHERE NOT EXISTS (SELECT FROM usage_records u WHERE u.job_id = r.job_id)"
    " AND r.detail !~ '\"measured_ms\":0[^0-9]' AND r.detail ~ '\"measured_ms\":'"
    " AND ($1::text IS NULL OR j.tenant = $1)"
    " AND ($2::int8 = 0 OR r.created_at >= to_timestamp($2::int8 / 1000.0))"
    " AND ($3::int8 = 0 OR r.created_at < to_timestamp($3::int8 / 1000.0)) GROUP BY 1 ORDER BY 1"
};

struct overheads {
    struct overhead_row *rows;
    int n;
};

static int on_overhead(void *ctx, const PGresult *res, int row, struct err *err)
{
    (void)err;
    struct overheads *o = ctx;
    if (o->n < OVERHEAD_ROWS_MAX) {
        struct overhead_row *r = &o->rows[o->n++];
        pg_copy(res, row, 0, r->what, sizeof r->what);
        r->count = pg_int(res, row, 1);
        r->ms = pg_int(res, row, 2);
    }
    return 0;
}

int store_overhead(struct pg *pg, const struct usage_query *q,
                   struct overhead_row ret_rows[OVERHEAD_ROWS_MAX], struct err *err)
{
    struct overheads o = { .rows = ret_rows };
    const struct statement *const both[] = { &failed_attempts, &unbilled };
    for (int i = 0; i < 2; i++) {
        struct pg_params p = { .n = 0 };
        pg_add_text(&p, q->tenant);
        pg_add_int(&p, q->from_ms);
        pg_add_int(&p, q->to_ms);
        int rc = ledger_scan(pg, both[i], &p, on_overhead, &o, err);
        if (rc < 0) {
            return rc;
        }
    }
    return o.n;
}
