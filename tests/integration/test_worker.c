/* brood-worker, the real program, with a real Redis and Postgres and a played vmpool: from claim to
 * commit, and what happens when it is killed, loses a claim, is told to end, or finds Postgres
 * away. The scheduler's part is played by the test. BROOD_TEST_WORKER names another program to
 * test, e.g. one built with a sanitizer. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/fake_guest_pool.h"
#include "common/store/cancel.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

#define WAIT_MS 20000

static struct fixture f;
static struct err err;
static struct fake_pool *pool;
static char home[32], pool_path[64];

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)

static void start_pool(enum fake_pool_mode mode)
{
    (void)snprintf(pool_path, sizeof pool_path, "%s/pool.sock", home);
    pool = fake_pool_start(pool_path, mode, guest_script_shell, NULL);
}

static void set_up(void)
{
    fixture_open(&f);
    (void)snprintf(home, sizeof home, "/tmp/brood-worker-XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    start_pool(POOL_GOOD);
}

static void tear_down(void)
{
    char command[64];
    fake_pool_stop(pool);
    fixture_close(&f);
    (void)snprintf(command, sizeof command, "rm -rf -- %s", home);
    cr_assert_eq(system(command), 0);
}

TestSuite(worker, .init = set_up, .fini = tear_down, .timeout = 120);

static void set(const char *name, const char *value)
{
    (void)setenv(name, value, 1);
}

static pid_t start_worker_at(const char *name, const char *pg_url)
{
    pid_t parent = getpid(), pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0) {
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(126);
    }
    set("BROOD_HOME", home);
    set("BROOD_REDIS_URL", f.redis_url);
    set("BROOD_POSTGRES_URL", pg_url);
    set("BROOD_VMPOOL_SOCKET", pool_path);
    set("BROOD_WORKER_NAME", name);
    set("BROOD_WORKER_SLOTS", "2");
    set("BROOD_WORKER_HEARTBEAT_MS", "100");
    set("BROOD_SCHEDULER_RETRY_BASE_MS", "1");
    set("BROOD_SCHEDULER_INFRA_ATTEMPTS_MAX", "2");
    set("BROOD_SCHEDULER_INFRA_WAITS_MAX", "4");
    const char *program = getenv("BROOD_TEST_WORKER");
    program = program ? program : BROOD_BINARY_DIR "/brood-worker";
    (void)execl(program, "brood-worker", (char *)NULL);
    perror(program);
    _exit(126);
}

static pid_t start_worker(const char *name)
{
    return start_worker_at(name, f.pg_url);
}

/* A claim that stood as it is for quiet_ms is taken over, as the scheduler does. */
static void take_over(int quiet_ms, struct expired_claim *ret_e)
{
    struct pending_claim was = { .delivery = -1 }, is;
    int64_t since = mono_ms();
    for (int64_t end = since + WAIT_MS; mono_ms() < end; sleep_ms(7)) {
        if (queue_pending(&f.queue, NULL, &is, 1, &err) != 1) {
            continue;
        }
        if (is.delivery != was.delivery) {
            was = is;
            since = mono_ms();
        }
        if (mono_ms() - since >= quiet_ms && queue_take_over(&f.queue, &is, ret_e, &err) == 1) {
            return;
        }
    }
    cr_assert_fail("no claim was silent for %d ms", quiet_ms);
}

static void kill_worker(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Exit status after SIGTERM. */
static int end_worker(pid_t pid)
{
    int status;
    (void)kill(pid, SIGTERM);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "status %d", status);
    return WEXITSTATUS(status);
}

static struct id submit_to(struct pg *pg, const char *json)
{
    struct job_spec *spec;
    OK(job_parse(json, strlen(json), &spec, &err));
    struct submit_item item = { .spec = spec };
    OK(store_submit(pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    job_spec_free(spec);
    return item.ret_id;
}

/* What the scheduler does. spec NULL: the job's own. */
static void dispatch(struct pg *pg, int n, const char *spec)
{
    struct dispatch_row rows[16];
    cr_assert_leq(n, 16);
    int got = 0;
    for (int64_t end = mono_ms() + WAIT_MS; got < n && mono_ms() < end; sleep_ms(10)) {
        int more = fixture_dispatch(pg, n - got, rows + got, &err);
        cr_assert_geq(more, 0, "%s", err.text);
        got += more;
    }
    cr_assert_eq(got, n);
    struct ready_item items[16];
    for (int i = 0; i < n; i++) {
        items[i] = (struct ready_item){ .job_id = rows[i].job_id,
                                        .tenant = rows[i].tenant,
                                        .spec = spec ? spec : rows[i].spec,
                                        .spec_len = spec ? strlen(spec) : rows[i].spec_len,
                                        .attempt = rows[i].attempt,
                                        .submitted_ms = rows[i].submitted_ms };
    }
    OK(queue_ready_add(&f.queue, items, n, &err));
    dispatch_rows_done(rows, n);
}

static struct id run_job(const char *json)
{
    struct id id = submit_to(&f.pg, json);
    dispatch(&f.pg, 1, NULL);
    return id;
}

/* A figure about one job: "SELECT ... '$'" with the id for the $. */
static long about(const struct id *id, const char *sql)
{
    char text[512];
    const char *at = strchr(sql, '$');
    (void)snprintf(text, sizeof text, "%.*s'%s'%s", (int)(at - sql), sql, id->text, at + 1);
    return fixture_number(&f, text);
}

static void await(const struct id *id, const char *sql, long want)
{
    long got = -1;
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(10)) {
        if ((got = about(id, sql)) == want) {
            return;
        }
    }
    cr_assert_fail("%s: %ld after %d ms", sql, got, WAIT_MS);
}

#define ENDED "SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL AND id = $"
#define RESULTS "SELECT count(*) FROM results WHERE job_id = $"
#define USAGE "SELECT count(*) FROM usage_records WHERE job_id = $"
#define ATTEMPTS "SELECT count(*) FROM attempts WHERE job_id = $"

static void expect_verdict(const struct id *id, enum verdict want)
{
    await(id, ENDED, 1);
    struct result_row row;
    OK(store_job(&f.pg, id->text, &row, &err));
    cr_assert(row.has_result);
    cr_assert_eq(row.result.verdict, want, "%s: %s", verdict_word(row.result.verdict),
                 row.result.reason);
    result_row_done(&row);
    cr_assert_eq(about(id, RESULTS), 1);
    cr_assert_eq(about(id, USAGE), verdict_billed(want) ? METER_COUNT : 0);
}

static void expect_queue_empty(void)
{
    int64_t unclaimed = -1, claimed = -1;
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(10)) {
        OK(queue_ready_depth(&f.queue, &unclaimed, &claimed, &err));
        if (unclaimed == 0 && claimed == 0) {
            return;
        }
    }
    cr_assert_fail("ready stream: %ld unclaimed, %ld claimed", (long)unclaimed, (long)claimed);
}

Test(worker, from_claim_to_commit)
{
    static const struct {
        const char *json;
        enum verdict verdict;
    } jobs[] = {
        { "{\"template\":\"python\",\"command\":[\"echo\",\"42\"],\"expect\":{\"stdout\":\"42\"}}",
          VERDICT_ACCEPTED },
        { "{\"template\":\"python\",\"command\":[\"echo\",\"41\"],\"expect\":{\"stdout\":\"42\"}}",
          VERDICT_WRONG_ANSWER },
        { "{\"template\":\"python\",\"command\":[\"exit\",\"3\"]}", VERDICT_RUNTIME_ERROR },
        { "{\"template\":\"python\",\"command\":[\"sleep\",\"60000\"],\"limits\":{\"wall_ms\":200}"
          "}",
          VERDICT_WALL_TIME_LIMIT },
        { "{\"template\":\"python\",\"command\":[\"spin\",\"60000\"],\"limits\":{\"cpu_ms\":100}}",
          VERDICT_TIME_LIMIT },
        { "{\"template\":\"python\",\"command\":[\"flood\"]}", VERDICT_OUTPUT_LIMIT },
        { "{\"template\":\"python\",\"command\":[\"echo\",\"x\"],\"setup\":{\"command\":[\"exit\","
          "\"1\"]}}",
          VERDICT_COMPILE_ERROR },
        { "{\"template\":\"python\",\"command\":[\"cat\"],\"stdin\":\"abc\",\"stream\":true,"
          "\"expect\":{\"stdout\":\"abc\"}}",
          VERDICT_ACCEPTED },
    };
    enum { N = sizeof jobs / sizeof jobs[0] };
    pid_t pid = start_worker("w1");
    struct id ids[N];
    for (int i = 0; i < N; i++) {
        ids[i] = submit_to(&f.pg, jobs[i].json);
    }
    dispatch(&f.pg, N, NULL);
    for (int i = 0; i < N; i++) {
        expect_verdict(&ids[i], jobs[i].verdict);
        cr_assert_eq(about(&ids[i], ATTEMPTS), 1);
    }
    expect_queue_empty();
    cr_assert_eq(fake_pool_leases(pool), N);
    struct buf log;
    buf_init(&log, 1000);
    char cursor[40] = "0";
    struct log_piece piece = { .stream = -1 };
    cr_assert_eq(queue_log_next(&f.queue, ids[N - 1].text, cursor, 1000, &log, &piece, &err), 1);
    cr_assert_eq(piece.stream, 1);
    cr_assert_str_eq(log.data, "abc");
    cr_assert_eq(queue_log_next(&f.queue, ids[N - 1].text, cursor, 1000, &log, &piece, &err), 1);
    cr_assert_eq(piece.stream, 0);
    buf_done(&log);
    char events[40] = "0";
    int finished = 0;
    struct event e;
    while (queue_event_next(&f.queue, events, 0, &e, &err) == 1) {
        finished += strcmp(e.type, "job.finished") == 0;
    }
    cr_assert_eq(finished, N);
    cr_assert_eq(end_worker(pid), 0);
    struct worker_info info;
    cr_assert_eq(queue_workers(&f.queue, &info, 1, &err), 0);
}

Test(worker, many_jobs_in_batches)
{
    enum { ROUNDS = 20, EACH = 16 };
    pid_t pid = start_worker("w1");
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < EACH; j++) {
            (void)submit_to(&f.pg, "{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
        }
        dispatch(&f.pg, EACH, NULL);
    }
    for (int64_t end = mono_ms() + 60000; mono_ms() < end; sleep_ms(20)) {
        if (fixture_number(&f, "SELECT count(*) FROM jobs WHERE verdict = 'accepted'") ==
            ROUNDS * EACH) {
            break;
        }
    }
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE verdict = 'accepted'"),
                 ROUNDS * EACH);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), 2 * ROUNDS * EACH);
    expect_queue_empty();
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, killed_in_mid_job_then_a_second_attempt_elsewhere)
{
    pid_t first = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"sleep\",\"1500\"]}");
    for (int64_t end = mono_ms() + WAIT_MS; fake_pool_leases(pool) < 1 && mono_ms() < end;) {
        sleep_ms(10);
    }
    kill_worker(first);
    struct expired_claim expired;
    take_over(500, &expired);
    cr_assert_str_eq(expired.worker, "w1");
    cr_assert_eq(fake_pool_releases(pool), 1, "its sandbox died with it");
    const struct retry_policy policy = { .attempts_max = 3, .waits_max = 3 };
    OK(store_attempt_failed(&f.pg, expired.job_id, expired.attempt, expired.worker,
                            RETRY_WORKER_LOST, "the worker was lost", &policy, NULL, &err));
    const char *stream_id = expired.stream_id;
    OK(queue_claim_ack(&f.queue, &stream_id, 1, &err));
    pid_t second = start_worker("w2");
    dispatch(&f.pg, 1, NULL);
    expect_verdict(&id, VERDICT_ACCEPTED);
    cr_assert_eq(about(&id, "SELECT attempt FROM jobs WHERE id = $"), 2);
    cr_assert_eq(about(&id, ATTEMPTS), 2);
    expect_queue_empty();
    cr_assert_eq(end_worker(second), 0);
}

Test(worker, lost_claim_commits_nothing)
{
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"sleep\",\"3000\"]}");
    struct expired_claim expired;
    take_over(0, &expired); /* between two heartbeats */
    int64_t taken_ms = mono_ms();
    while (fake_pool_releases(pool) < 1 && mono_ms() - taken_ms < WAIT_MS) {
        sleep_ms(10);
    }
    cr_assert_lt(mono_ms() - taken_ms, 2500,
                 "the sandbox was given back long before the program's end");
    sleep_ms(500);
    cr_assert_eq(about(&id, RESULTS), 0);
    cr_assert_eq(about(&id, ATTEMPTS), 0);
    cr_assert_eq(about(&id, ENDED), 0);
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, a_cancelled_job_gives_its_machine_back)
{
    pid_t pid = start_worker("w1");
    struct id batch = id_new();
    struct cancelled gone[2];
    const char *json = "{\"template\":\"python\",\"command\":[\"sleep\",\"600000\"],"
                       "\"limits\":{\"wall_ms\":600000}}";
    struct job_spec *spec;
    OK(job_parse(json, strlen(json), &spec, &err));
    struct submit_item item = { .spec = spec };
    OK(store_submit(&f.pg, "default", batch.text, NULL, 0, &item, 1, true, &err));
    job_spec_free(spec);
    dispatch(&f.pg, 1, NULL);
    await(&item.ret_id, "SELECT count(*) FROM jobs WHERE state = 'running' AND id = $", 1);
    cr_assert_eq(store_cancel(&f.pg, batch.text, NULL, 2, gone, &err), 1, "%s", err.text);
    cr_assert(!gone[0].ended);
    cr_assert_eq(cancel_tell(&f.pg, &f.queue, &gone[0].id, 1, &err), 0, "%s", err.text);
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(10)) {
        if (fake_pool_releases(pool) == 1) {
            break;
        }
    }
    cr_assert_eq(fake_pool_releases(pool), 1);
    await(&item.ret_id, ENDED, 1);
    await(&item.ret_id,
          "SELECT count(*) FROM jobs WHERE state = 'cancelled' AND verdict = "
          "'cancelled' AND id = $",
          1);
    cr_assert_eq(about(&item.ret_id, USAGE), METER_COUNT, "billed up to that moment");
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, a_claim_that_is_no_job)
{
    pid_t pid = start_worker("w1");
    struct id id = submit_to(&f.pg, "{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    dispatch(&f.pg, 1, "{\"template\":\"python\"");
    await(&id,
          "SELECT count(*) FROM jobs WHERE state = 'retrying' AND last_error LIKE '%not valid%' "
          "AND id = $",
          1);
    dispatch(&f.pg, 1, NULL);
    expect_verdict(&id, VERDICT_ACCEPTED);
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, faults_of_ours_end_as_infra_error)
{
    pid_t pid = start_worker("w1");
    struct id id = run_job(
        "{\"template\":\"python\",\"command\":[\"die\"]}"); /* the guest closes its channel */
    await(&id, "SELECT count(*) FROM jobs WHERE state = 'retrying' AND id = $", 1);
    dispatch(&f.pg, 1, NULL);
    expect_verdict(&id, VERDICT_INFRA_ERROR);
    cr_assert_eq(about(&id, ATTEMPTS), 2);
    expect_queue_empty();
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, a_full_host_costs_no_attempt)
{
    fake_pool_stop(pool);
    start_pool(POOL_FULL_TWICE);
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    expect_verdict(&id, VERDICT_ACCEPTED);
    cr_assert_eq(about(&id, "SELECT attempt FROM jobs WHERE id = $"), 1);
    cr_assert_eq(end_worker(pid), 0);
}

/* Sandboxes that do not start cost waits, not attempts; the host that is well again runs the job.
 */
Test(worker, sandboxes_that_do_not_start_cost_no_attempt)
{
    fake_pool_stop(pool);
    start_pool(POOL_BROKEN);
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    for (int i = 1; i <= 3; i++) {
        await(&id,
              "SELECT count(*) FROM jobs WHERE state = 'retrying' AND last_error LIKE '%still "
              "loading%' AND id = $",
              1);
        cr_assert_eq(about(&id, ATTEMPTS), 0);
        if (i == 3) {
            fake_pool_stop(pool);
            start_pool(POOL_GOOD);
        }
        dispatch(&f.pg, 1, NULL);
    }
    expect_verdict(&id, VERDICT_ACCEPTED);
    cr_assert_eq(about(&id, "SELECT attempt FROM jobs WHERE id = $"), 4);
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, sandboxes_that_never_start_end_as_infra_error_with_the_reason)
{
    fake_pool_stop(pool);
    start_pool(POOL_BROKEN);
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    for (int i = 1; i <= 3; i++) {
        await(&id, "SELECT count(*) FROM jobs WHERE state = 'retrying' AND id = $", 1);
        dispatch(&f.pg, 1, NULL);
    }
    expect_verdict(&id, VERDICT_INFRA_ERROR);
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_assert(strstr(row.result.reason, "still loading"), "%s", row.result.reason);
    cr_assert(strstr(row.result.reason, "no sandbox in 4 tries"), "%s", row.result.reason);
    result_row_done(&row);
    expect_queue_empty();
    cr_assert_eq(end_worker(pid), 0);
}

/* A limit that nobody gave fits the machine, so that it is the guest's cgroup that ends the run. */
Test(worker, a_default_memory_limit_fits_a_small_machine)
{
    fake_pool_stop(pool);
    start_pool(POOL_SMALL);
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    expect_verdict(&id, VERDICT_ACCEPTED);
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_assert_eq(row.result.memory_mib, 128);
    cr_assert_eq(row.result.limits.memory_mib, 128 - TEMPLATE_MEMORY_RESERVE_MIB);
    result_row_done(&row);
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, claims_nothing_without_vmpool)
{
    fake_pool_stop(pool);
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    sleep_ms(700);
    int64_t unclaimed, claimed;
    OK(queue_ready_depth(&f.queue, &unclaimed, &claimed, &err));
    cr_assert_eq(unclaimed, 1);
    start_pool(POOL_GOOD);
    expect_verdict(&id, VERDICT_ACCEPTED);
    cr_assert_eq(end_worker(pid), 0);
}

Test(worker, sigterm_lets_the_running_job_end)
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
Test(worker, what_does_not_end_in_time_is_given_back)
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
Test(worker, a_killed_worker_leaves_its_results_in_the_spool)
{
    struct server own = { .pid = 0 };
    cr_assert_eq(postgres_start(&own), 0);
    char url[320];
    (void)snprintf(url, sizeof url, "%s dbname=postgres", own.url);
    struct pg pg;
    const struct template_info t = {
        .name = "python", .digest = "d1", .memory_mib = 512, .vcpus = 1
    };
    OK(pg_open(&pg, url, &err));
    OK(pg_migrate(&pg, &err));
    OK(store_template_put(&pg, &t, &err));
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
    int done = 0;
    for (int64_t end = mono_ms() + WAIT_MS; done < 4 && mono_ms() < end; sleep_ms(50)) {
        done = 0;
        for (int i = 0; i < 4; i++) {
            struct result_row row;
            if (store_job(&pg, ids[i].text, &row, &err) == 0) {
                done +=
                    row.has_result && row.result.verdict == VERDICT_ACCEPTED && row.attempt == 1;
                result_row_done(&row);
            }
        }
    }
    cr_assert_eq(done, 4);
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

Test(worker, postgres_away_loses_nothing)
{
    struct server own = { .pid = 0 };
    cr_assert_eq(postgres_start(&own), 0);
    char url[320];
    (void)snprintf(url, sizeof url, "%s dbname=postgres", own.url);
    struct pg pg;
    const struct template_info t = {
        .name = "python", .digest = "d1", .memory_mib = 512, .vcpus = 1
    };
    OK(pg_open(&pg, url, &err));
    OK(pg_migrate(&pg, &err));
    OK(store_template_put(&pg, &t, &err));
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
    int done = 0;
    for (int64_t end = mono_ms() + WAIT_MS; done < 6 && mono_ms() < end; sleep_ms(50)) {
        done = 0;
        for (int i = 0; i < 6; i++) {
            struct result_row row;
            if (store_job(&pg, ids[i].text, &row, &err) == 0) {
                done +=
                    row.has_result && row.result.verdict == VERDICT_ACCEPTED && row.attempt == 1;
                result_row_done(&row);
            }
        }
    }
    cr_assert_eq(done, 6);
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
Test(worker, a_job_goes_to_where_its_state_is_warm)
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
Test(worker, passing_a_claim_on_is_one_step)
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
