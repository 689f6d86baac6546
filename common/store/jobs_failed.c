/* The end of an attempt that does not count: back to the queue, or dead with verdict infra_error.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

/* $1 job, $2 attempt, $3 worker, $4 outcome, $5 reason */
#define FAILED_SET(set)                                                                            \
    "WITH u AS (UPDATE jobs SET last_error = $5, " set                                             \
    "  WHERE id = $1::uuid AND attempt = $2::int AND state IN ('scheduled','running') RETURNING "  \
    "id, tenant, priority, scheduled_at)"
#define FAILED_ROW                                                                                 \
    ", a AS (INSERT INTO attempts (job_id, attempt, worker, outcome, error, overhead_ms)"          \
    "  SELECT id, $2::int, $3::text, $4::text, $5, greatest(0, coalesce(extract(epoch from "       \
    "clock_timestamp() - scheduled_at) * 1000, 0))::int8 FROM u ON CONFLICT DO NOTHING)"
#define FAILED_TAIL " SELECT count(*) FROM u"
#define RETRY_SET                                                                                  \
    FAILED_SET("state = 'retrying', not_before = clock_timestamp() + $6::int8 * interval '1 ms'")

static const struct statement count_faults = {
    "count_faults", "SELECT count(*) FILTER (WHERE outcome IN ('infra','lost')),"
                    "  count(*) FILTER (WHERE outcome IN ('given_back','retried'))"
                    " FROM attempts WHERE job_id = $1::uuid AND attempt < $2::int"
};
static const struct statement retry_job = { "retry_job",
                                            RETRY_SET FAILED_ROW QUEUE_COUNT("u", "") FAILED_TAIL };
/* $3 and $4 are named for their types alone. */
static const struct statement wait_job = {
    "wait_job", RETRY_SET QUEUE_COUNT("u", "") " SELECT count(*), $3::text, $4::text FROM u"
};
static const struct statement kill_job = {
    "kill_job", FAILED_SET("state = 'dead', verdict = $7, finished_at = clock_timestamp()")
                    FAILED_ROW ", r AS (INSERT INTO results "
                               "(job_id, attempt, verdict, detail, "
                               "stdout_head, stdout_tail, "
                               "stderr_head, stderr_tail)"
                               " SELECT id, $2::int, $7, $6::text, '', "
                               "'', '', '' FROM u)" FAILED_TAIL
};

/* Reasons come from anywhere (a guest's last words, errno texts, cut in mid-character): whatever is
 * no UTF-8 becomes '?', since the database would refuse the row and the job would never end. */
static void clean_text(char *text)
{
    unsigned char *s = (unsigned char *)text;
    while (*s) {
        int n = *s < 0x80                 ? 0
                : *s >= 0xc2 && *s < 0xe0 ? 1
                : *s >= 0xe0 && *s < 0xf0 ? 2
                : *s >= 0xf0 && *s < 0xf5 ? 3
                                          : -1;
        bool ok = n >= 0;
        for (int i = 1; ok && i <= n; i++) {
            ok = (s[i] & 0xc0) == 0x80; /* a NUL ends it too */
        }
        if (ok && n == 2) { /* overlong, surrogates */
            ok = !(s[0] == 0xe0 && s[1] < 0xa0) && !(s[0] == 0xed && s[1] >= 0xa0);
        } else if (ok && n == 3) {
            ok = !(s[0] == 0xf0 && s[1] < 0x90) && !(s[0] == 0xf4 && s[1] >= 0x90);
        }
        if (!ok) {
            *s = '?';
            n = 0;
        }
        s += n + 1;
    }
}

static char *infra_detail(const char *reason, const char *worker)
{
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_INFRA_ERROR;
    (void)snprintf(r.reason, sizeof r.reason, "%s", reason);
    (void)snprintf(r.worker, sizeof r.worker, "%s", worker);
    char *detail = job_result_detail(&r);
    job_result_done(&r);
    return detail;
}

/* How many attempts before this one were faults, and how many were given back. */
static int faults_before(struct pg *pg, const char *job_id, int attempt, int *ret_faults,
                         int *ret_given_back, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_int(&p, attempt);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &count_faults, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    int64_t faults = pg_int(res, 0, 0), given_back = pg_int(res, 0, 1);
    /* whatever the table says */
    *ret_given_back = given_back < attempt ? (int)given_back : attempt - 1;
    int counted = attempt - *ret_given_back;
    *ret_faults = faults < counted ? (int)faults : counted - 1;
    return 0;
}

static void explain(char text[RESULT_REASON_MAX], const char *reason, enum retry_cause cause,
                    const struct retry_plan *plan)
{
    if (!plan->dead) {
        (void)snprintf(text, RESULT_REASON_MAX, "%s", reason);
    } else if (cause == RETRY_NO_SANDBOX) {
        (void)snprintf(text, RESULT_REASON_MAX, "%.400s (no sandbox in %d tries)", reason,
                       plan->count);
    } else {
        (void)snprintf(text, RESULT_REASON_MAX, "%.400s (attempt %d of %d)", reason, plan->count,
                       plan->max);
    }
    clean_text(text);
}

int store_attempt_failed(struct pg *pg, const char *job_id, int attempt, const char *worker,
                         enum retry_cause cause, const char *reason,
                         const struct retry_policy *policy, bool *ret_dead, struct err *err)
{
    assert(attempt > 0);
    int faults = 0, given_back = 0, rc = pg_ensure(pg, err);
    if (rc < 0 || (rc = faults_before(pg, job_id, attempt, &faults, &given_back, err)) < 0) {
        return rc;
    }
    struct retry_plan plan =
        retry_plan(policy, cause, attempt - given_back, faults, retry_seed(job_id));
    char text[RESULT_REASON_MAX];
    explain(text, reason, cause, &plan);
    cleanup_free char *detail = plan.dead ? infra_detail(text, worker) : NULL;
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_int(&p, attempt);
    pg_add_text(&p, worker);
    pg_add_text(&p, cause == RETRY_WORKER_LOST  ? "lost"
                    : cause == RETRY_GIVEN_BACK ? "given_back"
                                                : "infra");
    pg_add_text(&p, text);
    if (plan.dead) {
        pg_add_text(&p, detail);
        pg_add_text(&p, verdict_word(VERDICT_INFRA_ERROR));
    } else {
        pg_add_int(&p, plan.delay_ms);
    }
    const struct statement *st = plan.dead                   ? &kill_job
                                 : cause == RETRY_NO_SANDBOX ? &wait_job
                                                             : &retry_job;
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, st, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (ret_dead) {
        *ret_dead = plan.dead && pg_int(res, 0, 0) > 0;
    }
    return 0;
}
