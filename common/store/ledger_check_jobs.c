/* Jobs against the ledger: of every attempt that ended with a result, the lines that its sandboxes
 * must have are computed from the result (and its branches' results) and the price book, exactly as
 * the commit did, and compared field by field with those that are there. Such an attempt is a job's
 * last one, or a try that a retry on request followed. Pages of attempts in the order of their
 * jobs' ids and their numbers. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/model/result.h"
#include "common/model/branch_result.h"
#include "common/store/jobs.h"
#include "common/store/ledger_check_internal.h"

#define PAGE_JOBS 4000

/* $1 and $2 the job and attempt before the first, $3 how many */
static const struct statement page_jobs = {
    "check_jobs",
    "SELECT e.job_id, j.tenant, j.state, coalesce(j.verdict, ''), e.last::int, j.template, "
    "coalesce(j.batch_id::text, ''), j.labels::text, e.attempt, e.verdict, e.detail, "
    "(SELECT count(*) FROM attempts a WHERE a.job_id = e.job_id AND a.attempt = e.attempt AND "
    "a.outcome IN ('committed','retried')) FROM ("
    "(SELECT job_id, attempt, verdict, detail, true AS last FROM results"
    "  WHERE (job_id, attempt) > ($1::uuid, $2::int) ORDER BY job_id LIMIT $3::int)"
    " UNION ALL (SELECT job_id, attempt, verdict, detail, false FROM attempts"
    "  WHERE outcome = 'retried' AND (job_id, attempt) > ($1::uuid, $2::int)"
    "  ORDER BY job_id, attempt LIMIT $3::int)) e"
    " JOIN jobs j ON j.id = e.job_id ORDER BY e.job_id, e.attempt LIMIT $3::int"
};
/* $1 from, $2 to */
static const struct statement page_branches = {
    "check_branches", "SELECT job_id, path, verdict, detail, attempt FROM branch_results WHERE "
                      "job_id BETWEEN $1::uuid AND "
                      "$2::uuid ORDER BY job_id, attempt, node"
};
static const struct statement page_lines = {
    "check_job_lines",
    "SELECT u.job_id, u.id, u.tenant, u.template, u.labels::text, coalesce(u.batch_id::text, ''), "
    "coalesce(u.verdict, ''), u.meter, u.part, u.attempt, u.branch, " PG_MS("u.from_ts") ", " PG_MS(
        "u.to_ts") ", u.measured_ms, u.charged_ms, u.amount, u.unit_price_nanousd, u.cost_nanousd, "
                   "u.period, u.rate_id FROM usage_records u WHERE u.job_id BETWEEN $1::uuid AND "
                   "$2::uuid AND u.kind = 'usage' AND u.meter IN ('vcpu_seconds','gib_seconds') "
                   "ORDER BY u.job_id, u.attempt, u.id"
};
enum {
    L_JOB,
    L_ID,
    L_TENANT,
    L_TEMPLATE,
    L_LABELS,
    L_BATCH,
    L_VERDICT,
    L_METER,
    L_PART,
    L_ATTEMPT,
    L_BRANCH,
    L_FROM,
    L_TO,
    L_MEASURED,
    L_CHARGED,
    L_AMOUNT,
    L_PRICE,
    L_COST,
    L_PERIOD,
    L_RATE
};
static const struct statement strays = {
    "check_strays",
    "SELECT u.id, u.job_id FROM usage_records u WHERE u.kind = 'usage' AND u.meter IN "
    "('vcpu_seconds','gib_seconds') AND NOT EXISTS (SELECT FROM results r WHERE r.job_id = "
    "u.job_id AND r.attempt = u.attempt) AND NOT EXISTS (SELECT FROM attempts a WHERE a.job_id = "
    "u.job_id AND a.attempt = u.attempt AND a.outcome = 'retried')"
};
static const struct statement endless = {
    "check_endless", "SELECT j.id, j.state FROM jobs j WHERE j.state IN "
                     "('completed','dead','cancelled','expired') AND "
                     "NOT EXISTS (SELECT FROM results r WHERE r.job_id = j.id) UNION ALL SELECT "
                     "r.job_id, j.state FROM "
                     "results r JOIN jobs j ON j.id = r.job_id WHERE j.state NOT IN "
                     "('completed','dead','cancelled','expired')"
};

struct expected {
    struct usage_record *u;
    size_t n, cap;
};

struct page {
    struct check *c;
    const PGresult *jobs, *branches, *lines;
    int n_jobs, n_branches, n_lines;
    int branch, line; /* the next of them */
    struct expected want;
};

static void expect_sandbox(struct page *p, int row, const char *branch, const struct job_result *r)
{
    struct usage_record u[USAGE_RECORDS_MAX];
    const struct sandbox_use use = { .vcpus = r->vcpus > 0 ? r->vcpus : 0,
                                     .memory_mib = r->memory_mib > 0 ? r->memory_mib : 0,
                                     .from_ms = r->leased_wall_ms > 0 ? r->leased_wall_ms : 0,
                                     .measured_ms = r->measured_ms > 0 ? r->measured_ms : 0 };
    int n = usage_records(&p->c->book, PQgetvalue(p->jobs, row, 1), PQgetvalue(p->jobs, row, 0),
                          (int)pg_int(p->jobs, row, 8), branch, &use, u);
    struct expected *w = &p->want;
    if (w->n + (size_t)n > w->cap) {
        w->cap = 2 * w->cap + (size_t)n;
        w->u = reallocarray(w->u, w->cap, sizeof *w->u);
        if (!w->u) {
            abort();
        }
    }
    memcpy(w->u + w->n, u, (size_t)n * sizeof *u);
    w->n += (size_t)n;
}

static int parse(const PGresult *res, int row, int col, const char *word, struct job_result *ret,
                 struct err *err)
{
    job_result_init(ret);
    int rc = job_result_parse_detail(PQgetvalue(res, row, col), (size_t)PQgetlength(res, row, col),
                                     ret, err);
    if (rc < 0) {
        job_result_done(ret);
        return rc;
    }
    int v = verdict_parse(word);
    ret->verdict = v < 0 ? VERDICT_NONE : (enum verdict)v;
    return 0;
}

/* Where a row of branches or lines is, compared with the attempt that this row of jobs is of. */
static int place(const struct page *p, const PGresult *res, int row, int attempt_col, int job_row)
{
    int d = strcmp(PQgetvalue(res, row, 0), PQgetvalue(p->jobs, job_row, 0));
    int64_t have = pg_int(res, row, attempt_col), want = pg_int(p->jobs, job_row, 8);
    return d != 0 ? d : have < want ? -1 : have > want;
}

/* What the lines of the attempt in this row must be, into p->want. */
static int expect_job(struct page *p, int row, struct err *err)
{
    const char *job = PQgetvalue(p->jobs, row, 0);
    struct job_result r;
    p->want.n = 0;
    int rc = parse(p->jobs, row, 10, PQgetvalue(p->jobs, row, 9), &r, err);
    if (rc < 0) {
        return err_prefix(err, "%s", job);
    }
    /* a job that was taken back in the table has a result and no attempt that committed: free */
    bool committed = pg_int(p->jobs, row, 11) > 0;
    if (committed && job_result_billed(&r)) {
        expect_sandbox(p, row, "", &r);
    }
    for (; p->branch < p->n_branches && place(p, p->branches, p->branch, 4, row) < 0; p->branch++) {
    }
    for (; rc == 0 && p->branch < p->n_branches && place(p, p->branches, p->branch, 4, row) == 0;
         p->branch++) {
        struct branch_result b = { 0 };
        rc =
            parse(p->branches, p->branch, 3, PQgetvalue(p->branches, p->branch, 2), &b.result, err);
        if (rc == 0 && committed && branch_result_billed(&b, &r)) {
            expect_sandbox(p, row, PQgetvalue(p->branches, p->branch, 1), &b.result);
        }
        if (rc == 0) {
            job_result_done(&b.result);
            p->c->sums->branches++;
        }
    }
    job_result_done(&r);
    return rc < 0 ? err_prefix(err, "%s", job) : 0;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct usage_record *)a)->id.text,
                  ((const struct usage_record *)b)->id.text);
}

/* A line from before there was a price book: its own figures must agree. */
static void check_old(struct page *p, int line)
{
    bool cpu = strcmp(PQgetvalue(p->lines, line, L_METER), "vcpu_seconds") == 0;
    int64_t cost = usage_cost(pg_int(p->lines, line, L_PRICE), pg_int(p->lines, line, L_AMOUNT),
                              cpu ? 1 : 1024, pg_int(p->lines, line, L_CHARGED));
    if (cost != pg_int(p->lines, line, L_COST)) {
        check_found(p->c, "disagrees", PQgetvalue(p->lines, line, L_ID),
                    "of job %s costs %lld nano-dollars and says %s",
                    PQgetvalue(p->lines, line, L_JOB), (long long)cost,
                    PQgetvalue(p->lines, line, L_COST));
    }
}

static void check_number(struct page *p, int line, int col, const char *name, int64_t want)
{
    if (pg_int(p->lines, line, col) != want) {
        check_found(p->c, "disagrees", PQgetvalue(p->lines, line, L_ID),
                    "of job %s: %s is %s, by the result and the price book %lld",
                    PQgetvalue(p->lines, line, L_JOB), name, PQgetvalue(p->lines, line, col),
                    (long long)want);
    }
}

static void check_text(struct page *p, int line, int col, const char *name, const char *want)
{
    if (strcmp(PQgetvalue(p->lines, line, col), want) != 0) {
        check_found(p->c, "disagrees", PQgetvalue(p->lines, line, L_ID),
                    "of job %s: %s is %.60s, the job's is %.60s", PQgetvalue(p->lines, line, L_JOB),
                    name, PQgetvalue(p->lines, line, col), want);
    }
}

static void check_line(struct page *p, int row, int line, const struct usage_record *u)
{
    check_text(p, line, L_TENANT, "tenant", PQgetvalue(p->jobs, row, 1));
    check_text(p, line, L_BATCH, "batch", PQgetvalue(p->jobs, row, 6));
    check_text(p, line, L_VERDICT, "verdict", PQgetvalue(p->jobs, row, 9));
    check_text(p, line, L_LABELS, "labels", PQgetvalue(p->jobs, row, 7));
    check_text(p, line, L_METER, "meter", meter_word(u->meter));
    check_number(p, line, L_PART, "part", u->part);
    check_number(p, line, L_FROM, "from", u->from_ms);
    check_number(p, line, L_TO, "to", u->to_ms);
    check_number(p, line, L_MEASURED, "measured_ms", u->measured_ms);
    check_number(p, line, L_CHARGED, "charged_ms", u->charged_ms);
    check_number(p, line, L_AMOUNT, "amount", u->amount);
    check_number(p, line, L_PRICE, "unit_price_nanousd", u->unit_price_nanousd);
    check_number(p, line, L_COST, "cost_nanousd", u->cost_nanousd);
    check_number(p, line, L_RATE, "rate_id", u->rate_id);
    /* its month, or, when it came after that was closed, a later one */
    int period = (int)pg_int(p->lines, line, L_PERIOD), month = usage_month(u->from_ms);
    if (period < month || (period > month && month > p->c->book.closed_through)) {
        check_number(p, line, L_PERIOD, "period", month);
    }
}

static void compare(struct page *p, int row)
{
    const char *job = PQgetvalue(p->jobs, row, 0);
    struct expected *w = &p->want;
    if (w->n > 0) {
        qsort(w->u, w->n, sizeof *w->u, by_id);
    }
    size_t i = 0;
    while (p->line < p->n_lines && place(p, p->lines, p->line, L_ATTEMPT, row) < 0) {
        p->line++; /* of an attempt without a result (strays), or of the page before */
    }
    bool old = p->line < p->n_lines && PQgetisnull(p->lines, p->line, L_RATE);
    for (;;) {
        bool here = p->line < p->n_lines && place(p, p->lines, p->line, L_ATTEMPT, row) == 0;
        if (here && PQgetisnull(p->lines, p->line, L_RATE)) {
            check_old(p, p->line++);
            old = true;
            continue;
        }
        if (!here && i == w->n) {
            return;
        }
        int d = !here       ? -1
                : i == w->n ? 1
                            : strcmp(w->u[i].id.text, PQgetvalue(p->lines, p->line, L_ID));
        if (d == 0) {
            check_line(p, row, p->line++, &w->u[i++]);
        } else if (d > 0) {
            check_found(p->c, "unfounded", PQgetvalue(p->lines, p->line, L_ID),
                        "of job %s: its result gives no such line", job);
            p->line++;
        } else {
            if (!old) {
                check_found(p->c, "unbilled", w->u[i].id.text,
                            "of job %s is not in the ledger: %s of %lld ms, %lld nano-dollars", job,
                            meter_word(w->u[i].meter), (long long)w->u[i].charged_ms,
                            (long long)w->u[i].cost_nanousd);
            }
            i++;
        }
    }
}

static void check_state(struct page *p, int row)
{
    const char *job = PQgetvalue(p->jobs, row, 0), *verdict = PQgetvalue(p->jobs, row, 3);
    if (pg_int(p->jobs, row, 4) == 0) {
        return; /* a try: the job has gone on */
    }
    if (strcmp(verdict, PQgetvalue(p->jobs, row, 9)) != 0) {
        check_found(p->c, "job", NULL, "%s has the verdict %s, its result %s", job, verdict,
                    PQgetvalue(p->jobs, row, 9));
    }
    if (strcmp(PQgetvalue(p->jobs, row, 2), "completed") == 0 && pg_int(p->jobs, row, 11) != 1) {
        check_found(p->c, "job", NULL, "%s is completed and no attempt of it has committed", job);
    }
}

static int check_page(struct check *c, const PGresult *jobs, int n, struct err *err)
{
    struct page p = { .c = c, .jobs = jobs, .n_jobs = n };
    cleanup_pgresult PGresult *branches = NULL, *lines = NULL;
    struct pg_params q = { .n = 0 };
    pg_add_text(&q, PQgetvalue(jobs, 0, 0));
    pg_add_text(&q, PQgetvalue(jobs, n - 1, 0));
    int rc = p.n_branches = pg_run(c->pg, &page_branches, &q, false, &branches, err);
    rc = p.n_lines = rc < 0 ? rc : pg_run(c->pg, &page_lines, &q, false, &lines, err);
    p.branches = branches;
    p.lines = lines;
    for (int row = 0; row < n && rc >= 0; row++) {
        check_state(&p, row);
        rc = expect_job(&p, row, err);
        if (rc >= 0) {
            compare(&p, row);
        }
        c->sums->jobs += pg_int(jobs, row, 4) != 0;
    }
    free(p.want.u);
    return rc;
}

static int on_stray(void *ctx, const PGresult *res, int row, struct err *err)
{
    (void)err;
    check_found(ctx, "unfounded", PQgetvalue(res, row, 0),
                "of job %s: the attempt it names has no result", PQgetvalue(res, row, 1));
    return 0;
}

static int on_endless(void *ctx, const PGresult *res, int row, struct err *err)
{
    (void)err;
    check_found(ctx, "job", NULL, "%s: its state is %s, which does not go with its results",
                PQgetvalue(res, row, 0), PQgetvalue(res, row, 1));
    return 0;
}

int check_jobs(struct check *c, struct err *err)
{
    char after[ID_TEXT_BYTES] = "00000000-0000-0000-0000-000000000000";
    int rc = 0;
    int64_t attempt = 0;
    for (int n = PAGE_JOBS; n == PAGE_JOBS && rc >= 0;) {
        struct pg_params p = { .n = 0 };
        pg_add_text(&p, after);
        pg_add_int(&p, attempt);
        pg_add_int(&p, PAGE_JOBS);
        cleanup_pgresult PGresult *jobs = NULL;
        n = rc = pg_run(c->pg, &page_jobs, &p, false, &jobs, err);
        if (n > 0) {
            pg_copy(jobs, n - 1, 0, after, sizeof after);
            attempt = pg_int(jobs, n - 1, 8);
            rc = check_page(c, jobs, n, err);
        }
    }
    rc = rc < 0 ? rc : ledger_rows(c->pg, &strays, NULL, on_stray, c, err);
    return rc < 0 ? rc : ledger_rows(c->pg, &endless, NULL, on_endless, c, err);
}
