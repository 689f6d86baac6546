/* Taking jobs back: whatever of a batch has not ended ends as cancelled, with a result that says so
 * and no usage. Guarded like every end of a job, so that a verdict that is already there stays, and
 * an attempt that is running commits nothing afterwards. Rows are locked in the order of their ids,
 * as a commit does. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

#define UNFINISHED "state IN ('queued','scheduled','running','retrying')"

/* $1 batch, $2 max, $3 verdict, $4 detail, $5 viewer */
static const struct statement cancel = {
    "cancel",
    "WITH pick AS (SELECT id FROM jobs WHERE batch_id = $1::uuid AND " UNFINISHED
    "  AND " PG_VIEWER(
        "tenant",
        "$5") "  ORDER BY id LIMIT $2::int FOR UPDATE),"
              " u AS (UPDATE jobs j SET state = 'cancelled', verdict = $3, "
              "finished_at = clock_timestamp()"
              "  FROM pick WHERE j.id = pick.id RETURNING j.id, j.attempt),"
              " r AS (INSERT INTO results (job_id, attempt, verdict, detail, stdout_head, "
              "stdout_tail, stderr_head, stderr_tail)"
              "  SELECT id, attempt, $3, $4::text, '', '', '', '' FROM u)"
              " SELECT id::text FROM u"
};
static const struct statement open_batches = {
    "open_batches", "SELECT b.id::text FROM batches b WHERE b.tenant = $1 AND b.name = $2"
                    " AND EXISTS (SELECT FROM jobs j WHERE j.batch_id = b.id AND j." UNFINISHED ")"
                    " ORDER BY b.id LIMIT $3::int"
};

static int take_ids(const PGresult *res, struct id *ret_ids, int max)
{
    int n = PQntuples(res);
    assert(n <= max);
    for (int i = 0; i < n; i++) {
        pg_copy(res, i, 0, ret_ids[i].text, sizeof ret_ids[i].text);
    }
    return n;
}

int store_cancel(struct pg *pg, const char *batch_id, int max, struct id *ret_ids, struct err *err)
{
    assert(max > 0);
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_CANCELLED;
    (void)snprintf(r.reason, sizeof r.reason, "taken back before it had ended");
    cleanup_free char *detail = job_result_detail(&r);
    job_result_done(&r);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, batch_id);
    pg_add_int(&p, max);
    pg_add_text(&p, verdict_word(VERDICT_CANCELLED));
    pg_add_text(&p, detail);
    pg_add_text(&p, pg->viewer);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &cancel, &p, false, &res, err);
    return rc < 0 ? rc : take_ids(res, ret_ids, max);
}

int store_open_batches(struct pg *pg, const char *tenant, const char *name, int max,
                       struct id *ret_ids, struct err *err)
{
    assert(max > 0);
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, name);
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &open_batches, &p, false, &res, err);
    return rc < 0 ? rc : take_ids(res, ret_ids, max);
}
