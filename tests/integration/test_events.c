/* The log of job.finished: every end once, in order, from any position; nothing is passed over that
 * commits late. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/store/events.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define WAIT_MS 20000

static struct fixture f;
static _Thread_local struct err err;

static void set_up(void)
{
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(events, .init = set_up, .fini = tear_down, .timeout = 120);

/* n jobs submitted, dispatched and committed by one worker. */
static void finish(struct pg *pg, int n, const char *worker)
{
    struct submit_item items[64] = { 0 };
    struct dispatch_row rows[64];
    struct commit_item commits[64];
    struct job_result r;
    cr_assert_leq(n, 64);
    for (int i = 0; i < n; i++) {
        items[i].spec = fixture_job("true", NULL);
    }
    OK(store_submit(pg, "default", NULL, NULL, 0, items, n, true, &err));
    int got = fixture_dispatch(pg, n, rows, &err);
    if (got == 0) { /* another thread has dispatched them, and commits them */
        return;
    }
    cr_assert_gt(got, 0, "%s", err.text);
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    for (int i = 0; i < got; i++) {
        commits[i] = (struct commit_item){ .job_id = rows[i].job_id,
                                           .tenant = rows[i].tenant,
                                           .template_name = "python",
                                           .worker = worker,
                                           .attempt = rows[i].attempt,
                                           .result = &r };
    }
    OK(store_commit(pg, commits, got, &err));
    dispatch_rows_done(rows, got);
    job_result_done(&r);
}

Test(events, from_the_beginning_and_from_the_middle)
{
    struct event_row rows[STORE_EVENTS_MAX];
    int64_t next = 0;
    cr_assert_eq(store_events(&f.pg, NULL, 0, 10, WAIT_MS, rows, &next, &err), 0);
    finish(&f.pg, 10, "w");
    cr_assert_eq(store_events(&f.pg, NULL, 0, 4, WAIT_MS, rows, &next, &err), 4);
    cr_assert_eq(next, rows[3].position);
    cr_assert_str_eq(rows[0].verdict, "accepted");
    cr_assert_str_eq(rows[0].state, "completed");
    struct event_row rest[10];
    cr_assert_eq(store_events(&f.pg, NULL, next, 10, WAIT_MS, rest, &next, &err), 6);
    cr_assert_gt(rest[0].position, rows[3].position);
    cr_assert_eq(store_events(&f.pg, NULL, next, 10, WAIT_MS, rest, &next, &err), 0);
    cr_assert_eq(store_events(&f.pg, "another", 0, 10, WAIT_MS, rest, &next, &err), 0);
}

#define LATE "00000000-0000-7000-8000-000000000001"

/* A connection that has written an end and has not committed it. */
static void end_late(struct pg *late)
{
    static const char *const all[] = {
        "BEGIN",
        "INSERT INTO jobs (id, tenant, template, spec, spec_hash, state, verdict)"
        " VALUES ('" LATE "', 'default', 'python', '{}', '', 'completed', 'accepted')",
        "INSERT INTO results (job_id, attempt, verdict, detail, stdout_head, stdout_tail,"
        " stderr_head, stderr_tail) VALUES ('" LATE "', 1, 'accepted', '{}', '', '', '', '')"
    };
    OK(pg_open(late, f.pg_url, &err));
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        PGresult *res = PQexec(late->conn, all[i]);
        cr_assert_eq(PQresultStatus(res), PGRES_COMMAND_OK, "%s", PQresultErrorMessage(res));
        PQclear(res);
    }
}

/* A transaction that took its number first and commits last must not be passed over. */
Test(events, a_late_commit_is_waited_for)
{
    struct pg late;
    finish(&f.pg, 1, "w");
    end_late(&late);
    finish(&f.pg, 1, "w");
    struct event_row rows[10];
    int64_t next = 0;
    cr_assert_eq(store_events(&f.pg, NULL, 0, 10, 50, rows, &next, &err), -ERR_TIMEOUT);
    PQclear(PQexec(late.conn, "COMMIT"));
    cr_assert_eq(store_events(&f.pg, NULL, 0, 10, WAIT_MS, rows, &next, &err), 3, "%s", err.text);
    cr_assert_str_eq(rows[1].job_id, LATE);
    pg_close(&late);
}

/* Nor one that is the newest of all: no other has ended since it took its id. */
Test(events, the_newest_transaction_is_waited_for)
{
    struct pg late;
    finish(&f.pg, 1, "w");
    end_late(&late);
    struct event_row rows[10];
    int64_t next = 0;
    cr_assert_eq(store_events(&f.pg, NULL, 0, 10, 50, rows, &next, &err), -ERR_TIMEOUT);
    cr_assert_eq(next, 0);
    PQclear(PQexec(late.conn, "COMMIT"));
    cr_assert_eq(store_events(&f.pg, NULL, 0, 10, WAIT_MS, rows, &next, &err), 2, "%s", err.text);
    cr_assert_str_eq(rows[1].job_id, LATE);
    pg_close(&late);
}

static atomic_int finishing = 3;

static void *finisher(void *arg)
{
    struct pg pg;
    struct err own;
    cr_assert_geq(pg_open(&pg, f.pg_url, &own), 0);
    for (int i = 0; i < 20; i++) {
        finish(&pg, 7, arg);
    }
    pg_close(&pg);
    (void)atomic_fetch_sub(&finishing, 1);
    return NULL;
}

Test(events, a_reader_beside_writers_sees_each_end_once)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, finisher, (void *)"w"), 0);
    }
    static struct event_row rows[64];
    int64_t next = 0, last = 0;
    int seen = 0;
    for (int64_t end = mono_ms() + WAIT_MS; atomic_load(&finishing) > 0 && mono_ms() < end;) {
        int n = store_events(&f.pg, NULL, next, 64, WAIT_MS, rows, &next, &err);
        cr_assert_geq(n, 0, "%s", err.text);
        for (int i = 0; i < n; i++) {
            cr_assert_gt(rows[i].position, last);
            last = rows[i].position;
        }
        seen += n;
    }
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    }
    long ended = fixture_number(&f, "SELECT count(*) FROM results");
    for (int n = 1; n > 0; seen += n) {
        n = store_events(&f.pg, NULL, next, 64, WAIT_MS, rows, &next, &err);
    }
    cr_assert_gt(ended, 300);
    cr_assert_eq(seen, ended);
}
