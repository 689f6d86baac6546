/* The rows of a commit, for many jobs by one statement: each column is an array.
 *
 * A statement a job spent most of its time in starting and ending executor nodes; the same rows by
 * unnest() cost a fifth of it. The join must look each job up by its id, in the order given:
 * pg.c turns sequential and bitmap scans off, and the guard on the state is written so that the
 * partial index of jobs in flight does not fit it (a plan made while that index was empty would
 * read all of it for every batch). */
#include <assert.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/commit_internal.h"
#include "common/store/pg_array.h"

#define STEP_BYTES_MAX (32u << 20) /* output in one statement */

/* $1..$13 one value an item, $14.. one value a usage line */
const struct statement stmt_commit_rows = {
    "commit_rows",
    "WITH i AS (SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[],"
    "  $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[],"
    "  $12::text[], $13::text[]) i (id, attempt, state, verdict, detail, out_head, out_tail,"
    "  err_head, err_tail, setup_out, setup_err, template, worker)),"
    " u AS (UPDATE jobs j SET state = i.state, verdict = i.verdict, finished_at = "
    "clock_timestamp()"
    "  FROM i WHERE j.id = i.id AND j.attempt = i.attempt AND j.state || '' IN "
    "('scheduled','running')"
    "  RETURNING j.id, j.tenant, j.labels, coalesce(i.template, j.template) AS template, "
    "j.batch_id,"
    "  i.attempt, i.verdict, i.detail, i.out_head, i.out_tail, i.err_head, i.err_tail,"
    "  i.setup_out, i.setup_err, i.worker),"
    " r AS (INSERT INTO results (job_id, attempt, verdict, detail, stdout_head, stdout_tail,"
    "   stderr_head, stderr_tail, setup_stdout, setup_stderr)"
    "  SELECT id, attempt, verdict, detail, out_head, out_tail, err_head, err_tail, setup_out,"
    "   setup_err FROM u),"
    " a AS (INSERT INTO attempts (job_id, attempt, worker, outcome)"
    "  SELECT id, attempt, worker, 'committed' FROM u),"
    " g AS (INSERT INTO usage_records (id, tenant, job_id, attempt, part, meter, template, labels,"
    "   batch_id, verdict, from_ts, to_ts, measured_ms, charged_ms, rate_id, period, amount,"
    "   unit_price_nanousd, cost_nanousd)"
    "  SELECT m.id, u.tenant, u.id, u.attempt, m.part, m.meter, u.template, u.labels, u.batch_id,"
    "   u.verdict, to_timestamp(m.from_ms / 1000.0), to_timestamp(m.to_ms / 1000.0),"
    "   m.measured_ms, m.charged_ms, m.rate_id, m.period, m.amount, m.price, m.cost"
    "  FROM unnest($14::uuid[], $15::uuid[], $16::int[], $17::text[], $18::int8[], $19::int8[],"
    "   $20::int8[], $21::int8[], $22::int[], $23::int[], $24::int8[], $25::int8[], $26::int8[])"
    "   m (job, id, part, meter, from_ms, to_ms, measured_ms, charged_ms, rate_id, period, amount,"
    "   price, cost) JOIN u ON u.id = m.job)"
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
    U_JOB,
    U_ID,
    U_PART,
    U_METER,
    U_FROM,
    U_TO,
    U_MEASURED,
    U_CHARGED,
    U_RATE,
    U_PERIOD,
    U_AMOUNT,
    U_PRICE,
    U_COST,
    COLUMN_COUNT
};
static const enum pg_element types[COLUMN_COUNT] = {
    [C_ID] = PG_UUID,         [C_ATTEMPT] = PG_INT4,    [C_STATE] = PG_TEXT,
    [C_VERDICT] = PG_TEXT,    [C_DETAIL] = PG_TEXT,     [C_OUT_HEAD] = PG_BYTEA,
    [C_OUT_TAIL] = PG_BYTEA,  [C_ERR_HEAD] = PG_BYTEA,  [C_ERR_TAIL] = PG_BYTEA,
    [C_SETUP_OUT] = PG_BYTEA, [C_SETUP_ERR] = PG_BYTEA, [C_TEMPLATE] = PG_TEXT,
    [C_WORKER] = PG_TEXT,     [U_JOB] = PG_UUID,        [U_ID] = PG_UUID,
    [U_PART] = PG_INT4,       [U_METER] = PG_TEXT,      [U_FROM] = PG_INT8,
    [U_TO] = PG_INT8,         [U_MEASURED] = PG_INT8,   [U_CHARGED] = PG_INT8,
    [U_RATE] = PG_INT4,       [U_PERIOD] = PG_INT4,     [U_AMOUNT] = PG_INT8,
    [U_PRICE] = PG_INT8,      [U_COST] = PG_INT8,
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

static int add_usage(struct pg_array *c, const char *job_id, const struct usage_record *u,
                     struct err *err)
{
    int rc = pg_array_add_uuid(&c[U_JOB], job_id, err);
    rc = rc < 0 ? rc : pg_array_add_uuid(&c[U_ID], u->id.text, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_PART], u->part, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[U_METER], meter_word(u->meter), err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_FROM], u->from_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_TO], u->to_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_MEASURED], u->measured_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_CHARGED], u->charged_ms, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_RATE], u->rate_id, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_PERIOD], u->period, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_AMOUNT], u->amount, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[U_PRICE], u->unit_price_nanousd, err);
    return rc < 0 ? rc : pg_array_add_int(&c[U_COST], u->cost_nanousd, err);
}

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
    for (int i = 0; i < n && rc == 0; i++) {
        rc = add_usage(c, item->job_id, &u[i], err);
    }
    return n < 0 ? n : rc;
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

int commit_rows_send(struct pg *pg, struct commit_item *const *items, int n, struct err *err)
{
    struct pg_array columns[COLUMN_COUNT];
    struct pg_params p = { .n = 0 };
    static_assert(COLUMN_COUNT <= PG_PARAMS_MAX, "parameters");
    int rc = 0;
    for (int k = 0; k < COLUMN_COUNT; k++) {
        pg_array_init(&columns[k], types[k]);
    }
    for (int i = 0; i < n && rc == 0; i++) {
        rc = add_item(pg, columns, items[i], err);
    }
    if (rc == 0) {
        for (int k = 0; k < COLUMN_COUNT; k++) {
            pg_add_array(&p, &columns[k]);
        }
        rc = pg_pipeline_send(pg, &stmt_commit_rows, &p, false, err);
    }
    for (int k = 0; k < COLUMN_COUNT; k++) {
        pg_array_done(&columns[k]);
    }
    return rc;
}
