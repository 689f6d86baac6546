/* The rows of a commit, for many jobs by one statement: each column is an array.
 *
 * A statement a job spent most of its time in starting and ending executor nodes; the same rows by
 * unnest() cost a fifth of it. The join must look each job up by its id, in the order given:
 * pg.c turns sequential and bitmap scans off, and the guard on the state is written so that the
 * partial index of jobs in flight does not fit it (a plan made while that index was empty would
 * read all of it for every batch). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/commit_internal.h"
#include "common/store/pg_array.h"

#define STEP_BYTES_MAX (32u << 20) /* output in one statement */

/* Each array has one value an item. Those of values with a length of their own are unnested: that
 * costs 0.25 us a value, for each goes through a place of its own where rows are put together.
 * Those of numbers and ids are looked up by the row's number, which is a multiplication. An item's
 * usage lines are those of its first part, from_ms NULL: none; they are made from what the UPDATE
 * returned, so that nothing is joined. */
const struct statement stmt_commit_rows = {
    "commit_rows",
    "WITH u AS (UPDATE jobs j SET state = i.state, verdict = i.verdict, finished_at ="
    "  clock_timestamp()"
    "  FROM unnest($1::uuid[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[],"
    "  $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::text[], $13::text[])"
    "  WITH ORDINALITY i (id, state, verdict, detail, out_head, out_tail, err_head, err_tail,"
    "  setup_out, setup_err, template, worker, k)"
    "  WHERE j.id = i.id AND j.attempt = ($2::int[])[i.k]"
    "  AND j.state || '' IN ('scheduled','running')"
    "  RETURNING j.id, j.attempt, j.tenant, j.labels, j.batch_id,"
    "  coalesce(i.template, j.template) AS job_template, i.verdict, i.detail, i.out_head,"
    "  i.out_tail, i.err_head, i.err_tail, i.setup_out, i.setup_err, i.worker,"
    "  ($14::int8[])[i.k] AS from_ms, ($15::int8[])[i.k] AS to_ms,"
    "  ($16::int8[])[i.k] AS measured_ms, ($17::int8[])[i.k] AS charged_ms,"
    "  ($18::int[])[i.k] AS rate_id, ($19::int[])[i.k] AS period,"
    "  ($20::uuid[])[i.k] AS cpu, ($21::int8[])[i.k] AS cpu_amount,"
    "  ($22::int8[])[i.k] AS cpu_price, ($23::int8[])[i.k] AS cpu_cost,"
    "  ($24::uuid[])[i.k] AS gib, ($25::int8[])[i.k] AS gib_amount,"
    "  ($26::int8[])[i.k] AS gib_price, ($27::int8[])[i.k] AS gib_cost),"
    " r AS (INSERT INTO results (job_id, attempt, verdict, detail, stdout_head, stdout_tail,"
    "   stderr_head, stderr_tail, setup_stdout, setup_stderr)"
    "  SELECT id, attempt, verdict, detail, out_head, out_tail, err_head, err_tail, setup_out,"
    "   setup_err FROM u),"
    " a AS (INSERT INTO attempts (job_id, attempt, worker, outcome)"
    "  SELECT id, attempt, worker, 'committed' FROM u),"
    " g AS (INSERT INTO usage_records (id, tenant, job_id, attempt, meter, template, labels,"
    "   batch_id, verdict, from_ts, to_ts, measured_ms, charged_ms, rate_id, period, amount,"
    "   unit_price_nanousd, cost_nanousd)"
    "  SELECT m.id, u.tenant, u.id, u.attempt, m.meter, u.job_template, u.labels, u.batch_id,"
    "   u.verdict, to_timestamp(u.from_ms / 1000.0::float8),"
    "   to_timestamp(u.to_ms / 1000.0::float8), u.measured_ms, u.charged_ms, u.rate_id, u.period,"
    "   m.amount, m.price, m.cost FROM u CROSS JOIN LATERAL (VALUES"
    "   (u.cpu, 'vcpu_seconds', u.cpu_amount, u.cpu_price, u.cpu_cost),"
    "   (u.gib, 'gib_seconds', u.gib_amount, u.gib_price, u.gib_cost))"
    "   m (id, meter, amount, price, cost) WHERE u.from_ms IS NOT NULL)"
    " SELECT id::text FROM u"
};

enum column {
    C_ID,
    C_ATTEMPT,
    C_STATE,
    C_VERDICT,
    C_DETAIL,
    C_OUT_HEAD,
    C_OUT_TAIL,
    C_ERR_HEAD,
    C_ERR_TAIL,
    C_SETUP_OUT,
    C_SETUP_ERR,
    C_TEMPLATE,
    C_WORKER,
    U_FROM,
    U_TO,
    U_MEASURED,
    U_CHARGED,
    U_RATE,
    U_PERIOD,
    U_CPU, /* of the first meter, then of the second: U_LINE columns */
    U_CPU_AMOUNT,
    U_CPU_PRICE,
    U_CPU_COST,
    U_GIB,
    U_GIB_AMOUNT,
    U_GIB_PRICE,
    U_GIB_COST,
    COLUMN_COUNT
};
#define U_LINE (U_GIB - U_CPU)
static_assert(METER_COUNT == 2 && METER_VCPU_SECONDS == 0 && METER_GIB_SECONDS == 1,
              "the statement writes these two lines");
static const enum pg_element types[COLUMN_COUNT] = {
    [C_ID] = PG_UUID,         [C_ATTEMPT] = PG_INT4,    [C_STATE] = PG_TEXT,
    [C_VERDICT] = PG_TEXT,    [C_DETAIL] = PG_TEXT,     [C_OUT_HEAD] = PG_BYTEA,
    [C_OUT_TAIL] = PG_BYTEA,  [C_ERR_HEAD] = PG_BYTEA,  [C_ERR_TAIL] = PG_BYTEA,
    [C_SETUP_OUT] = PG_BYTEA, [C_SETUP_ERR] = PG_BYTEA, [C_TEMPLATE] = PG_TEXT,
    [C_WORKER] = PG_TEXT,     [U_FROM] = PG_INT8,       [U_TO] = PG_INT8,
    [U_MEASURED] = PG_INT8,   [U_CHARGED] = PG_INT8,    [U_RATE] = PG_INT4,
    [U_PERIOD] = PG_INT4,     [U_CPU] = PG_UUID,        [U_CPU_AMOUNT] = PG_INT8,
    [U_CPU_PRICE] = PG_INT8,  [U_CPU_COST] = PG_INT8,   [U_GIB] = PG_UUID,
    [U_GIB_AMOUNT] = PG_INT8, [U_GIB_PRICE] = PG_INT8,  [U_GIB_COST] = PG_INT8,
};

static const char *final_state(enum verdict v)
{
    return job_state_word(v == VERDICT_INFRA_ERROR ? STATE_DEAD
                          : v == VERDICT_CANCELLED ? STATE_CANCELLED
                                                   : STATE_COMPLETED);
}

static const struct bytes *output(const struct job_result *r, int column)
{
    const struct bytes *const all[] = { &r->run.out.head,     &r->run.out.tail,
                                        &r->run.err_out.head, &r->run.err_out.tail,
                                        &r->setup.out.head,   &r->setup.err_out.head };
    return all[column - C_OUT_HEAD];
}

static int add_no_usage(struct pg_array *c, struct err *err)
{
    int rc = 0;
    for (int k = U_FROM; k < COLUMN_COUNT && rc == 0; k++) {
        rc = pg_array_add(&c[k], NULL, 0, err);
    }
    return rc;
}

/* The lines of one part. */
static int add_usage(struct pg_array *c, const struct usage_record u[METER_COUNT], struct err *err)
{
    int rc = pg_array_add_int(&c[U_FROM], u->from_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_TO], u->to_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_MEASURED], u->measured_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_CHARGED], u->charged_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_RATE], u->rate_id, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_PERIOD], u->period, err);
    for (int m = 0; m < METER_COUNT; m++) {
        struct pg_array *line = c + U_CPU + m * U_LINE;
        assert((int)u[m].meter == m && u[m].part == 0);
        rc = rc < 0 ? rc : pg_array_add_uuid(&line[0], u[m].id.text, err);
        rc = rc < 0 ? rc : pg_array_add_int(&line[1], u[m].amount, err);
        rc = rc < 0 ? rc : pg_array_add_int(&line[2], u[m].unit_price_nanousd, err);
        rc = rc < 0 ? rc : pg_array_add_int(&line[3], u[m].cost_nanousd, err);
    }
    return rc;
}

/* Returns how many usage lines the item has. */
static int add_item(struct pg *pg, struct pg_array *c, const struct commit_item *item,
                    struct err *err)
{
    const struct job_result *r = item->result;
    cleanup_free char *detail = job_result_detail(r);
    int rc = pg_array_add_uuid(&c[C_ID], item->job_id, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[C_ATTEMPT], item->attempt, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_STATE], final_state(r->verdict), err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_VERDICT], verdict_word(r->verdict), err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_DETAIL], detail, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_TEMPLATE], item->template_name, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_WORKER], item->worker, err);
    for (int k = C_OUT_HEAD; k <= C_SETUP_ERR && rc == 0; k++) {
        const struct bytes *b = output(r, k);
        rc = pg_array_add(&c[k], b->data, b->len, err);
    }
    struct usage_record u[USAGE_RECORDS_MAX];
    int n = rc < 0 || !item->billed ? rc : commit_usage_price(pg, item, "", r, u, err);
    rc = n < 0 ? n : n == 0 ? add_no_usage(c, err) : add_usage(c, u, err);
    return rc < 0 ? rc : n;
}

int commit_rows_step(struct commit_item *const *items, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        for (int k = C_OUT_HEAD; k <= C_SETUP_ERR; k++) {
            bytes += output(items[i]->result, k)->len;
        }
        if (i > 0 && bytes > STEP_BYTES_MAX) {
            return i;
        }
    }
    return n;
}

/* The parts behind the first one, of an item that has some. Returns how many statements. */
static int send_parts(struct pg *pg, const struct commit_item *item, struct err *err)
{
    struct usage_record u[USAGE_RECORDS_MAX];
    int n = commit_usage_price(pg, item, "", item->result, u, err);
    return n < 0 ? n : commit_usage_send(pg, item, "", u + METER_COUNT, n - METER_COUNT, err);
}

int commit_rows_send(struct pg *pg, struct commit_item *const *items, int n, struct err *err)
{
    struct pg_array columns[COLUMN_COUNT];
    struct pg_params p = { .n = 0 };
    static_assert(COLUMN_COUNT <= PG_PARAMS_MAX, "parameters");
    int rc = 0, sent = 1, last_long = -1; /* the last item with more than one part */
    for (int k = 0; k < COLUMN_COUNT; k++) {
        pg_array_init(&columns[k], types[k]);
    }
    cleanup_free bool *is_long = calloc((size_t)n, sizeof *is_long);
    if (!is_long) {
        abort();
    }
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = add_item(pg, columns, items[i], err);
        is_long[i] = rc > METER_COUNT;
        last_long = is_long[i] ? i : last_long;
    }
    if (rc >= 0) {
        for (int k = 0; k < COLUMN_COUNT; k++) {
            pg_add_array(&p, &columns[k]);
        }
        rc = pg_pipeline_send(pg, &stmt_commit_rows, &p, false, err);
    }
    for (int k = 0; k < COLUMN_COUNT; k++) {
        pg_array_done(&columns[k]);
    }
    for (int i = 0; i <= last_long && rc >= 0; i++) {
        rc = is_long[i] ? send_parts(pg, items[i], err) : 0;
        sent += rc > 0 ? rc : 0;
    }
    return rc < 0 ? rc : sent;
}
