/* What finance does with the ledger, against a real Postgres: rates, corrections, closed months,
 * storage, budgets. */
#include "common/store/budgets.h"
#include "common/store/cancel.h"
#include "tests/integration/ledger_case.h"

FIXTURE_MAIN

TestSuite(ledger_books, .init = set_up, .fini = tear_down, .timeout = 120);

/* ---- rates ---- */

Test(ledger_books, rates_change_within_a_run)
{
    struct rate_card card = { .vcpu_second_nanousd = 20000,
                              .gib_second_nanousd = 4500,
                              .rounding_ms = 1,
                              .minimum_ms = 0 },
                     made;
    cr_assert_eq(store_rates_set(&f.pg, &card, "", &made, &err), 0, "%s", err.text);
    int64_t change = made.valid_from_ms;
    cr_assert_eq(made.id, 2);
    cr_assert_geq(change, wall_ms() + 50000);
    card.valid_from_ms = change + 1000;
    cr_assert_eq(store_rates_set(&f.pg, &card, "", &made, &err), -ERR_INVALID, "so near another");
    card.valid_from_ms = change - 3600000 * 2;
    cr_assert_eq(store_rates_set(&f.pg, &card, "", &made, &err), -ERR_INVALID, "in the past");
    card.valid_from_ms = change + 7200001;
    cr_assert_eq(store_rates_set(&f.pg, &card, "", &made, &err), -ERR_INVALID, "no whole second");
    /* a run across the change, by a connection that priced before it was there */
    struct pg old;
    OK(pg_open(&old, f.pg_url, &err));
    run_job(&old, "default", 1700000000000, 100, VERDICT_ACCEPTED, NULL);
    card.valid_from_ms = change + 7200000;
    card.vcpu_second_nanousd = 30000;
    cr_assert_eq(store_rates_set(&f.pg, &card, "", &made, &err), 0, "%s", err.text);
    run_job(&old, "default", made.valid_from_ms - 2000, 5000, VERDICT_ACCEPTED, NULL);
    pg_close(&old);
    char got[128];
    fixture_value(
        &f,
        "SELECT string_agg(rate_id || ':' || charged_ms || ':' || cost_nanousd, ' ' ORDER BY part) "
        "FROM "
        "usage_records WHERE meter = 'vcpu_seconds' AND rate_id > 1 AND measured_ms >= 2000",
        got, sizeof got);
    cr_assert_str_eq(got, "2:2000:40000 3:3000:90000");
    (void)seal_all();
    CLEAN();
}

Test(ledger_books, configured_rates_are_a_new_databases_first)
{
    struct rate_card card = { .vcpu_second_nanousd = 14000,
                              .gib_second_nanousd = 4500,
                              .rounding_ms = 1000,
                              .minimum_ms = 1000 };
    cr_assert_eq(store_rates_first(&f.pg, &card, &err), 0, "the built-in ones");
    card.rounding_ms = 1;
    card.minimum_ms = 100;
    cr_assert_eq(store_rates_first(&f.pg, &card, &err), 1);
    cr_assert_eq(store_rates_first(&f.pg, &card, &err), 0);
    run_job(&f.pg, "default", DAY1, 30, VERDICT_ACCEPTED, NULL);
    cr_assert_eq(
        fixture_number(&f, "SELECT cost_nanousd FROM usage_records WHERE meter = 'vcpu_seconds'"),
        1400);
    CLEAN();
}

/* ---- corrections, closed months ---- */

Test(ledger_books, adjust)
{
    run_job(&f.pg, "default", 1700000000000, 500, VERDICT_ACCEPTED, NULL);
    char line[64];
    fixture_value(&f, "SELECT id FROM usage_records WHERE meter = 'vcpu_seconds'", line,
                  sizeof line);
    struct id id, none = id_new();
    cr_assert_eq(store_adjust(&f.pg, none.text, -1, "why", &id, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_adjust(&f.pg, line, 1, "why", &id, &err), -ERR_INVALID);
    cr_assert_eq(store_adjust(&f.pg, line, -1, "", &id, &err), -ERR_INVALID);
    cr_assert_eq(store_adjust(&f.pg, line, -1, "two\nlines", &id, &err), -ERR_INVALID);
    cr_assert_eq(store_adjust(&f.pg, line, -14001, "why", &id, &err), -ERR_INVALID,
                 "more than it cost");
    OK(store_adjust(&f.pg, line, -4000, "our fault", &id, &err));
    cr_assert_eq(store_adjust(&f.pg, line, -10001, "again", &id, &err), -ERR_INVALID,
                 "more than is left");
    OK(store_adjust(&f.pg, line, -10000, "the rest", &id, &err));
    cr_assert_eq(store_adjust(&f.pg, id.text, -1, "of a correction", &id, &err), -ERR_INVALID);
    cr_assert_eq(fixture_number(&f, "SELECT sum(cost_nanousd) FROM usage_records"), 1125);
    (void)seal_all();
    CLEAN();
}

Test(ledger_books, close_a_month)
{
    run_job(&f.pg, "a", 1700000000000, 500, VERDICT_ACCEPTED, NULL); /* 2023-11 */
    run_job(&f.pg, "b", 1700000000000, 500, VERDICT_ACCEPTED, NULL);
    run_job(&f.pg, "a", 1703000000000, 500, VERDICT_ACCEPTED, NULL); /* 2023-12 */
    (void)seal_all();
    run_job(&f.pg, "a", 1700000001000, 500, VERDICT_ACCEPTED, NULL); /* not sealed */
    struct closed_month m;
    cr_assert_eq(store_close_month(&f.pg, usage_month(wall_ms()), &m, &err), -ERR_INVALID,
                 "not over");
    cr_assert_eq(store_close_month(&f.pg, 202312, &m, &err), -ERR_INVALID,
                 "an earlier one is open");
    OK(store_close_month(&f.pg, 202311, &m, &err));
    cr_assert_eq(m.lines, 6);
    cr_assert_eq(m.tenants, 2);
    cr_assert_eq(m.cost_nanousd, 3 * 15125);
    cr_assert_eq(store_close_month(&f.pg, 202311, &m, &err), -ERR_CONFLICT);
    CLEAN();
    /* late: billed in the next month, by a connection that did not know */
    run_job(&f.pg, "a", 1700000002000, 500, VERDICT_ACCEPTED, NULL);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records WHERE period = 202311"), 6);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records WHERE period = 202312"), 4);
    (void)seal_all();
    CLEAN();
    OK(store_close_month(&f.pg, 202312, &m, &err));
    cr_assert_eq(m.lines, 4);
    CLEAN();
    tamper(
        "UPDATE usage_period_totals SET cost_nanousd = 1 WHERE period = 202311 AND tenant = 'b'");
    struct found all = check(NULL);
    cr_assert_eq(all.n, 1);
    cr_assert(has(&all, "month", ""), "%s", all.last[0].text);
}

/* ---- storage ---- */

static const char *const two_snapshots =
    "INSERT INTO snapshots (id, tenant, name, digest, layers, template, template_digest, engine, "
    "engine_version, cpu_model, "
    "kernel_digest, vcpus, memory_mib, ram_bytes, layer_bytes, ttl_s, pinned, created_at) SELECT "
    "g.id::uuid, 'default', g.name, 'd', "
    "'{x}', 'python', 'd', 'qemu-tcg', '7', 'c', 'k', 1, 256, 1, g.bytes, 0, true, "
    "date_trunc('hour', clock_timestamp()) - "
    "g.age FROM (VALUES ('00000000-0000-7000-8000-00000000000a', 'old', 1073741824::int8, interval "
    "'5 hours'), "
    "('00000000-0000-7000-8000-00000000000b', 'new', 3221225472, interval '90 minutes')) g (id, "
    "name, bytes, age)";

Test(ledger_books, storage_is_charged_by_the_hour_once)
{
    sql(two_snapshots);
    cr_assert_eq(store_charge_storage(&f.pg, wall_ms(), &err), 0, "%s", err.text);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), 0,
                 "begins with this hour");
    /* as if the schema had come three hours ago */
    sql("SET brood.ledger_change = 'on'; ALTER TABLE storage_hours DISABLE TRIGGER ALL; UPDATE "
        "storage_hours SET hour = hour - "
        "interval '3 hours'; ALTER TABLE storage_hours ENABLE TRIGGER ALL; RESET "
        "brood.ledger_change");
    int hours = 0;
    for (int rc; (rc = store_charge_storage(&f.pg, wall_ms(), &err)) != 0; hours++) {
        cr_assert_eq(rc, 1, "%s", err.text);
    }
    cr_assert(hours == 2 || hours == 3, "%d: the last one has a grace of ten minutes", hours);
    /* [-3h,-2h): old alone; [-2h,-1h): old, and new for 30 minutes */
    cr_assert_eq(fixture_number(&f, "SELECT cost_nanousd FROM usage_records WHERE resource LIKE "
                                    "'%a' ORDER BY from_ts LIMIT 1"),
                 108000);
    cr_assert_eq(
        fixture_number(
            &f,
            "SELECT amount FROM usage_records WHERE resource LIKE '%b' ORDER BY from_ts LIMIT 1"),
        1610612736);
    cr_assert_eq(fixture_number(&f, "SELECT cost_nanousd FROM usage_records WHERE resource LIKE "
                                    "'%b' ORDER BY from_ts LIMIT 1"),
                 162000);
    (void)seal_all();
    CLEAN();
    /* gone now: what it was before can still be computed */
    sql("DELETE FROM snapshots WHERE name = 'new'");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM storage_ended"), 1);
    CLEAN();
    char line[64];
    fixture_value(&f,
                  "SELECT id FROM usage_records WHERE resource LIKE '%b' ORDER BY from_ts LIMIT 1",
                  line, sizeof line);
    tamper("UPDATE usage_records SET amount = amount + 1 WHERE id = (SELECT id FROM usage_records "
           "WHERE resource LIKE '%b' ORDER BY "
           "from_ts LIMIT 1)");
    struct found all = check(NULL);
    cr_assert(has(&all, "disagrees", line), "%s %s", all.last[0].what, all.last[0].text);
}

/* As if all of it had happened so many hours earlier. */
static void shift_hours(int hours)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "SET brood.ledger_change = 'on'; ALTER TABLE storage_hours DISABLE TRIGGER ALL; "
                   "UPDATE storage_hours SET hour = hour - interval '%d hours'; ALTER TABLE "
                   "storage_hours ENABLE TRIGGER ALL; RESET brood.ledger_change; UPDATE jobs SET "
                   "finished_at = finished_at - interval '%d hours'; UPDATE artifacts SET "
                   "stored_at = stored_at - interval '%d hours'",
                   hours, hours, hours);
    sql(text);
}

static void charge_all(void)
{
    for (int rc; (rc = store_charge_storage(&f.pg, wall_ms(), &err)) != 0;) {
        cr_assert_eq(rc, 1, "%s", err.text);
    }
}

#define LATE_SHA "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

/* An ended job, of a batch or NULL, whose artifact of 1 GiB waits for the object store. */
static void end_with_pending(const char *batch, char ret_job[ID_TEXT_BYTES])
{
    struct submit_item one = { .spec = fixture_job("true", NULL) };
    struct dispatch_row row;
    struct job_result r;
    struct manifest m = { 0 };
    struct artifact *a = NULL;
    OK(store_submit(&f.pg, "default", batch, NULL, -1, &one, 1, true, &err));
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1, "%s", err.text);
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    r.vcpus = 1;
    r.memory_mib = 256;
    r.leased_wall_ms = wall_ms();
    r.ended_wall_ms = r.leased_wall_ms + 500;
    r.measured_ms = 500;
    OK(manifest_add(&m, "out/a", 5, NULL, 0, &a, &err));
    a->type = ARTIFACT_FILE;
    a->size = 1 << 30;
    a->reason = ARTIFACT_PENDING;
    memcpy(a->sha256, LATE_SHA, sizeof a->sha256);
    struct commit_item item = { .job_id = row.job_id,
                                .tenant = row.tenant,
                                .template_name = "python",
                                .worker = "w",
                                .attempt = row.attempt,
                                .result = &r,
                                .billed = job_result_billed(&r),
                                .artifacts = &m };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(item.ret_won);
    memcpy(ret_job, row.job_id, ID_TEXT_BYTES);
    manifest_done(&m);
    job_result_done(&r);
    dispatch_rows_done(&row, 1);
}

#define LATE_LINES "FROM usage_records WHERE meter = 'artifact_gib_hours'"

/* Hours in which it was not there are not billed, also when they are looked at again; and a worker
 * that is killed between storing it and forgetting it says twice that it came. */
Test(ledger_books, a_late_artifact_is_billed_once_and_from_when_it_came)
{
    char job[ID_TEXT_BYTES], came[64], again[64];
    end_with_pending(NULL, job);
    cr_assert_eq(store_charge_storage(&f.pg, wall_ms(), &err), 0, "%s", err.text);
    shift_hours(5);
    charge_all();
    cr_assert_eq(fixture_number(&f, "SELECT count(*) " LATE_LINES), 0);
    cr_assert_eq(store_artifact_came(&f.pg, job, LATE_SHA, &err), 1, "%s", err.text);
    fixture_value(&f, "SELECT stored_at FROM artifacts", came, sizeof came);
    cr_assert_eq(store_artifact_came(&f.pg, job, LATE_SHA, &err), 1, "%s", err.text);
    fixture_value(&f, "SELECT stored_at FROM artifacts", again, sizeof again);
    cr_assert_str_eq(came, again);
    cr_assert_gt(strlen(came), 0);
    charge_all();
    cr_assert_eq(fixture_number(&f, "SELECT count(*) " LATE_LINES), 0, "no hour of it is over");
    shift_hours(3);
    charge_all();
    charge_all();
    long hours = fixture_number(&f, "SELECT count(*) FROM storage_hours WHERE hour >= "
                                    "date_trunc('hour', (SELECT stored_at FROM artifacts))");
    cr_assert(hours == 2 || hours == 3, "%ld: the last one has a grace of ten minutes", hours);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) " LATE_LINES), hours);
    cr_assert_eq(fixture_number(&f, "SELECT count(DISTINCT from_ts) " LATE_LINES), hours);
    /* moments are cut to milliseconds, of which each is 299 byte-hours */
    cr_assert_leq(fixture_number(&f, "SELECT abs(sum(amount) - round(1073741824 * extract(epoch "
                                     "FROM max(to_ts) - (SELECT stored_at FROM artifacts)) / "
                                     "3600)) " LATE_LINES),
                  299);
    (void)seal_all();
    CLEAN();
}

/* A batch may have jobs of several templates. What a later one keeps changes no hour before it. */
Test(ledger_books, what_jobs_of_two_templates_keep_is_billed_once)
{
    const struct id batch = id_new();
    static const char *const templates[] = { "python", "node", "a-later-one" };
    for (int i = 0; i < 3; i++) {
        char job[ID_TEXT_BYTES], text[200];
        end_with_pending(batch.text, job);
        cr_assert_eq(store_artifact_came(&f.pg, job, LATE_SHA, &err), 1, "%s", err.text);
        (void)snprintf(text, sizeof text, "UPDATE jobs SET template = '%s' WHERE id = '%s'",
                       templates[i], job);
        sql(text);
        if (i == 1) {
            cr_assert_eq(store_charge_storage(&f.pg, wall_ms(), &err), 0, "%s", err.text);
            shift_hours(3);
            charge_all();
        }
    }
    cr_expect_eq(fixture_number(&f, "SELECT count(*) " LATE_LINES),
                 fixture_number(&f, "SELECT count(DISTINCT from_ts) " LATE_LINES));
    cr_expect_eq(fixture_number(&f, "SELECT max(amount) " LATE_LINES), 1 << 30);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) " LATE_LINES " AND template = 'node'"),
                 fixture_number(&f, "SELECT count(*) " LATE_LINES));
    (void)seal_all();
    CLEAN();
}

/* ---- budgets ---- */

Test(ledger_books, budget_warns_stops_and_resumes)
{
    struct budget b = { .tenant = "default",
                        .period = BUDGET_MONTH,
                        .limit_nanousd = 4 * 15125,
                        .warn_percent = 50 },
                  got;
    cr_assert_eq(store_budgets(&f.pg, &got, 1, &err), 0, "no budget");
    OK(store_budget_put(&f.pg, &b, &err));
    cr_assert_eq(store_budgets_look(&f.pg, &err), 0);
    int64_t now = wall_ms();
    run_job(&f.pg, "default", now, 500, VERDICT_ACCEPTED, NULL);
    run_job(&f.pg, "default", 1700000000000, 500, VERDICT_ACCEPTED, NULL); /* not of this month */
    (void)seal_all();
    cr_assert_eq(store_budgets_look(&f.pg, &err), 0);
    run_job(&f.pg, "default", now, 500, VERDICT_ACCEPTED, NULL); /* half; not sealed */
    cr_assert_eq(store_budgets_look(&f.pg, &err), 1);
    cr_assert_eq(store_budgets_look(&f.pg, &err), 0, "once");
    cr_assert_eq(store_budgets(&f.pg, &got, 1, &err), 1);
    cr_assert_eq(got.state, BUDGET_WARNED);
    cr_assert_eq(got.spent_nanousd, 2 * 15125);
    (void)seal_all();
    cr_assert_eq(store_budgets_look(&f.pg, &err), 0, "sealing changes nothing");
    run_job(&f.pg, "default", now, 1500, VERDICT_ACCEPTED, NULL);
    cr_assert_eq(store_budgets_look(&f.pg, &err), 1);
    cr_assert_eq(store_budgets(&f.pg, &got, 1, &err), 1);
    cr_assert_eq(got.state, BUDGET_STOPPED);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM tenant_stops WHERE name = 'default'"), 1);
    struct budget_event events[8];
    cr_assert_eq(store_budget_events(&f.pg, events, 8, &err), 2);
    cr_assert_str_eq(events[0].kind, "budget.warned");
    cr_assert_str_eq(events[1].kind, "budget.stopped");
    cr_assert_eq(events[1].spent_nanousd, 4 * 15125);
    OK(store_budget_told(&f.pg, events[1].id, &err));
    cr_assert_eq(store_budget_events(&f.pg, events, 8, &err), 0);
    b.limit_nanousd *= 10;
    OK(store_budget_put(&f.pg, &b, &err));
    cr_assert_eq(store_budgets_look(&f.pg, &err), 1);
    cr_assert_eq(store_budget_events(&f.pg, events, 8, &err), 1);
    cr_assert_str_eq(events[0].kind, "budget.resumed");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM tenant_stops"), 0);
    OK(store_budget_remove(&f.pg, "default", &err));
    cr_assert_eq(store_budget_remove(&f.pg, "default", &err), -ERR_NOT_FOUND);
}

/* Case B119: nobody calls stop, and still somebody is told while it runs. */
Test(ledger_books, b119_long_runners_are_told)
{
    struct budget b = { .tenant = "default",
                        .period = BUDGET_TOTAL,
                        .limit_nanousd = 1000000000,
                        .warn_percent = 80,
                        .long_running_ms = 1,
                        .cancel_running = true };
    struct submit_item one = { .spec = fixture_job("true", NULL) };
    struct dispatch_row row;
    OK(store_budget_put(&f.pg, &b, &err));
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &one, 1, true, &err));
    cr_assert_eq(store_budgets_look(&f.pg, &err), 0, "only what runs");
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
    sleep_ms(10);
    cr_assert_eq(store_budgets_look(&f.pg, &err), 1);
    cr_assert_eq(store_budgets_look(&f.pg, &err), 0, "once an attempt");
    struct budget_event e;
    cr_assert_eq(store_budget_events(&f.pg, &e, 1, &err), 1);
    cr_assert_str_eq(e.kind, "job.long_running");
    cr_assert_str_eq(e.job_id, row.job_id);
    struct id ids[2];
    cr_assert_eq(store_cancel_spent(&f.pg, 2, ids, &err), 0);
    b.limit_nanousd = 0;
    OK(store_budget_put(&f.pg, &b, &err));
    OK(store_budgets_look(&f.pg, &err));
    cr_assert_eq(store_cancel_spent(&f.pg, 2, ids, &err), 1);
    dispatch_rows_done(&row, 1);
}
