#include "common/store/clock_repair.h"

#include "common/base/cleanup.h"
#include "common/store/pg_internal.h"

static const struct statement clock_ms = { "clock_ms", "SELECT " PG_MS("clock_timestamp()") };
/* A job that did not ask to wait has not_before <= submitted_at: both are taken at its submission.
 */
static const struct statement went_back = {
    "clock_went_back",
    "WITH w AS (UPDATE jobs SET not_before = clock_timestamp() + CASE state WHEN 'retrying' THEN "
    "   $1::int8 * interval '1 ms' ELSE interval '0' END"
    "  WHERE state IN ('queued','retrying') AND ((state = 'queued' AND not_before <= submitted_at"
    "   AND not_before > clock_timestamp()) OR (state = 'retrying'"
    "   AND not_before > clock_timestamp() + $1::int8 * interval '1 ms')) RETURNING 1),"
    " f AS (UPDATE jobs SET scheduled_at = clock_timestamp() WHERE state IN "
    "('scheduled','running') AND scheduled_at > clock_timestamp() RETURNING 1)"
    " SELECT (SELECT count(*) FROM w) + (SELECT count(*) FROM f)"
};

int store_clock_ms(struct pg *pg, int64_t *ret_ms, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &clock_ms, NULL, &res, err);
    if (rc < 0) {
        return rc;
    }
    *ret_ms = pg_int(res, 0, 0);
    return 0;
}

int store_clock_went_back(struct pg *pg, int64_t retry_max_ms, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, retry_max_ms);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &went_back, &p, &res, err);
    return rc < 0 ? rc : (int)pg_int(res, 0, 0);
}
