/* Artifacts whose content came to the object store after their job's end. */
#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

/* One statement, so one snapshot: when the job has ended in it, its artifacts' rows are there too.
 */
static const struct statement artifact_came = {
    "artifact_came",
    "WITH u AS (UPDATE artifacts SET stored = true, reason = '', stored_at = clock_timestamp()"
    "  WHERE job_id = $1::uuid AND sha256 = $2 AND reason = 'pending' RETURNING 1)"
    " SELECT (SELECT count(*) FROM u) > 0 OR NOT EXISTS (SELECT FROM jobs WHERE id = $1::uuid"
    "  AND state IN ('queued','scheduled','running','retrying'))"
};

int store_artifact_came(struct pg *pg, const char *job_id, const char *sha256, struct err *err)
{
    struct pg_params p = { .n = 0 };
    cleanup_pgresult PGresult *res = NULL;
    pg_add_text(&p, job_id);
    pg_add_text(&p, sha256);
    int rc = pg_ask(pg, &artifact_came, &p, &res, err);
    return rc < 0 ? rc : *PQgetvalue(res, 0, 0) == 't';
}
