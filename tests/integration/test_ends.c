/* Ends by the clock and by the budget, against a real Redis and a real Postgres, the workers and
 * the keeper played by the test. */
#include "common/store/budgets.h"
#include "common/store/snapshots.h"
#include "common/store/usage.h"
#include "scheduler/keeper.h"
#include "tests/integration/fair_case.h"

FIXTURE_MAIN

TestSuite(ends, .init = set_up, .fini = tear_down, .timeout = 180);

/* The plan that the server makes for a statement of f.pg's session. */
static void plan(const char *call, char ret_text[4096])
{
    char text[256];
    (void)snprintf(text, sizeof text, "EXPLAIN EXECUTE %s", call);
    PGresult *res = PQexec(f.pg.conn, text);
    cr_assert_eq(PQresultStatus(res), PGRES_TUPLES_OK, "%s: %s", call, PQerrorMessage(f.pg.conn));
    ret_text[0] = 0;
    for (int i = 0, at = 0; i < PQntuples(res) && at < 4096; i++) {
        at += snprintf(ret_text + at, 4096 - (size_t)at, "%s\n", PQgetvalue(res, i, 0));
    }
    PQclear(res);
}

/* What is looked for again and again by its time is found by its index, whatever else waits: a
 * volatile clock in the condition would have every row looked at. */
Test(ends, what_is_due_is_found_by_its_index)
{
    struct id ids[2];
    OK(store_expire(&f.pg, 2, ids, &err));
    OK(store_cancel_marked(&f.pg, NULL, 0, 2, ids, &err));
    OK(store_cancelling(&f.pg, 500, 2, ids, &err));
    OK(store_requeue_lost(&f.pg, 5000, NULL, 0, &err));
    OK(store_cancel_spent(&f.pg, 2, ids, &err));
    OK(store_snapshots_expire(&f.pg, 2, &err));
    sql("INSERT INTO jobs (id, tenant, template, spec, spec_hash, deadline, cancel_at, state)"
        " SELECT gen_random_uuid(), 'a', 'python', '', '', now() + interval '1 day',"
        " CASE WHEN i % 50 = 0 THEN now() END, CASE WHEN i % 50 = 0 THEN 'running' ELSE 'queued'"
        " END FROM generate_series(1, 20000) i");
    sql("ANALYZE jobs");
    static const struct {
        const char *call, *want;
    } looks[] = { { "expire('skipped', '', 500)", "Index Cond: (deadline <= now())" },
                  { "cancel_waiting('cancelled', '', 500)", "jobs_cancelling" },
                  { "cancelling(500, 500)", "Index Cond: (cancel_at < (now() -" },
                  { "requeue_lost(5000, '{}')", "Index Cond: (scheduled_at < (now() -" },
                  { "cancel_spent(500)", "jobs_in_flight" },
                  { "snapshot_expire(100)", "Index Cond: (expires_at < now())" } };
    static const char *const modes[] = { "force_custom_plan", "force_generic_plan" };
    for (int m = 0; m < 2; m++) {
        char set[64], text[4096];
        (void)snprintf(set, sizeof set, "SET plan_cache_mode = %s", modes[m]);
        sql(set);
        for (int i = 0; i < (int)(sizeof looks / sizeof looks[0]); i++) {
            plan(looks[i].call, text);
            cr_expect(strstr(text, looks[i].want), "%s, %s:\n%s", looks[i].call, modes[m], text);
        }
    }
}

/* Waits until a job is in that state. */
static void until_state(const struct id *id, const char *state)
{
    char text[160], is[32] = "";
    (void)snprintf(text, sizeof text, "SELECT state FROM jobs WHERE id = '%s'", id->text);
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end && strcmp(is, state) != 0;) {
        s.announced = true;
        turns(1);
        fixture_value(&f, text, is, sizeof is);
    }
    cr_assert_str_eq(is, state);
}

static void lose_worker(void)
{
    struct claim c;
    struct retry_policy policy = retry_policy_of(&config);
    cr_assert_eq(queue_claim(&f.queue, "w", WAIT_MS, &c, &err), 1, "%s", err.text);
    OK(store_attempt_failed(&f.pg, c.job_id, c.attempt, "w", RETRY_WORKER_LOST, "lost", &policy,
                            NULL, &err));
    const char *ids[] = { c.stream_id };
    OK(queue_claim_ack(&f.queue, ids, 1, &err));
    claim_done(&c);
}

/* A try that has a verdict, and a worker of ours that was lost, do not make a job skipped. */
Test(ends, what_was_dispatched_before_its_deadline_goes_on_behind_it)
{
    struct id id;
    submit_to("a", JOB_OF(",\"retries\":1,\"deadline\":\"2999-01-01T00:00:00Z\""), 1, &id);
    until_state(&id, "scheduled");
    commit_verdict(VERDICT_RUNTIME_ERROR, true);
    sql("UPDATE jobs SET deadline = now()");
    s.ends_at_ms = 0;
    until_state(&id, "scheduled");
    lose_worker();
    sql("UPDATE jobs SET not_before = now()");
    s.ends_at_ms = 0;
    until_state(&id, "scheduled");
    commit_verdict(VERDICT_ACCEPTED, false);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE verdict = 'accepted'"), 1);
    ledger_agrees();
    counts_are_right();
}

/* A try that was followed by a cancel instead of another try: the job's end is of no attempt, so
 * nothing of that try is the end's, and nothing of the ledger is of two. */
Test(ends, a_job_cancelled_between_two_tries_ends_with_no_attempt)
{
    struct id id[2];
    struct cancelled gone;
    for (int i = 0; i < 2; i++) {
        submit_to("a", JOB_OF(",\"retries\":1"), 1, &id[i]);
        until_state(&id[i], "scheduled");
        commit_verdict(VERDICT_RUNTIME_ERROR, true);
        if (i == 1) { /* the other way: it waits, marked, because its worker was lost */
            until_state(&id[i], "scheduled");
            cr_assert_eq(store_cancel(&f.pg, NULL, id[i].text, 1, &gone, &err), 1, "%s", err.text);
            lose_worker();
            s.ends_at_ms = 0;
            until_state(&id[i], "cancelled");
        } else {
            cr_assert_eq(store_cancel(&f.pg, NULL, id[i].text, 1, &gone, &err), 1, "%s", err.text);
            cr_assert(gone.ended);
        }
    }
    sql("INSERT INTO branch_results SELECT job_id, attempt, 1, 0, 'root/0', 'x', true, 'accepted',"
        " 0, 1, 1, 0, 0, 0, '{}', '', '', '', '', '', '' FROM attempts"
        " WHERE outcome = 'retried'");
    for (int i = 0; i < 2; i++) {
        struct branch_result rows[4];
        int n = store_branches(&f.pg, id[i].text, 0, 4, false, rows, &err);
        cr_expect_eq(n, 0, "job %d: %d branches", i, n);
    }
    sql("DELETE FROM branch_results");
    struct result_row row;
    OK(store_job(&f.pg, id[0].text, &row, &err));
    cr_expect_eq(row.result.verdict, VERDICT_CANCELLED);
    cr_expect_eq(row.charged_ms, 1000, "its try is billed");
    result_row_done(&row);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM results JOIN attempts USING (job_id,"
                                    " attempt)"),
                 0);
    ledger_agrees();
    counts_are_right();
}

struct counted {
    int64_t jobs, accepted;
};

static int on_sum(void *ctx, const struct usage_sum *sum, struct err *e)
{
    (void)e;
    struct counted *c = ctx;
    c->jobs += sum->jobs;
    c->accepted += sum->accepted;
    return 0;
}

/* By the line that begins its first sandbox, so that counts add up whatever the grouping. */
Test(ends, a_job_of_several_tries_is_counted_once)
{
    struct id id;
    submit_to("a", JOB_OF(",\"retries\":2"), 1, &id);
    for (int i = 0; i < 3; i++) {
        until_state(&id, "scheduled");
        commit_verdict(i < 2 ? VERDICT_RUNTIME_ERROR : VERDICT_ACCEPTED, i < 2);
    }
    submit_to("a", JOB_OF(""), 1, &id);
    until_state(&id, "scheduled");
    lose_worker();
    sql("UPDATE jobs SET not_before = now() WHERE state = 'retrying'");
    until_state(&id, "scheduled");
    commit_verdict(VERDICT_RUNTIME_ERROR, false);
    for (int by = 0; by < USAGE_GROUP_COUNT; by++) {
        struct counted c = { 0 };
        const struct usage_query q = { .by = (enum usage_group)by, .label = "x" };
        OK(store_usage(&f.pg, &q, on_sum, &c, &err));
        cr_expect(c.jobs == 2 && c.accepted == 1, "by %s: %d jobs, %d accepted",
                  usage_group_word(q.by), (int)c.jobs, (int)c.accepted);
    }
    ledger_agrees();
}

/* Until the keeper looks again the budget says "stopped", of a day that is over. */
Test(ends, a_budget_of_yesterday_cancels_nothing_today)
{
    struct budget b = {
        .tenant = "a", .period = BUDGET_DAY, .warn_percent = 80, .cancel_running = true
    };
    struct id id, marked[1];
    OK(store_budget_put(&f.pg, &b, &err));
    OK(store_budgets_look(&f.pg, &err));
    sql("UPDATE budgets SET since = since - interval '1 day'");
    s.terms_at_ms = 0;
    submit_to("a", JOB_OF(""), 1, &id);
    until_state(&id, "scheduled");
    s.ends_at_ms = 0;
    turns(2);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE cancel_at IS NOT NULL"), 0);
    sql("UPDATE jobs SET cancel_at = NULL");
    sql("UPDATE budgets SET since = since + interval '1 day'");
    cr_expect_eq(store_cancel_spent(&f.pg, 1, marked, &err), 1, "but today's does");
}

/* A keeper that has just begun does not know whether the clock is right. */
Test(ends, hours_are_not_charged_by_a_clock_that_nobody_knows)
{
    struct budget b = { .tenant = "a", .period = BUDGET_DAY, .warn_percent = 80 };
    struct keeper *k;
    sql("INSERT INTO storage_hours (hour, lines) VALUES (date_trunc('hour', now()) - interval '5"
        " hours', 0)");
    OK(store_budget_put(&f.pg, &b, &err));
    OK(keeper_start(&config, &k, &err));
    const char *looked = "SELECT count(*) FROM budgets WHERE looked_at IS NOT NULL";
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end && fixture_number(&f, looked) == 0;) {
        sleep_ms(20);
    }
    keeper_stop(k);
    cr_assert_eq(fixture_number(&f, looked), 1);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM storage_hours"), 1);
}
