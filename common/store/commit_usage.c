/* The usage lines of what commits: priced here, with the book that the transaction's guard
 * compares, and not by the worker, whose rates may have changed while it ran or while its result
 * waited for the database. The first part of a job's own sandbox travels in the guarded statement;
 * everything else (the parts behind a midnight or a change of rates, the branches' sandboxes) in
 * statements that select from the attempt's row. */
#include <assert.h>

#include "common/store/commit_internal.h"

/* $1 job, $2 attempt, $3 worker, $4 branch, $5 template or NULL, $6 part, then commit_usage_params
 */
#define USAGE_ROW(id, meter, amount, price, cost)                                                  \
    "(" id "::uuid, " meter "::text, " amount "::int8, " price "::int8, " cost "::int8)"
static const struct statement part_usage = {
    "part_usage",
    "INSERT INTO usage_records (id, tenant, job_id, attempt, branch, part, meter, template, labels,"
    "  batch_id, verdict, from_ts, to_ts, measured_ms, charged_ms, rate_id, period, amount,"
    "  unit_price_nanousd, cost_nanousd)"
    " SELECT m.id, j.tenant, j.id, $2::int, $4::text, $6::int, m.meter, coalesce($5, j.template),"
    "  j.labels, j.batch_id, j.verdict, to_timestamp($7::int8 / 1000.0),"
    "  to_timestamp($8::int8 / 1000.0), $9::int8, $10::int8, $11::int, $12::int, m.amount, m.price,"
    "  m.cost FROM jobs j CROSS JOIN (VALUES " USAGE_ROW("$13", "$14", "$15", "$16", "$17") ", " //
    USAGE_ROW(
        "$18", "$19", "$20", "$21",
        "$22") ") m (id, meter, amount, price, cost)"
               " WHERE j.id = $1::uuid AND EXISTS (SELECT FROM attempts WHERE job_id = $1::uuid"
               "  AND attempt = $2::int AND worker = $3 AND outcome = 'committed') ON CONFLICT DO "
               "NOTHING"
};
static_assert(METER_COUNT == 2, "part_usage writes two meters");

int commit_usage_prepare(struct pg *pg, struct err *err)
{
    return pg_prepare(pg, &part_usage, err);
}

int commit_usage_price(struct pg *pg, const struct commit_item *item, const char *branch,
                       const struct job_result *r, struct usage_record out[USAGE_RECORDS_MAX],
                       struct err *err)
{
    assert(pg->book);
    const struct sandbox_use use = { .vcpus = r->vcpus,
                                     .memory_mib = r->memory_mib,
                                     .from_ms = r->leased_wall_ms > 0 ? r->leased_wall_ms : 0,
                                     .measured_ms = r->measured_ms > 0 ? r->measured_ms : 0 };
    int n = usage_records(pg->book, item->tenant, item->job_id, item->attempt, branch, &use, out);
    if (n == 0) {
        return err_set(err, ERR_INVALID, "there is no rate card for the time of job %s",
                       item->job_id);
    }
    return n;
}

void commit_usage_params(struct pg_params *p, const struct usage_record u[METER_COUNT])
{
    pg_add_int(p, u->from_ms);
    pg_add_int(p, u->to_ms);
    pg_add_int(p, u->measured_ms);
    pg_add_int(p, u->charged_ms);
    pg_add_int(p, u->rate_id);
    pg_add_int(p, u->period);
    for (int m = 0; m < METER_COUNT; m++) {
        assert(u[m].part == u->part && u[m].from_ms == u->from_ms &&
               u[m].charged_ms == u->charged_ms);
        pg_add_text(p, u[m].id.text);
        pg_add_text(p, meter_word(u[m].meter));
        pg_add_int(p, u[m].amount);
        pg_add_int(p, u[m].unit_price_nanousd);
        pg_add_int(p, u[m].cost_nanousd);
    }
}

int commit_usage_send(struct pg *pg, const struct commit_item *item, const char *branch,
                      const struct usage_record *u, int n, struct err *err)
{
    assert(n % METER_COUNT == 0);
    for (int i = 0; i < n; i += METER_COUNT) {
        struct pg_params p = { .n = 0 };
        pg_add_text(&p, item->job_id);
        pg_add_int(&p, item->attempt);
        pg_add_text(&p, item->worker);
        pg_add_text(&p, branch);
        pg_add_text(&p, item->template_name);
        pg_add_int(&p, u[i].part);
        commit_usage_params(&p, u + i);
        int rc = pg_pipeline_send(pg, &part_usage, &p, false, err);
        if (rc < 0) {
            return rc;
        }
    }
    return n / METER_COUNT;
}
