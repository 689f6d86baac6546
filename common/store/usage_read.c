/* Sums over the usage records: the only figures a bill is made of. A sandbox (of a job, or of one
 * of its branches) has two records, so times are counted on the vcpu_seconds meter alone; money on
 * both. */
#include <stdio.h>
#include <string.h>

#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

#define SUMS                                                                                       \
    " count(DISTINCT job_id), sum(measured_ms) FILTER (WHERE meter = 'vcpu_seconds')::int8,"       \
    " sum(charged_ms) FILTER (WHERE meter = 'vcpu_seconds')::int8,"                                \
    " sum(charged_ms * amount) FILTER (WHERE meter = 'vcpu_seconds')::int8,"                       \
    " sum(charged_ms * amount) FILTER (WHERE meter = 'gib_seconds')::int8,"                        \
    " sum(cost_nanousd)::int8 FROM usage_records WHERE ($1::text IS NULL OR tenant = $1)"
#define DEAREST " GROUP BY 1 ORDER BY 7 DESC, 1 LIMIT $2::int"

static const struct statement by_group[] = {
    [USAGE_BY_DAY] = { "usage_by_day",
                       "SELECT to_char(from_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD')," SUMS
                       " GROUP BY 1 ORDER BY 1 LIMIT $2::int" },
    [USAGE_BY_LABEL] = { "usage_by_label",
                         "SELECT CASE WHEN labels ? $3 THEN $3 || '=' || (labels ->> $3)"
                         " ELSE '(no ' || $3 || ')' END," SUMS DEAREST },
    [USAGE_BY_TEMPLATE] = { "usage_by_template",
                            "SELECT split_part(template, '@', 1)," SUMS DEAREST },
    [USAGE_BY_TENANT] = { "usage_by_tenant", "SELECT tenant," SUMS DEAREST },
};

int store_usage(struct pg *pg, const char *tenant, enum usage_group by, const char *label,
                struct usage_sum *ret_rows, int max, struct err *err)
{
    if (by == USAGE_BY_LABEL && (!label || !*label || strlen(label) > JOB_LABEL_KEY_MAX)) {
        return err_set(err, ERR_INVALID, "label: a key of 1 to %d bytes is needed",
                       JOB_LABEL_KEY_MAX);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_int(&p, max);
    if (by == USAGE_BY_LABEL) {
        pg_add_text(&p, label);
    }
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &by_group[by], &p, false, &res, err);
    for (int i = 0; i < rc; i++) {
        struct usage_sum *s = &ret_rows[i];
        pg_copy(res, i, 0, s->key, sizeof s->key);
        s->jobs = pg_int(res, i, 1);
        s->measured_ms = pg_int(res, i, 2);
        s->charged_ms = pg_int(res, i, 3);
        s->vcpu_charged_ms = pg_int(res, i, 4);
        s->mib_charged_ms = pg_int(res, i, 5);
        s->cost_nanousd = pg_int(res, i, 6);
    }
    return rc;
}
