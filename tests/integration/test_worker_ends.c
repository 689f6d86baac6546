/* brood-worker told to end, killed with results that wait, without Postgres for a while; and which
 * of two gets a job. */
#include <sys/stat.h>

#include "tests/integration/worker_kit.h"

FIXTURE_MAIN
TestSuite(worker_ends, .init = set_up, .fini = tear_down, .timeout = 120);

Test(worker_ends, sigterm_lets_the_running_job_end)
{
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"sleep\",\"1000\"]}");
    while (fake_pool_leases(pool) < 1) {
        sleep_ms(10);
    }
    cr_assert_eq(end_worker(pid), 0);
    cr_assert_eq(about(&id, ENDED), 1);
    expect_verdict(&id, VERDICT_ACCEPTED);
    expect_queue_empty();
}

/* B151 */
Test(worker_ends, what_does_not_end_in_time_is_given_back)
{
    set("BROOD_WORKER_DRAIN_MS", "100");
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"sleep\",\"60000\"],"
                           "\"limits\":{\"wall_ms\":60000}}");
    while (fake_pool_leases(pool) < 1) {
        sleep_ms(10);
    }
    cr_assert_eq(end_worker(pid), 0);
    cr_assert_eq(fake_pool_releases(pool), 1);
    cr_assert_eq(about(&id, "SELECT count(*) FROM jobs WHERE state = 'retrying' AND not_before <= "
                            "clock_timestamp() AND id = $"),
                 1, "it waits for nothing");
    cr_assert_eq(
        about(&id, "SELECT count(*) FROM attempts WHERE outcome = 'given_back' AND job_id = $"), 1);
    expect_queue_empty();
    /* as often as it likes: the maximum of faults here is 2, of waits 4 */
    for (int attempt = 2; attempt <= 6; attempt++) {
        const struct retry_policy policy = { .attempts_max = 2, .waits_max = 4 };
        struct dispatch_row row;
        bool dead;
        cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
        cr_assert_eq(row.attempt, attempt);
        dispatch_rows_done(&row, 1);
        OK(store_attempt_failed(&f.pg, id.text, attempt, "w1",
                                attempt < 6 ? RETRY_GIVEN_BACK : RETRY_NO_SANDBOX, "ends", &policy,
                                &dead, &err));
        cr_assert(!dead);
    }
}

/* B115: the worker is killed while Postgres is away and results wait. */
Test(worker_ends, a_killed_worker_leaves_its_results_in_the_spool)
{
    struct server own = { .pid = 0 };
    char url[URL_BYTES];
    struct pg pg;
    open_own(&own, url, &pg);
    pid_t pid = start_worker_at("w1", url);
    struct id ids[4];
    for (int i = 0; i < 4; i++) {
        ids[i] = submit_to(&pg, "{\"template\":\"python\",\"command\":[\"sleep\",\"300\"]}");
    }
    dispatch(&pg, 4, NULL);
    while (fake_pool_leases(pool) < 1) {
        sleep_ms(10);
    }
    server_end(&own, SIGINT);
    char spool[64];
    (void)snprintf(spool, sizeof spool, "%s/spool/results.0", home);
    struct stat st = { .st_size = 0 };
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(20)) {
        if (fake_pool_releases(pool) == 4 && stat(spool, &st) == 0 && st.st_size > 0) {
            sleep_ms(300); /* the last of them too */
            break;
        }
    }
    cr_assert_gt(st.st_size, 0, "results are on disk");
    kill_worker(pid);
    pid = start_worker_at("w2", url); /* before Postgres is back: no order of start */
    cr_assert_eq(postgres_start(&own), 0);
    await_accepted(&pg, ids, 4);
    cr_assert_eq(fake_pool_leases(pool), 4, "nothing was run again");
    expect_queue_empty();
    cr_assert_eq(stat(spool, &st), 0);
    for (int64_t end = mono_ms() + WAIT_MS; st.st_size > 0 && mono_ms() < end; sleep_ms(20)) {
        cr_assert_eq(stat(spool, &st), 0);
    }
    cr_assert_eq(st.st_size, 0);
    cr_assert_eq(end_worker(pid), 0);
    pg_close(&pg);
    server_remove(&own);
}

Test(worker_ends, postgres_away_loses_nothing)
{
    struct server own = { .pid = 0 };
    char url[URL_BYTES];
    struct pg pg;
    open_own(&own, url, &pg);
    pid_t pid = start_worker_at("w1", url);
    struct id ids[6];
    for (int i = 0; i < 6; i++) {
        ids[i] = submit_to(&pg, "{\"template\":\"python\",\"command\":[\"sleep\",\"500\"]}");
    }
    dispatch(&pg, 6, NULL);
    while (fake_pool_leases(pool) < 1) {
        sleep_ms(10);
    }
    server_end(&own, SIGINT);
    for (int64_t end = mono_ms() + WAIT_MS; fake_pool_releases(pool) < 6 && mono_ms() < end;) {
        sleep_ms(20);
    }
    cr_assert_eq(fake_pool_releases(pool), 6, "the jobs ran while Postgres was away");
    cr_assert_eq(postgres_start(&own), 0);
    await_accepted(&pg, ids, 6);
    expect_queue_empty();
    cr_assert_eq(end_worker(pid), 0);
    pg_close(&pg);
    server_remove(&own);
}

static void execute(struct pg *pg, const char *sql)
{
    PGresult *res = PQexec(pg->conn, sql);
    ExecStatusType s = PQresultStatus(res);
    cr_assert(s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK, "%s: %s", sql,
              PQerrorMessage(pg->conn));
    PQclear(res);
}

/* As after a failover, or with a full storage. */
Test(worker_ends, a_postgres_that_takes_nothing_loses_nothing)
{
    enum { JOBS = 6 };
    struct server own = { .pid = 0 };
    char url[URL_BYTES];
    struct pg pg;
    open_own(&own, url, &pg);
    pid_t pid = start_worker_at("w1", url);
    struct id ids[JOBS];
    for (int i = 0; i < JOBS; i++) {
        ids[i] = submit_to(&pg, "{\"template\":\"python\",\"command\":[\"sleep\",\"100\"]}");
    }
    dispatch(&pg, JOBS, NULL);
    while (fake_pool_leases(pool) < 1) {
        sleep_ms(10);
    }
    execute(&pg, "ALTER SYSTEM SET default_transaction_read_only = on");
    execute(&pg, "SELECT pg_reload_conf()");
    for (int64_t end = mono_ms() + WAIT_MS; fake_pool_releases(pool) < JOBS && mono_ms() < end;) {
        sleep_ms(20);
    }
    cr_assert_eq(fake_pool_releases(pool), JOBS, "the jobs ran");
    sleep_ms(1500); /* three tries, and another three */
    execute(&pg, "ALTER SYSTEM RESET default_transaction_read_only");
    execute(&pg, "SELECT pg_reload_conf()");
    await_accepted(&pg, ids, JOBS);
    expect_queue_empty();
    PGresult *res = PQexec(pg.conn, "SELECT count(*) FROM attempts WHERE outcome <> 'committed'");
    cr_assert_str_eq(PQgetvalue(res, 0, 0), "0");
    PQclear(res);
    cr_assert_eq(end_worker(pid), 0);
    pg_close(&pg);
    server_remove(&own);
}

/* The rest waits in memory. Once Postgres is back nobody waits any more: a pause after each of
 * these batches would be minutes. */
Test(worker_ends, a_full_spool_is_emptied_without_pauses)
{
    enum { JOBS = 32, ECHO_BYTES = 35000 }; /* the spool has room for fewer */
    static char json[ECHO_BYTES + 100];
    struct server own = { .pid = 0 };
    char url[URL_BYTES];
    struct pg pg;
    struct id ids[JOBS];
    open_own(&own, url, &pg);
    (void)snprintf(json, sizeof json, "{\"template\":\"python\",\"command\":[\"echo\",\"%0*d\"]}",
                   ECHO_BYTES, 1);
    for (int i = 0; i < JOBS; i++) {
        ids[i] = submit_to(&pg, json);
    }
    dispatch(&pg, JOBS / 2, NULL);
    dispatch(&pg, JOBS / 2, NULL);
    server_end(&own, SIGINT);
    set("BROOD_WORKER_SPOOL_MIB", "1");
    set("BROOD_WORKER_COMMIT_BATCH_MAX", "1");
    pid_t pid = start_worker_at("w1", url);
    for (int64_t end = mono_ms() + WAIT_MS; fake_pool_releases(pool) < JOBS && mono_ms() < end;) {
        sleep_ms(20);
    }
    cr_assert_eq(fake_pool_releases(pool), JOBS);
    sleep_ms(1000);
    cr_assert_eq(postgres_start(&own), 0);
    await_accepted(&pg, ids, JOBS);
    expect_queue_empty();
    cr_assert_eq(end_worker(pid), 0);
    pg_close(&pg);
    server_remove(&own);
}

/* ---- jobs go to where their kept state is warm ---- */

#define ONE "{\"template\":\"snapshot:one\",\"command\":[\"echo\",\"1\"]}"

static void keep_state(void)
{
    PGresult *res = PQexec(
        f.pg.conn,
        "INSERT INTO snapshots (id, tenant, name, digest, layers, template, template_digest, "
        "engine,"
        " engine_version, cpu_model, kernel_digest, vcpus, memory_mib, ram_bytes, layer_bytes, "
        "ttl_s,"
        " pinned) VALUES (gen_random_uuid(), 'default', 'one', repeat('a', 64), ARRAY[repeat('a', "
        "64), repeat('b', 64)], 'python', 'd', 'e', 'v', 'c', 'k', 1, 256, 268435456, 4096, 0, "
        "true)");
    cr_assert_eq(PQresultStatus(res), PGRES_COMMAND_OK, "%s", PQerrorMessage(f.pg.conn));
    PQclear(res);
}

/* Runs it; did this worker? */
static bool ran_at(const char *worker)
{
    struct result_row row;
    struct id id = run_job(ONE);
    await(&id, ENDED, 1);
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_assert_eq(row.result.verdict, VERDICT_ACCEPTED, "%s", row.result.reason);
    bool at = strcmp(row.result.worker, worker) == 0;
    result_row_done(&row);
    cr_expect_eq(about(&id, "SELECT attempt FROM jobs WHERE id = $"), 1, "a pass is no attempt");
    cr_expect_eq(about(&id, ATTEMPTS), 1);
    return at;
}

/* That many workers are there, and as many of them have said that a state is warm. */
static void await_workers(int n, int n_warm)
{
    struct worker_info rows[4];
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(20)) {
        int got = queue_workers(&f.queue, rows, 4, &err), warm = 0;
        for (int i = 0; i < got; i++) {
            warm += rows[i].warm[0] != 0;
        }
        if (got == n && warm == n_warm) {
            return;
        }
    }
    cr_assert_fail("not %d workers with %d states", n, n_warm);
}

/* Chance would give half of them to each. A worker that got one has the state too, so another takes
 * its place. */
Test(worker_ends, a_job_goes_to_where_its_state_is_warm)
{
    enum { MORE = 12 };
    keep_state();
    pid_t first = start_worker("w1"), second;
    cr_assert(ran_at("w1"));
    await_workers(1, 1);
    second = start_worker("w2");
    await_workers(2, 1);
    int right = 0;
    for (int i = 0; i < MORE; i++) {
        if (ran_at("w1")) {
            right++;
            continue;
        }
        cr_assert_eq(end_worker(second), 0);
        await_workers(1, 1);
        second = start_worker("w2");
        await_workers(2, 1);
    }
    cr_expect_geq(right, MORE - 2, "%d of %d ran where their state was", right, MORE);
    kill_worker(first); /* it still says so */
    cr_expect(ran_at("w2"), "the one that lives runs it");
    cr_assert_eq(end_worker(second), 0);
    expect_queue_empty();
}

/* The step itself: another's claim is not passed on, one's own once, and nothing gets lost. */
Test(worker_ends, passing_a_claim_on_is_one_step)
{
    struct claim c, again;
    struct id id = run_job(ONE);
    cr_assert_eq(queue_claim(&f.queue, "a", 0, &c, &err), 1);
    cr_expect_eq(c.passed, 0);
    cr_expect_eq(queue_claim_pass(&f.queue, "b", &c, &err), 0, "it is a's");
    cr_expect_eq(queue_claim_pass(&f.queue, "a", &c, &err), 1);
    cr_expect_eq(queue_claim_pass(&f.queue, "a", &c, &err), 0, "it is nobody's now");
    cr_assert_eq(queue_claim(&f.queue, "b", 0, &again, &err), 1);
    cr_expect_eq(again.passed, 1);
    cr_expect_str_eq(again.job_id, id.text);
    cr_expect_str_eq(again.job_id, c.job_id);
    cr_expect(again.attempt == c.attempt && again.submitted_ms == c.submitted_ms);
    cr_expect(again.spec_len == c.spec_len && memcmp(again.spec, c.spec, c.spec_len) == 0);
    struct claim none;
    cr_expect_eq(queue_claim(&f.queue, "c", 0, &none, &err), 0, "there is one of it");
    const char *stream_id = again.stream_id;
    OK(queue_claim_ack(&f.queue, &stream_id, 1, &err));
    claim_done(&c);
    claim_done(&again);
    expect_queue_empty();
}
