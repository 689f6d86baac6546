/* Retries on request: a try that ended with a verdict of the program and is not accepted makes way
 * for another, while the job has some left.
 *
 * The commit writes such a try like every other (result, usage, attempt): what it cost is billed
 * whatever comes after. This statement follows in the same transaction, so that nobody ever sees
 * the job as ended: it waits again, the result moves to the attempt's row, where every try stays
 * visible, and what only the last try may have (artifacts) is gone. Branch rows stay as they are:
 * readers ask for those of the last try, the check of the ledger for all.
 * Faults of ours do not come here: they are retried by another rule and never billed (retry.h). */
#include <stdio.h>

#include "common/store/commit_internal.h"

/* $1 jobs, $2 attempts */
const struct statement stmt_commit_again = {
    "commit_again",
    "WITH i AS (SELECT * FROM unnest($1::uuid[], $2::int[]) i (id, attempt)),"
    " u AS (UPDATE jobs j SET state = 'retrying', verdict = NULL, finished_at = NULL,"
    "   tries = j.tries + 1, not_before = now() FROM i WHERE j.id = i.id AND j.attempt = i.attempt"
    "   AND j.state || '' = 'completed' AND j.tries < j.retries AND j.cancel_at IS NULL"
    "   RETURNING j.id, j.attempt, j.tenant, j.priority),"
    " r AS (DELETE FROM results USING u WHERE results.job_id = u.id RETURNING results.*),"
    " f AS (DELETE FROM artifacts USING u WHERE artifacts.job_id = u.id),"
    " a AS (UPDATE attempts SET outcome = 'retried', verdict = r.verdict, detail = r.detail,"
    "   stdout_head = r.stdout_head, stderr_head = r.stderr_head FROM r"
    "   WHERE attempts.job_id = r.job_id AND attempts.attempt = r.attempt)" QUEUE_COUNT(
        "u", "") " SELECT id::text FROM u"
};

static bool may_try_again(const struct commit_item *item)
{
    enum verdict v = item->result->verdict;
    return verdict_billed(v) && v != VERDICT_ACCEPTED;
}

int commit_again_send(struct pg *pg, struct commit_item *const *items, int n, struct err *err)
{
    cleanup_buf struct buf ids = { 0 }, attempts = { 0 };
    size_t max = (size_t)n * (ID_TEXT_BYTES + 12) + 4;
    buf_init(&ids, max);
    buf_init(&attempts, max);
    int some = 0, rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        char number[16];
        if (!may_try_again(items[i])) {
            continue;
        }
        const char *before = some++ == 0 ? "{" : ",";
        (void)snprintf(number, sizeof number, "%d", items[i]->attempt);
        rc = buf_add_str(&ids, before, err);
        rc = rc < 0 ? rc : buf_add_str(&ids, items[i]->job_id, err);
        rc = rc < 0 ? rc : buf_add_str(&attempts, before, err);
        rc = rc < 0 ? rc : buf_add_str(&attempts, number, err);
    }
    if (rc < 0 || some == 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    rc = buf_add_str(&ids, "}", err);
    rc = rc < 0 ? rc : buf_add_str(&attempts, "}", err);
    pg_add_text(&p, ids.data);
    pg_add_text(&p, attempts.data);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &stmt_commit_again, &p, false, err);
    return rc < 0 ? rc : 1;
}
