/* The end of an attempt that does not count: back to the queue, or dead with verdict infra_error.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

/* $1 job, $2 attempt, $3 worker, $4 outcome, $5 reason */
#define FAILED_HEAD(set)                                                                           \
    "WITH u AS (UPDATE jobs SET last_error = $5, " set                                             \
    "  WHERE id = $1::uuid AND attempt = $2::int AND state IN ('scheduled','running') RETURNING "  \
    "id),"                                                                                         \
    " a AS (INSERT INTO attempts (job_id, attempt, worker, outcome, error)"                        \
    "  SELECT id, $2::int, $3::text, $4::text, $5 FROM u ON CONFLICT DO NOTHING)"
#define FAILED_TAIL " SELECT count(*) FROM u"

static const struct statement retry_job = {
    "retry_job",
    FAILED_HEAD("state = 'retrying', not_before = clock_timestamp() + $6::int8 * interval '1 ms'")
        FAILED_TAIL
};
static const struct statement kill_job = {
    "kill_job", FAILED_HEAD("state = 'dead', verdict = $7, finished_at = "
                            "clock_timestamp()") ", r AS (INSERT INTO results "
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

int store_attempt_failed(struct pg *pg, const char *job_id, int attempt, const char *worker,
                         bool worker_lost, const char *reason, int64_t delay_ms, int attempts_max,
                         bool *ret_dead, struct err *err)
{
    assert(attempt > 0 && delay_ms >= 0 && attempts_max > 0);
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    bool dead = attempt >= attempts_max;
    char text[RESULT_REASON_MAX];
    if (dead) {
        (void)snprintf(text, sizeof text, "%s (attempt %d of %d)", reason, attempt, attempts_max);
    } else {
        (void)snprintf(text, sizeof text, "%s", reason);
    }
    clean_text(text);
    cleanup_free char *detail = dead ? infra_detail(text, worker) : NULL;
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_int(&p, attempt);
    pg_add_text(&p, worker);
    pg_add_text(&p, worker_lost ? "lost" : "infra");
    pg_add_text(&p, text);
    if (dead) {
        pg_add_text(&p, detail);
        pg_add_text(&p, verdict_word(VERDICT_INFRA_ERROR));
    } else {
        pg_add_int(&p, delay_ms);
    }
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, dead ? &kill_job : &retry_job, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (ret_dead) {
        *ret_dead = dead && pg_int(res, 0, 0) > 0;
    }
    return 0;
}
