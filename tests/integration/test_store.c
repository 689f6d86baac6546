/* The store against a real Postgres: migration, submission, dispatch, commit, reading back. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/pg_internal.h"
#include "common/store/usage.h"
#include "common/store/cancel.h"
#include "common/store/tenants.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

static struct fixture f;
static struct err err;

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)

static void set_up(void)
{
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(store, .init = set_up, .fini = tear_down, .timeout = 120);

/* n jobs "echo <i>" in one call; ids into ret_ids. */
static void submit_n(const char *batch, int n, struct id *ret_ids)
{
    struct submit_item *items = calloc((size_t)n, sizeof *items);
    for (int i = 0; i < n; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "echo %d", i);
        items[i].spec = fixture_job(line, NULL);
    }
    OK(store_submit(&f.pg, "default", batch, "a batch", 0, items, n, true, &err));
    for (int i = 0; i < n; i++) {
        if (ret_ids) {
            ret_ids[i] = items[i].ret_id;
        }
    }
    free(items);
}

static void dispatch_one(struct dispatch_row *row)
{
    int n = fixture_dispatch(&f.pg, 1, row, &err);
    cr_assert_eq(n, 1, "dispatch: %d %s", n, n < 0 ? err.text : "");
}

static void make_result(struct job_result *r, enum verdict v, const char *out, size_t len)
{
    job_result_init(r);
    r->verdict = v;
    r->run.present = true;
    r->run.out.head.data = malloc(len + 1);
    memcpy(r->run.out.head.data, out, len);
    r->run.out.head.len = len;
    r->run.out.total_bytes = len;
    r->vcpus = 1;
    r->memory_mib = 256;
    r->leased_wall_ms = 1700000000123;
    r->measured_ms = 30;
}

static bool commit_one(const char *job, int attempt, const char *worker, struct job_result *r)
{
    struct commit_item item = { .job_id = job,
                                .tenant = "default",
                                .template_name = "python",
                                .worker = worker,
                                .attempt = attempt,
                                .result = r,
                                .billed = true };
    OK(store_commit(&f.pg, &item, 1, &err));
    return item.ret_won;
}

/* ---- migrations ---- */

Test(store, migrate_again_does_nothing)
{
    cr_assert_eq(pg_migrate(&f.pg, &err), 0, "%s", err.text);
    cr_assert_geq(pg_schema_version(&f.pg, &err), 1);
}

Test(store, migrate_by_two_processes_at_once)
{
    char url[320];
    PGconn *c = PQconnectdb(f.pg_url);
    PQclear(PQexec(c, "CREATE DATABASE fresh"));
    PQfinish(c);
    (void)snprintf(url, sizeof url, "%.*s dbname=fresh",
                   (int)(strstr(f.pg_url, " dbname=") - f.pg_url), f.pg_url);
    pid_t child[2];
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            struct pg pg;
            int rc = pg_open(&pg, url, &err);
            rc = rc < 0 ? rc : pg_migrate(&pg, &err);
            _exit(rc < 0 ? 99 : rc);
        }
    }
    int applied = 0;
    for (int i = 0; i < 2; i++) {
        int status;
        cr_assert_eq(waitpid(child[i], &status, 0), child[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) != 99, "a migration failed");
        applied += WEXITSTATUS(status);
    }
    struct pg pg;
    OK(pg_open(&pg, url, &err));
    cr_assert_eq(applied, pg_schema_version(&pg, &err));
    PQclear(PQexec(pg.conn, "INSERT INTO schema_migrations VALUES (9999, 'later')"));
    cr_assert_eq(pg_migrate(&pg, &err), -ERR_MISMATCH);
    pg_close(&pg);
    sleep_ms(1);
}

Test(store, unreachable_says_where)
{
    struct pg pg;
    cr_assert_eq(pg_open(&pg, "host=/nowhere/here user=brood", &err), -ERR_UNAVAILABLE);
    cr_assert(strstr(err.text, "/nowhere/here") && strstr(err.text, "brood up"), "%s", err.text);
}

Test(store, reconnects_after_losing_the_connection)
{
    char sql[96];
    (void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d)", PQbackendPID(f.pg.conn));
    (void)fixture_number(&f, sql);
    struct template_info t;
    cr_assert_eq(store_template_get(&f.pg, "python", &t, &err), -ERR_UNAVAILABLE);
    OK(store_template_get(&f.pg, "python", &t, &err));
    cr_assert_eq(t.memory_mib, 512);
}

Test(store, templates)
{
    struct template_info t;
    OK(store_template_get(&f.pg, "python@d1", &t, &err));
    cr_assert_eq(store_template_get(&f.pg, "python@other", &t, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_template_get(&f.pg, "ruby", &t, &err), -ERR_NOT_FOUND);
    cr_assert(strstr(err.text, "python"), "%s", err.text);
}

/* ---- submission ---- */

Test(store, thousand_jobs_with_every_odd_byte)
{
    enum { N = 1000 };
    static struct submit_item items[N];
    struct id batch = id_new();
    char *text = malloc(1 << 16);
    for (int i = 0; i < N; i++) {
        size_t used = (size_t)snprintf(text, 1 << 16,
                                       "{\"template\":\"python\",\"command\":[\"cat\"],\"name\":"
                                       "\"tab%d\\\\N\\\"'\xe2\x82\xac\","
                                       "\"labels\":{\"k\":\"\\\\.%d\"},\"stdin\":\"",
                                       i, i);
        for (int b = 0; b < 256; b++) {
            used += (size_t)snprintf(text + used, (1 << 16) - used, "\\u%04x", b);
        }
        used += (size_t)snprintf(text + used, (1 << 16) - used, "\\\\.\\n\\t\\\\N %d\"}", i);
        struct job_spec *spec = NULL;
        int rc = job_parse(text, used, &spec, &err);
        cr_assert_eq(rc, 0, "%s", rc < 0 ? err.text : "");
        items[i].spec = spec;
    }
    OK(store_submit(&f.pg, "default", batch.text, NULL, 0, items, N, true, &err));
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), N);
    cr_assert_eq(fixture_number(&f, "SELECT jobs FROM batches"), N);
    static struct dispatch_row rows[N];
    cr_assert_eq(fixture_dispatch(&f.pg, N, rows, &err), N);
    for (int i = 0; i < N; i++) {
        cr_assert_str_eq(rows[i].job_id, items[i].ret_id.text, "dispatch order differs at %d", i);
        cr_assert_eq(rows[i].spec_len, items[i].spec->canonical_len);
        cr_assert_eq(memcmp(rows[i].spec, items[i].spec->canonical, rows[i].spec_len), 0);
        job_spec_free((struct job_spec *)(uintptr_t)items[i].spec);
    }
    dispatch_rows_done(rows, N);
    free(text);
}

Test(store, idempotency_same_and_other_content)
{
    struct submit_item a[3] = { { .spec = fixture_job("echo 1", "k1") },
                                { .spec = fixture_job("echo 2", NULL) },
                                { .spec = fixture_job("echo 1", "k1") } };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, a, 3, true, &err));
    cr_assert(!a[0].ret_duplicate && !a[1].ret_duplicate && a[2].ret_duplicate);
    cr_assert_str_eq(a[2].ret_id.text, a[0].ret_id.text);
    struct submit_item again = { .spec = a[0].spec };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &again, 1, true, &err));
    cr_assert(again.ret_duplicate);
    cr_assert_str_eq(again.ret_id.text, a[0].ret_id.text);

    struct submit_item mixed[2] = { { .spec = a[1].spec },
                                    { .spec = fixture_job("echo other", "k1") } };
    cr_assert_eq(store_submit(&f.pg, "default", NULL, NULL, 0, mixed, 2, true, &err),
                 -ERR_CONFLICT);
    cr_assert(strstr(err.text, "item 1") && strstr(err.text, "idempotency_key"), "%s", err.text);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 2);
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, mixed, 2, false, &err));
    cr_assert_eq(mixed[1].ret_error.code, ERR_CONFLICT);
    cr_assert_eq(mixed[0].ret_error.code, 0);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 3);

    struct submit_item other = { .spec = mixed[1].spec };
    OK(store_submit(&f.pg, "another", NULL, NULL, 0, &other, 1, true,
                    &err)); /* keys belong to a tenant */
    cr_assert(!other.ret_duplicate);
}

Test(store, same_id_twice_is_one_job)
{
    struct id id = id_new();
    struct submit_item item = { .spec = fixture_job("true", NULL), .id = id.text };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    cr_assert(!item.ret_duplicate);
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    cr_assert(item.ret_duplicate);
    cr_assert_str_eq(item.ret_id.text, id.text);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 1);
}

Test(store, batch_of_another_tenant_is_refused)
{
    struct id batch = id_new();
    submit_n(batch.text, 1, NULL);
    struct submit_item item = { .spec = fixture_job("true", NULL) };
    cr_assert_eq(store_submit(&f.pg, "mallory", batch.text, NULL, 0, &item, 1, true, &err),
                 -ERR_CONFLICT);
}

/* ---- dispatch ---- */

struct puller {
    int n;
    char ids[400][ID_TEXT_BYTES];
};

static void *pull(void *arg)
{
    struct puller *p = arg;
    struct pg pg;
    struct err e;
    if (pg_open(&pg, f.pg_url, &e) < 0) {
        return NULL;
    }
    struct dispatch_row rows[7];
    for (int n; (n = fixture_dispatch(&pg, 7, rows, &e)) > 0;) {
        for (int i = 0; i < n; i++) {
            memcpy(p->ids[p->n++], rows[i].job_id, ID_TEXT_BYTES);
        }
        dispatch_rows_done(rows, n);
    }
    pg_close(&pg);
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

Test(store, two_dispatchers_never_share_a_job)
{
    enum { N = 400 };
    submit_n(NULL, N, NULL);
    static struct puller p[2];
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pthread_create(&t[i], NULL, pull, &p[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(t[i], NULL);
    }
    static char all[N][ID_TEXT_BYTES];
    cr_assert_eq(p[0].n + p[1].n, N, "%d + %d", p[0].n, p[1].n);
    memcpy(all, p[0].ids, (size_t)p[0].n * ID_TEXT_BYTES);
    memcpy(all[p[0].n], p[1].ids, (size_t)p[1].n * ID_TEXT_BYTES);
    qsort(all, N, ID_TEXT_BYTES, by_text);
    for (int i = 1; i < N; i++) {
        cr_assert_str_neq(all[i - 1], all[i]);
    }
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE attempt <> 1"), 0);
}

Test(store, a_dispatch_begins_where_it_is_told_and_misses_nothing)
{
    struct id ids[4];
    struct dispatch_row rows[4];
    submit_n(NULL, 2, ids);
    sleep_ms(5);
    submit_n(NULL, 2, ids + 2);
    struct dispatch_want want = { .tenant = "default", .priority = PRIORITY_NORMAL, .n = 1 };
    want.from_us = fixture_number(
        &f, "SELECT (extract(epoch from max(not_before)) * 1000000)::int8 FROM jobs");
    cr_assert_eq(store_dispatch(&f.pg, &want, 1, rows, 4, &err), 1, "%s", err.text);
    cr_assert_str_eq(rows[0].job_id, ids[2].text);
    cr_assert_eq(rows[0].not_before_us, want.from_us);
    dispatch_rows_done(rows, 1);
    want.n = 4;
    cr_assert_eq(store_dispatch(&f.pg, &want, 1, rows, 4, &err), 3, "%s", err.text);
    cr_assert_str_eq(rows[0].job_id, ids[0].text);
    cr_assert_str_eq(rows[1].job_id, ids[1].text);
    cr_assert_str_eq(rows[2].job_id, ids[3].text);
    dispatch_rows_done(rows, 3);
}

Test(store, requeue_of_lost_entries)
{
    struct id ids[3];
    submit_n(NULL, 3, ids);
    struct dispatch_row rows[3];
    cr_assert_eq(fixture_dispatch(&f.pg, 3, rows, &err), 3);
    dispatch_rows_done(rows, 3);
    const char *keep[] = { ids[1].text, "rubbish" };
    cr_assert_eq(store_requeue_lost(&f.pg, 60000, keep, 2, &err), 0, "younger than the age");
    sleep_ms(5);
    cr_assert_eq(store_requeue_lost(&f.pg, 1, keep, 2, &err), 2);
    cr_assert_eq(store_requeue_lost(&f.pg, 1, keep, 2, &err), 0);
    cr_assert_eq(fixture_dispatch(&f.pg, 3, rows, &err), 2);
    cr_assert_eq(rows[0].attempt, 2);
    dispatch_rows_done(rows, 2);
}

/* ---- ends of attempts ---- */

static const struct retry_policy at_once = { .attempts_max = 2, .waits_max = 4 };

Test(store, commit_once_then_no_op)
{
    submit_n(NULL, 1, NULL);
    struct dispatch_row row;
    dispatch_one(&row);
    OK(store_mark_running(&f.pg, row.job_id, 1, &err));
    struct job_result r;
    make_result(&r, VERDICT_ACCEPTED, "x", 1);
    cr_assert(!commit_one(row.job_id, 7, "w", &r), "an attempt that is not in force");
    cr_assert(commit_one(row.job_id, 1, "w1", &r));
    cr_assert(commit_one(row.job_id, 1, "w1", &r), "repeated after an unknown outcome: still ours");
    cr_assert(!commit_one(row.job_id, 1, "w2", &r), "another worker");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM results"), 1);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM attempts"), 1);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), METER_COUNT);
    cr_assert_eq(
        fixture_number(
            &f,
            "SELECT (extract(epoch from from_ts) * 1000)::int8 % 1000 FROM usage_records LIMIT 1"),
        123);
    dispatch_rows_done(&row, 1);
    job_result_done(&r);
}

Test(store, stale_attempt_commits_nothing)
{
    submit_n(NULL, 1, NULL);
    struct dispatch_row row;
    dispatch_one(&row);
    bool dead = true;
    OK(store_attempt_failed(&f.pg, row.job_id, 1, "w1", RETRY_WORKER_LOST, "worker lost", &at_once,
                            &dead, &err));
    cr_assert(!dead);
    struct job_result r;
    make_result(&r, VERDICT_ACCEPTED, "x", 1);
    cr_assert(!commit_one(row.job_id, 1, "w1", &r),
              "declared lost, came back before the next attempt");
    dispatch_rows_done(&row, 1);
    sleep_ms(2);
    dispatch_one(&row);
    cr_assert_eq(row.attempt, 2);
    cr_assert(!commit_one(row.job_id, 1, "w1", &r));
    cr_assert(commit_one(row.job_id, 2, "w2", &r));
    OK(store_attempt_failed(&f.pg, row.job_id, 2, "w2", RETRY_WORKER_LOST, "too late", &at_once,
                            &dead, &err));
    char state[32];
    fixture_value(&f, "SELECT state || ' ' || verdict FROM jobs", state, sizeof state);
    cr_assert_str_eq(state, "completed accepted");
    dispatch_rows_done(&row, 1);
    job_result_done(&r);
}

Test(store, attempts_exhausted_is_infra_error_and_free)
{
    struct id id;
    submit_n(NULL, 1, &id);
    bool dead = false;
    for (int attempt = 1; attempt <= 2; attempt++) {
        struct dispatch_row row;
        sleep_ms(2);
        dispatch_one(&row);
        OK(store_attempt_failed(&f.pg, row.job_id, attempt, "w", RETRY_BROKEN, "sandbox \xff broke",
                                &at_once, &dead, &err));
        dispatch_rows_done(&row, 1);
    }
    cr_assert(dead);
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_assert_eq(row.state, STATE_DEAD);
    cr_assert(row.has_result);
    cr_assert_eq(row.result.verdict, VERDICT_INFRA_ERROR);
    cr_assert(strstr(row.result.reason, "sandbox ? broke"), "%s", row.result.reason);
    cr_assert_eq(row.cost_nanousd, 0);
    result_row_done(&row);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM attempts WHERE outcome = 'infra'"), 2);
    int64_t due;
    OK(store_next_due(&f.pg, &due, &err));
    cr_assert_eq(due, -1);
}

/* No sandbox, three times over: no attempt is used up, and what breaks afterwards is the first
 * fault. */
Test(store, waits_cost_no_attempt_and_end_too)
{
    struct id id;
    submit_n(NULL, 1, &id);
    bool dead = false;
    static const enum retry_cause causes[] = { RETRY_NO_SANDBOX, RETRY_NO_SANDBOX, RETRY_BROKEN,
                                               RETRY_NO_SANDBOX, RETRY_NO_SANDBOX };
    for (int i = 0; i < 5; i++) {
        struct dispatch_row row;
        cr_assert_not(dead, "attempt %d", i);
        sleep_ms(2);
        dispatch_one(&row);
        cr_assert_eq(row.attempt, i + 1);
        OK(store_attempt_failed(&f.pg, row.job_id, row.attempt, "w", causes[i], "it does not start",
                                &at_once, &dead, &err));
        dispatch_rows_done(&row, 1);
        if (i == 1) {
            cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM attempts"), 0);
            cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'retrying' "
                                            "AND last_error = 'it does not start'"),
                         1);
        }
    }
    cr_assert(dead);
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_assert_eq(row.state, STATE_DEAD);
    cr_assert_eq(row.result.verdict, VERDICT_INFRA_ERROR);
    cr_assert_str_eq(row.result.reason, "it does not start (no sandbox in 4 tries)");
    cr_assert_eq(row.cost_nanousd, 0);
    result_row_done(&row);
}

/* Only what is wrong with the row itself is told so. For everything else who wrote it waits, as for
 * a server that is away; one that cannot write is looked for anew. */
Test(store, what_is_not_wrong_with_the_row_is_waited_for)
{
    static const struct {
        const char *state;
        int code;
        bool anew;
    } rows[] = { { "53100", ERR_UNAVAILABLE, false }, { "55000", ERR_UNAVAILABLE, false },
                 { "57014", ERR_UNAVAILABLE, false }, { "55P03", ERR_UNAVAILABLE, false },
                 { "58030", ERR_UNAVAILABLE, false }, { "42501", ERR_UNAVAILABLE, false },
                 { "42P01", ERR_UNAVAILABLE, false }, { "40P01", ERR_UNAVAILABLE, false },
                 { "22021", ERR_INVALID, false },     { "23505", ERR_CONFLICT, false },
                 { "23503", ERR_DB, false },          { "54000", ERR_DB, false },
                 { "P0001", ERR_DB, false },          { "25006", ERR_UNAVAILABLE, true } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char sql[128];
        (void)snprintf(sql, sizeof sql,
                       "DO $$ BEGIN RAISE SQLSTATE '%s' USING MESSAGE = 'no space left'; END $$",
                       rows[i].state);
        PGresult *res = PQexec(f.pg.conn, sql);
        cr_assert_eq(pg_fail(&f.pg, res, "commit results", &err), -rows[i].code, "%s", err.text);
        cr_assert(strstr(err.text, "commit results: no space left"), "%s", err.text);
        cr_assert(strstr(err.text, rows[i].state), "%s", err.text);
        cr_assert_eq(f.pg.conn == NULL, rows[i].anew, "%s", rows[i].state);
    }
}

Test(store, a_bad_item_undoes_the_whole_commit)
{
    struct dispatch_row rows[2];
    submit_n(NULL, 2, NULL);
    cr_assert_eq(fixture_dispatch(&f.pg, 2, rows, &err), 2);
    struct job_result r;
    make_result(&r, VERDICT_ACCEPTED, "x", 1);
    struct commit_item items[2] = {
        { .job_id = rows[0].job_id, .worker = "w", .attempt = 1, .result = &r },
        { .job_id = rows[1].job_id, .worker = "\xff", .attempt = 1, .result = &r }
    };
    cr_assert_lt(store_commit(&f.pg, items, 2, &err), 0);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM results"), 0);
    items[1].worker = "w";
    OK(store_commit(&f.pg, items, 2, &err));
    cr_assert(items[0].ret_won && items[1].ret_won);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), 0,
                 "no usage given: not billed");
    dispatch_rows_done(rows, 2);
    job_result_done(&r);
}

Test(store, output_bytes_survive)
{
    char all[256 * 3];
    for (size_t i = 0; i < sizeof all; i++) {
        all[i] = (char)i;
    }
    struct id id;
    submit_n(NULL, 1, &id);
    struct dispatch_row d;
    dispatch_one(&d);
    struct job_result r;
    make_result(&r, VERDICT_RUNTIME_ERROR, all, sizeof all);
    cr_assert(commit_one(d.job_id, 1, "w", &r));
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_assert_eq(row.result.run.out.head.len, sizeof all);
    cr_assert_eq(memcmp(row.result.run.out.head.data, all, sizeof all), 0);
    cr_assert_eq(row.result.run.err_out.head.len, 0);
    cr_assert_eq(row.result.measured_ms, 30);
    cr_assert_eq(row.charged_ms, 1000);
    cr_assert_eq(row.measured_ms, 30);
    cr_assert_eq(row.cost_nanousd, 14000 + 1125);
    result_row_done(&row);
    dispatch_rows_done(&d, 1);
    job_result_done(&r);
}

/* ---- taking back ---- */

Test(store, cancel_ends_what_has_not_ended)
{
    struct id batch = id_new(), other = id_new(), open[4], ended[4];
    struct cancelled gone[4];
    submit_n(batch.text, 4, NULL);
    submit_n(other.text, 1, NULL);
    struct dispatch_row rows[3];
    cr_assert_eq(fixture_dispatch(&f.pg, 3, rows, &err), 3, "%s", err.text);
    struct job_result r;
    make_result(&r, VERDICT_ACCEPTED, "x", 1);
    cr_assert(commit_one(rows[0].job_id, 1, "w", &r));
    cr_assert_eq(store_open_batches(&f.pg, "default", "a batch", 4, open, &err), 2);
    cr_assert_str_eq(open[0].text, batch.text);
    cr_assert_eq(store_open_batches(&f.pg, "default", "another", 4, open, &err), 0);

    cr_assert_eq(store_cancel(&f.pg, batch.text, NULL, 2, gone, &err), 2, "%s", err.text);
    cr_assert_eq(store_cancel(&f.pg, batch.text, NULL, 4, gone + 2, &err), 1);
    cr_assert_eq(store_cancel(&f.pg, batch.text, NULL, 4, gone, &err), 0, "marked ones come once");
    cr_assert(!gone[0].ended && !gone[1].ended, "in flight: whoever has them ends them");
    cr_assert(gone[2].ended, "it had waited");
    cr_assert_eq(store_cancelling(&f.pg, 0, 4, open, &err), 2);
    cr_assert_eq(store_cancel_marked(&f.pg, open, 2, 2, ended, &err), 2, "%s", err.text);
    cr_assert_eq(store_cancel_marked(&f.pg, open, 2, 2, ended, &err), 0);
    cr_assert(!commit_one(rows[1].job_id, 1, "w", &r), "a cancelled job's attempt committed");
    OK(store_mark_running(&f.pg, rows[2].job_id, 1, &err));
    cr_assert_eq(store_recount(&f.pg, &err), 0, "the count of waiting jobs is right");
    struct batch_counts c;
    OK(store_batch_counts(&f.pg, batch.text, &c, &err));
    cr_assert_eq(c.done, 4);
    cr_assert_eq(c.by_state[STATE_CANCELLED], 3);
    cr_assert_eq(c.by_verdict[VERDICT_ACCEPTED], 1);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM results"), 4);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), METER_COUNT);
    struct result_row row;
    OK(store_job(&f.pg, rows[1].job_id, &row, &err));
    cr_assert_eq(row.result.verdict, VERDICT_CANCELLED);
    cr_assert(strstr(row.result.reason, "taken back"), "%s", row.result.reason);
    result_row_done(&row);
    cr_assert_eq(store_open_batches(&f.pg, "default", "a batch", 4, open, &err), 1);
    cr_assert_str_eq(open[0].text, other.text);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'queued'"), 1);
    dispatch_rows_done(rows, 3);
    job_result_done(&r);
}

Test(store, cancel_drops_what_nobody_claimed_and_tells_of_the_rest)
{
    struct id ids[3], dropped[3];
    struct ready_item items[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = id_new();
        items[i] = (struct ready_item){
            .job_id = ids[i].text, .tenant = "default", .spec = "{}", .spec_len = 2, .attempt = 1
        };
    }
    OK(queue_setup(&f.queue, &err));
    OK(queue_ready_add(&f.queue, items, 3, &err));
    char cursor[QUEUE_STREAM_ID_MAX] = "$", told[ID_TEXT_BYTES];
    cr_assert_eq(queue_cancel_next(&f.queue, cursor, 1, told, &err), 0, "%s", err.text);
    struct claim first;
    cr_assert_eq(queue_claim(&f.queue, "w", 0, &first, &err), 1, "%s", err.text);
    cr_assert_eq(queue_cancel(&f.queue, ids, 2, dropped, &err), 1, "%s", err.text);
    cr_assert_str_eq(dropped[0].text, ids[1].text);
    cr_assert_eq(queue_cancel_next(&f.queue, cursor, 1000, told, &err), 1, "%s", err.text);
    cr_assert_str_eq(told, first.job_id);
    int64_t unclaimed, claimed;
    OK(queue_ready_depth(&f.queue, &unclaimed, &claimed, &err));
    cr_assert_eq(unclaimed, 1);
    cr_assert_eq(claimed, 1, "its worker still holds it, and bills it");
    claim_done(&first);
}

/* ---- reading ---- */

struct seen {
    int n;
    struct id *ids;
    int stop_at;
};

static int on_row(void *ctx, const struct result_row *row, struct err *e)
{
    struct seen *s = ctx;
    if (s->n == s->stop_at) {
        return err_set(e, ERR_CLOSED, "enough");
    }
    cr_assert_eq(row->seq, s->n);
    cr_assert_str_eq(row->job_id, s->ids[s->n].text);
    s->n++;
    return 0;
}

Test(store, results_come_in_order_of_submission)
{
    enum { N = 300 };
    static struct id ids[N];
    struct id batch = id_new();
    submit_n(batch.text, N, ids);
    struct seen s = { .ids = ids, .stop_at = -1 };
    cr_assert_eq(store_results(&f.pg, batch.text, on_row, &s, &err), N, "%s", err.text);
    cr_assert_eq(s.n, N);
    s = (struct seen){ .ids = ids, .stop_at = 10 };
    cr_assert_eq(store_results(&f.pg, batch.text, on_row, &s, &err), -ERR_CLOSED);
    struct batch_counts c; /* the connection is usable at once */
    OK(store_batch_counts(&f.pg, batch.text, &c, &err));
    cr_assert_eq(c.total, N);
    cr_assert_eq(c.by_state[STATE_QUEUED], N);
    struct id latest, none = id_new();
    OK(store_latest_batch(&f.pg, "default", &latest, &err));
    cr_assert_str_eq(latest.text, batch.text);
    cr_assert_eq(store_batch_counts(&f.pg, none.text, &c, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_latest_batch(&f.pg, "nobody", &latest, &err), -ERR_NOT_FOUND);
    struct queue_counts q;
    OK(store_queue_counts(&f.pg, &q, &err));
    cr_assert_eq(q.by_state[STATE_QUEUED], N);
    cr_assert_geq(q.oldest_queued_ms, 0);
}

struct sums {
    struct usage_sum rows[4];
    int n;
};

static int on_sum(void *ctx, const struct usage_sum *s, struct err *e)
{
    (void)e;
    struct sums *all = ctx;
    all->rows[all->n++ % 4] = *s;
    return 0;
}

Test(store, usage_sums)
{
    submit_n(NULL, 2, NULL);
    for (int i = 0; i < 2; i++) {
        struct dispatch_row d;
        struct job_result r;
        dispatch_one(&d);
        make_result(&r, VERDICT_ACCEPTED, "", 0);
        cr_assert(commit_one(d.job_id, 1, "w", &r));
        dispatch_rows_done(&d, 1);
        job_result_done(&r);
    }
    for (int by = 0; by < USAGE_GROUP_COUNT; by++) {
        struct sums all = { .n = 0 };
        struct usage_query q = { .by = (enum usage_group)by, .label = "suite" };
        int want = by == USAGE_BY_JOB ? 2 : 1;
        cr_assert_eq(store_usage(&f.pg, &q, on_sum, &all, &err), want, "%s", err.text);
        cr_assert_eq(all.rows[0].jobs, 2 / want);
        cr_assert_eq(all.rows[0].accepted, 2 / want);
        cr_assert_eq(all.rows[0].measured_ms, 60 / want);
        cr_assert_eq(all.rows[0].charged_ms, 2000 / want);
        cr_assert_eq(all.rows[0].vcpu_ms, 2000 / want);
        cr_assert_eq(all.rows[0].mib_ms, 2000 * 256 / want);
        cr_assert_eq(all.rows[0].cost_nanousd, 2 * (14000 + 1125) / want);
    }
}
