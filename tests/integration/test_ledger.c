/* The ledger against a real Postgres: what the database refuses, what is committed, what the check
 * finds. Numbers of cases are those of the field cases about billing. */
#include <pthread.h>

#include "common/store/usage.h"
#include "common/store/leader.h"
#include "tests/integration/ledger_case.h"

FIXTURE_MAIN

TestSuite(ledger, .init = set_up, .fini = tear_down, .timeout = 120);

/* ---- what the database refuses ---- */

Test(ledger, append_only_for_everyone)
{
    run_job(&f.pg, "default", DAY1, 500, VERDICT_ACCEPTED, NULL);
    (void)seal_all();
    static const char *const tries[] = {
        "UPDATE usage_records SET cost_nanousd = 0",
        "DELETE FROM usage_records",
        "TRUNCATE usage_records",
        "UPDATE usage_records SET cost_nanousd = 0 WHERE false",
        "UPDATE usage_seals SET lines = 1",
        "DELETE FROM usage_seals",
        "TRUNCATE usage_seals",
        "UPDATE rates SET vcpu_second_nanousd = 0",
        "DELETE FROM rates",
        "TRUNCATE rates",
        "DELETE FROM usage_periods",
        "TRUNCATE usage_periods CASCADE",
        "DELETE FROM storage_hours",
        "SET session_replication_role = replica; UPDATE usage_records SET cost_nanousd = 0",
        "ALTER TABLE usage_records DISABLE TRIGGER ALL",
        "DROP TRIGGER ledger_rows ON usage_records",
        "DROP TABLE usage_records",
        "ALTER TABLE rates RENAME TO prices",
        "CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "
        "RETURN "
        "NEW; END'",
    };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        PGresult *res = PQexec(f.pg.conn, tries[i]);
        cr_expect_eq(PQresultStatus(res), PGRES_FATAL_ERROR, "%s went through", tries[i]);
        cr_expect(strcmp(PQresultErrorField(res, PG_DIAG_SQLSTATE), "23001") == 0, "%s: %s",
                  tries[i], PQresultErrorMessage(res));
        PQclear(res);
        sql("SET session_replication_role = DEFAULT");
    }
    cr_assert_eq(fixture_number(&f, "SELECT sum(cost_nanousd) FROM usage_records"), 15125);
    CLEAN();
}

/* ---- commits ---- */

/* Case B121, in the database: 10 s before to 10 s after the end of a month. */
Test(ledger, b121_month_end)
{
    char job[ID_TEXT_BYTES];
    run_job(&f.pg, "default", EDGE - 10000, 20000, VERDICT_ACCEPTED, job);
    char got[128];
    fixture_value(
        &f,
        "SELECT string_agg(period || ':' || part || ':' || measured_ms || ':' || cost_nanousd, ' ' "
        "ORDER BY pos) FROM usage_records WHERE meter = 'vcpu_seconds'",
        got, sizeof got);
    cr_assert_str_eq(got, "202612:0:10000:140000 202701:1:10000:140000");
    struct result_row row;
    OK(store_job(&f.pg, job, &row, &err));
    cr_assert_eq(row.measured_ms, 20000);
    cr_assert_eq(row.cost_nanousd, 280000 + 22500);
    result_row_done(&row);
    (void)seal_all();
    CLEAN();
}

/* Case B125: the same attempt committed again, after its lines were sealed and its month closed. */
Test(ledger, b125_committed_twice)
{
    struct submit_item one = { .spec = fixture_job("true", NULL) };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &one, 1, true, &err));
    struct dispatch_row row;
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    r.vcpus = 1;
    r.memory_mib = 256;
    r.leased_wall_ms = 1700000000000; /* 2023-11 */
    r.measured_ms = 10;
    struct commit_item item = { .job_id = row.job_id,
                                .tenant = "default",
                                .template_name = "python@d1",
                                .worker = "w",
                                .attempt = 1,
                                .result = &r,
                                .billed = true };
    struct closed_month m;
    OK(store_commit(&f.pg, &item, 1, &err));
    (void)seal_all();
    OK(store_close_month(&f.pg, 202311, &m, &err));
    for (int i = 0; i < 3; i++) {
        OK(store_commit(&f.pg, &item, 1, &err));
        cr_assert(item.ret_won, "it is this worker's: reported as the same");
    }
    item.worker = "another";
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(!item.ret_won);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), 2);
    CLEAN();
    dispatch_rows_done(&row, 1);
    job_result_done(&r);
}

static void count_changed(void *ctx, const struct ledger_finding *finding)
{
    *(int *)ctx += strcmp(finding->what, "changed") == 0;
}

/* Lines that are not what was sealed. These here belong to no job, which is found, too. */
static int changed(void)
{
    int n = 0;
    struct ledger_check c;
    OK(store_ledger_check(&f.pg, count_changed, &n, &c, &err));
    free(c.heads);
    return n;
}

/* Sealing computes the canonical form itself, the check has Postgres do it. Times are rounded to
 * milliseconds there, halves away from zero, before 1970 too; texts are as they are. */
Test(ledger, a_line_is_sealed_as_it_is_checked)
{
    static const char *const times[] = { "2026-12-31 00:00:00.0005", "2026-12-31 00:00:00.0015",
                                         "2026-12-31 23:59:59.9995", "2026-12-31 00:00:00.000499",
                                         "1969-12-31 23:59:59.9995", "1969-12-31 23:59:59.999501",
                                         "1900-01-01 00:00:00.0005", "1970-01-01 00:00:00",
                                         "1969-12-31 00:00:00.0004", "2400-02-29 12:00:00.123456" };
    const int n = sizeof times / sizeof times[0];
    for (int i = 0; i < n; i++) {
        char text[1024];
        (void)snprintf(
            text, sizeof text,
            "INSERT INTO usage_records (id, tenant, job_id, attempt, branch, meter, template, "
            "labels, from_ts, to_ts, measured_ms, charged_ms, amount, unit_price_nanousd, "
            "cost_nanousd, period, part, rate_id, batch_id, verdict, resource, kind, corrects, "
            "reason) VALUES (gen_random_uuid(), 't', %s, %d, 'root/%d', 'vcpu_seconds', "
            "'caf\xc3\xa9', "
            "'{\"b\": \"\xe2\x82\xac\", \"a\": \"x y\"}', timestamptz '%s+00', timestamptz '%s+00' "
            "+ "
            "interval '1 s', 1, 2, 3, 4, %s, 202612, %d, %s, %s, %s, %s, %s)",
            i % 2 ? "NULL" : "gen_random_uuid()", i, i, times[i], times[i],
            i % 3 ? "900000000000000001" : "0", i, i % 2 ? "NULL" : "1",
            i % 3 ? "NULL" : "gen_random_uuid()", i % 2 ? "'accepted'" : "NULL",
            i % 2 ? "NULL" : "'a/b'",
            i % 4 ? "'usage', NULL, NULL" : "'adjustment', gen_random_uuid(), 'why'");
        sql(text);
    }
    cr_assert_eq(seal_all(), n);
    cr_expect_eq(changed(), 0, "%d lines are sealed otherwise than they are checked", changed());
    tamper("UPDATE usage_records SET to_ts = to_ts + interval '1 ms' WHERE attempt = 3");
    cr_expect_eq(changed(), 1, "this check would find it");
    char days[256];
    fixture_value(&f, "SELECT string_agg(day || ':' || lines, ' ' ORDER BY day) FROM usage_days",
                  days, sizeof days);
    cr_assert_str_eq(days, "1900-01-01:1 1969-12-31:3 1970-01-01:1 2026-12-31:4 2400-02-29:1");
}

struct committer {
    const char *tenant;
    int n;
};

static void *commit_many(void *arg)
{
    const struct committer *c = arg;
    struct pg pg;
    struct err e;
    if (pg_open(&pg, f.pg_url, &e) == 0) {
        for (int i = 0; i < c->n; i++) {
            run_job(&pg, c->tenant, DAY1 + i, 100 + i, VERDICT_ACCEPTED, NULL);
        }
    }
    pg_close(&pg);
    return NULL;
}

/* Committers of one tenant and of two, and the keeper sealing meanwhile: every line sealed once, in
 * order. */
Test(ledger, concurrent_committers_and_sealing)
{
    struct committer c[3] = { { "one", 60 }, { "one", 60 }, { "two", 60 } };
    pthread_t t[3];
    struct seal_state s = { 0 };
    int sealed = 0;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&t[i], NULL, commit_many, &c[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        int n = store_seal(&f.pg, &s, &err);
        cr_assert_geq(n, 0, "%s", n < 0 ? err.text : "");
        sealed += n;
        sleep_ms(10);
    }
    for (int i = 0; i < 3; i++) {
        (void)pthread_join(t[i], NULL);
    }
    sealed += seal_rest(&s);
    cr_assert_eq(sealed, 360);
    cr_assert_eq(fixture_number(&f, "SELECT sum(lines) FROM usage_seals"), 360);
    CLEAN();
}

/* A line whose transaction is open while others are sealed is not passed over. */
Test(ledger, an_open_transaction_delays_sealing)
{
    struct pg slow;
    OK(pg_open(&slow, f.pg_url, &err));
    PQclear(PQexec(slow.conn, "BEGIN; SELECT pg_current_xact_id(); SELECT nextval('usage_pos')"));
    run_job(&f.pg, "default", DAY1, 500, VERDICT_ACCEPTED, NULL);
    struct seal_state s = { 0 };
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(store_seal(&f.pg, &s, &err), 0);
    }
    PQclear(PQexec(slow.conn, "COMMIT"));
    cr_assert_eq(seal_rest(&s), 2);
    cr_assert_eq(store_seal(&f.pg, &s, &err), 0);
    pg_close(&slow);
    CLEAN();
}

/* The scheduler that leads holds a lock of its session; its keeper seals by another. */
Test(ledger, a_leader_does_not_keep_lines_from_being_sealed)
{
    struct pg leader;
    OK(pg_open(&leader, f.pg_url, &err));
    cr_assert_eq(store_lead(&leader, &err), 1);
    run_job(&f.pg, "default", DAY1, 500, VERDICT_ACCEPTED, NULL);
    cr_assert_eq(seal_all(), 2);
    cr_assert_eq(store_lead(&leader, &err), 1);
    pg_close(&leader);
    CLEAN();
}

/* ---- what the check finds ---- */

Test(ledger, tampering_is_found_and_named)
{
    char jobs[6][ID_TEXT_BYTES], line[64], other[64];
    for (int i = 0; i < 6; i++) {
        run_job(&f.pg, "default", DAY1 + i * 1000, 500, VERDICT_ACCEPTED, jobs[i]);
    }
    cr_assert_eq(seal_all(), 12);
    CLEAN();
    char query[256];
    (void)snprintf(query, sizeof query,
                   "SELECT id FROM usage_records WHERE job_id = '%s' AND meter = 'vcpu_seconds'",
                   jobs[2]);
    fixture_value(&f, query, line, sizeof line);
    (void)snprintf(query, sizeof query,
                   "SELECT id FROM usage_records WHERE job_id = '%s' AND meter = 'vcpu_seconds'",
                   jobs[4]);
    fixture_value(&f, query, other, sizeof other);

    /* edited: by one nano-dollar */
    (void)snprintf(query, sizeof query,
                   "UPDATE usage_records SET cost_nanousd = cost_nanousd + 1 WHERE id = '%s'",
                   line);
    tamper(query);
    struct found all = check(NULL);
    cr_assert(has(&all, "changed", line), "%s %s", all.last[0].what, all.last[0].text);
    cr_assert(has(&all, "disagrees", line));
    (void)snprintf(query, sizeof query,
                   "UPDATE usage_records SET cost_nanousd = cost_nanousd - 1 WHERE id = '%s'",
                   line);
    tamper(query);
    CLEAN();

    /* moved: two lines change places */
    (void)snprintf(
        query, sizeof query,
        "CREATE TEMP TABLE p AS SELECT id, pos FROM usage_records WHERE id IN ('%s','%s')", line,
        other);
    sql(query);
    tamper("UPDATE usage_records SET pos = -pos WHERE id IN (SELECT id FROM p); UPDATE "
           "usage_records u SET pos = "
           "(SELECT pos FROM p WHERE p.id <> u.id) WHERE id IN (SELECT id FROM p)");
    all = check(NULL);
    cr_assert(has(&all, "changed", line) && has(&all, "changed", other), "%d found", all.n);
    tamper("UPDATE usage_records SET pos = -pos WHERE id IN (SELECT id FROM p); UPDATE "
           "usage_records u SET pos = "
           "(SELECT pos FROM p WHERE p.id = u.id) WHERE id IN (SELECT id FROM p)");
    CLEAN();

    /* put in: behind what was sealed */
    tamper("INSERT INTO usage_records SELECT (jsonb_populate_record(u, jsonb_build_object('id', "
           "'00000000-0000-4000-8000-000000000000', 'pos', 0, 'part', 7))).* FROM usage_records u "
           "WHERE pos = 1");
    all = check(NULL);
    cr_assert(has(&all, "inserted", "00000000-0000-4000-8000-000000000000"), "%d %s", all.n,
              all.last[0].what);
    cr_assert(has(&all, "unfounded", "00000000-0000-4000-8000-000000000000"));
    tamper("DELETE FROM usage_records WHERE pos = 0");
    CLEAN();

    /* removed */
    (void)snprintf(query, sizeof query, "DELETE FROM usage_records WHERE id = '%s'", line);
    tamper(query);
    all = check(NULL);
    cr_assert(has(&all, "missing", line), "%s %s", all.last[0].what, all.last[0].text);
    cr_assert(has(&all, "unbilled", line));
}

Test(ledger, a_changed_seal_is_found)
{
    for (int i = 0; i < 3; i++) {
        run_job(&f.pg, "default", DAY1, 500, VERDICT_ACCEPTED, NULL);
        (void)seal_all();
    }
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_seals"), 3);
    CLEAN();
    tamper("UPDATE usage_seals SET cost_nanousd = cost_nanousd + 1 WHERE seal = 2");
    struct found all = check(NULL);
    cr_assert(has(&all, "chain", ""));
    tamper("UPDATE usage_seals SET cost_nanousd = cost_nanousd - 1 WHERE seal = 2");
    CLEAN();
    tamper("DELETE FROM usage_seals WHERE seal = 2");
    all = check(NULL);
    cr_assert(has(&all, "chain", ""));
    cr_assert_geq(all.n, 2);
}

/* Case B124: 50 jobs of three tenants, nothing sealed for a while, a job's row lost meanwhile. */
Test(ledger, b124_nothing_is_without_an_owner)
{
    static const char *const who[] = { "a", "b", "c" };
    for (int i = 0; i < 50; i++) {
        run_job(&f.pg, who[i % 3], DAY1 + i, 300, i % 5 ? VERDICT_ACCEPTED : VERDICT_JUDGE_ERROR,
                NULL);
    }
    struct ledger_check c;
    struct found all = check(&c);
    cr_assert_eq(all.n, 0);
    cr_assert_eq(c.lines, 80);
    cr_assert_eq(c.unsealed, 80, "the lag is a figure");
    cr_assert_eq(c.jobs, 50);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records WHERE tenant IS NULL"), 0);
    (void)seal_all();
    CLEAN();
    sql("SET session_replication_role = replica; DELETE FROM results WHERE job_id = (SELECT job_id "
        "FROM "
        "usage_records ORDER BY pos LIMIT 1); RESET session_replication_role");
    all = check(NULL);
    cr_assert_geq(all.n, 2, "its lines, and the job without a result");
    cr_assert_str_eq(all.last[0].what, "unfounded");
}

Test(ledger, what_is_not_sealed_yet_is_counted)
{
    run_job(&f.pg, "default", DAY1, 700, VERDICT_ACCEPTED, NULL);
    int64_t lines, oldest_ms;
    OK(store_unsealed(&f.pg, 100, &lines, &oldest_ms, &err));
    cr_assert_eq(lines, 2);
    cr_assert_geq(oldest_ms, 0);
    cr_assert_eq(seal_all(), 2);
    OK(store_unsealed(&f.pg, 100, &lines, &oldest_ms, &err));
    cr_assert_eq(lines, 0);
    cr_assert_eq(oldest_ms, -1);
}

Test(ledger, faults_of_ours_are_counted_not_billed)
{
    struct submit_item one = { .spec = fixture_job("true", NULL) };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &one, 1, true, &err));
    struct dispatch_row row;
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
    static const struct retry_policy policy = { .attempts_max = 5, .waits_max = 5 };
    sleep_ms(5);
    OK(store_attempt_failed(&f.pg, row.job_id, 1, "w", RETRY_BROKEN, "broke", &policy, NULL, &err));
    dispatch_rows_done(&row, 1);
    run_job(&f.pg, "default", DAY1, 700, VERDICT_JUDGE_ERROR, NULL);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), 0);
    struct overhead_row rows[OVERHEAD_ROWS_MAX];
    struct usage_query q = { .tenant = "default" };
    cr_assert_eq(store_overhead(&f.pg, &q, rows, &err), 2, "%s", err.text);
    cr_assert_str_eq(rows[0].what, "infra");
    cr_assert_geq(rows[0].ms, 5);
    cr_assert_str_eq(rows[1].what, "unbilled judge_error");
    cr_assert_eq(rows[1].ms, 700);
    CLEAN();
}
