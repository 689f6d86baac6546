/* brood-worker, the real program, with a real Redis and Postgres and a played vmpool: from claim to
 * commit, and what happens when it is killed, loses a claim, or finds no machine. */
#include <fcntl.h>
#include <sys/stat.h>

#include "common/store/cancel.h"
#include "common/store/object.h"
#include "tests/integration/worker_kit.h"

FIXTURE_MAIN
TestSuite(worker, .init = set_up, .fini = tear_down, .timeout = 120);

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
        { "{\"template\":\"python\",\"command\":[\"echo\",\"x\"],\"archive\":{\"format\":"
          "\"tar\",\"base64\":\"eA==\"}}",
          VERDICT_DISK_LIMIT },
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

/* A Redis that is there and says nothing holds up what is shown of a job, not the job: its output
 * is read, and its time is its own. */
Test(worker, a_silent_redis_is_no_time_of_a_job)
{
    pid_t pid = start_worker("w1");
    struct id id =
        submit_to(&f.pg, "{\"template\":\"python\",\"command\":[\"drip\",\"1000\"],\"stream\":true,"
                         "\"limits\":{\"wall_ms\":2000,\"output_bytes\":4194304}}");
    dispatch(&f.pg, 1, NULL);
    struct buf log;
    buf_init(&log, 1 << 20);
    char cursor[40] = "0";
    struct log_piece piece = { .stream = -1 };
    cr_assert_eq(queue_log_next(&f.queue, id.text, cursor, WAIT_MS, &log, &piece, &err), 1);
    cr_assert_eq(piece.stream, 1);
    redisReply *r = redisCommand(f.queue.ctx, "CLIENT PAUSE 4000 ALL");
    cr_assert(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    expect_verdict(&id, VERDICT_ACCEPTED);
    do { /* and all of it comes in the end */
        cr_assert_eq(queue_log_next(&f.queue, id.text, cursor, WAIT_MS, &log, &piece, &err), 1);
    } while (piece.stream != 0);
    cr_expect_eq((long)log.len,
                 fixture_number(&f, "SELECT octet_length(stdout_head) + octet_length(stdout_tail) "
                                    "FROM results"));
    buf_done(&log);
    cr_assert_eq(end_worker(pid), 0);
}

/* The machine ends between the program's end and its artifacts: the verdict stands, and the result
 * says what is missing, and not that a pattern matched nothing. */
Test(worker, artifacts_that_cannot_be_taken_are_told)
{
    pid_t pid = start_worker("w1");
    struct id id = submit_to(&f.pg, "{\"template\":\"python\",\"command\":[\"leave\"],"
                                    "\"artifacts\":[\"out/**\"]}");
    dispatch(&f.pg, 1, NULL);
    expect_verdict(&id, VERDICT_ACCEPTED);
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_expect_eq(row.result.n_warnings, 2);
    for (int i = 0; i < row.result.n_warnings; i++) {
        const char *text = row.result.warnings[i];
        cr_expect(strstr(text, "not all were taken: ") || strstr(text, "not everything"), "%s",
                  text);
    }
    result_row_done(&row);
    cr_assert_eq(end_worker(pid), 0);
}

/* Its entry is small: the claim is known at once, and Redis never copies the rest. */
Test(worker, a_large_job_does_not_go_through_the_queue)
{
    enum { STDIN_BYTES = 1 << 20 };
    static const char head[] = "{\"template\":\"python\",\"command\":[\"cat\"],\"limits\":{"
                               "\"output_bytes\":4194304},\"stdin\":\"";
    struct buf json;
    buf_init(&json, STDIN_BYTES + 1000);
    OK(buf_add_str(&json, head, &err));
    for (int i = 0; i < STDIN_BYTES / 16; i++) {
        OK(buf_add_str(&json, "0123456789abcdef", &err));
    }
    OK(buf_add_str(&json, "\"}", &err));
    struct id id = run_job(json.data);
    redisReply *r = redisCommand(f.queue.ctx, "XRANGE brood:ready - +");
    cr_assert(r && r->elements == 1 && r->element[0]->elements == 2);
    const redisReply *fields = r->element[0]->element[1];
    size_t bytes = 0;
    for (size_t i = 0; i < fields->elements; i++) {
        bytes += fields->element[i]->len;
    }
    cr_expect_lt(bytes, 1000);
    freeReplyObject(r);
    pid_t pid = start_worker("w1");
    expect_verdict(&id, VERDICT_ACCEPTED);
    struct result_row row;
    OK(store_job(&f.pg, id.text, &row, &err));
    cr_expect_eq(row.result.run.out.total_bytes, STDIN_BYTES);
    result_row_done(&row);
    char *none = NULL;
    size_t len;
    cr_expect_eq(store_spec(&f.pg, id_new().text, &none, &len, &err), -ERR_NOT_FOUND);
    expect_queue_empty();
    buf_done(&json);
    cr_assert_eq(end_worker(pid), 0);
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

Test(worker, a_long_job_beside_short_ones_is_shown_as_running)
{
    enum { SHORT = 60 };
    pid_t pid = start_worker("w1");
    struct id id = run_job("{\"template\":\"python\",\"command\":[\"sleep\",\"8000\"]}");
    for (int i = 0; i < SHORT; i++) {
        (void)run_job("{\"template\":\"python\",\"command\":[\"sleep\",\"50\"]}");
    }
    await(&id, "SELECT count(*) FROM jobs WHERE state = 'running' AND id = $", 1);
    cr_expect_lt(fixture_number(&f, "SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL"),
                 SHORT, "not only when the others have ended");
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

static void cancel(const char *batch)
{
    struct cancelled gone[2];
    cr_assert_eq(store_cancel(&f.pg, batch, NULL, 2, gone, &err), 1, "%s", err.text);
    cr_assert(!gone[0].ended);
    cr_assert_eq(cancel_tell(&f.pg, &f.queue, &gone[0].id, 1, &err), 0, "%s", err.text);
}

static struct id run_in_batch(const char *json, const char *batch)
{
    struct job_spec *spec;
    OK(job_parse(json, strlen(json), &spec, &err));
    struct submit_item item = { .spec = spec };
    OK(store_submit(&f.pg, "default", batch, NULL, 0, &item, 1, true, &err));
    job_spec_free(spec);
    dispatch(&f.pg, 1, NULL);
    return item.ret_id;
}

#define RUNS "SELECT count(*) FROM jobs WHERE state = 'running' AND id = $"

Test(worker, a_cancelled_job_gives_its_machine_back)
{
    pid_t pid = start_worker("w1");
    struct id batch = id_new();
    struct id id = run_in_batch("{\"template\":\"python\",\"command\":[\"sleep\",\"600000\"],"
                                "\"limits\":{\"wall_ms\":600000}}",
                                batch.text);
    await(&id, RUNS, 1);
    cancel(batch.text);
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(10)) {
        if (fake_pool_releases(pool) == 1) {
            break;
        }
    }
    cr_assert_eq(fake_pool_releases(pool), 1);
    await(&id, ENDED, 1);
    await(&id,
          "SELECT count(*) FROM jobs WHERE state = 'cancelled' AND verdict = "
          "'cancelled' AND id = $",
          1);
    cr_assert_eq(about(&id, USAGE), METER_COUNT, "billed up to that moment");
    cr_assert_eq(end_worker(pid), 0);
}

static void in_home(const char *command)
{
    char line[256];
    (void)snprintf(line, sizeof line, "cd %s && %s", home, command);
    cr_assert_eq(system(line), 0, "%s", line);
}

/* The object store is away: jobs with archives hold no machine meanwhile, can be cancelled, and
 * begin when it is back. */
Test(worker, an_archive_is_waited_for_without_a_machine)
{
    char json[256], path[64];
    struct object_options o = { .driver = OBJECT_DIR };
    struct object_store *objects;
    struct object_put put = { .size_bytes = -1 };
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", home);
    (void)snprintf(path, sizeof path, "%s/a.tar", home);
    in_home("printf x > file && tar -cf a.tar file");
    OK(object_store_open(&objects, &o, &err));
    cr_assert_geq(put.fd = open(path, O_RDONLY | O_CLOEXEC), 0);
    OK(object_put(objects, &put, &err));
    (void)close(put.fd);
    object_store_free(objects);
    (void)snprintf(json, sizeof json,
                   "{\"template\":\"python\",\"command\":[\"echo\",\"x\"],\"archive\":{\"format\":"
                   "\"tar\",\"object\":\"%s\"}}",
                   put.ret_id.hex);
    pid_t pid = start_worker("w1");
    struct id batch = id_new();
    struct id before = run_job("{\"template\":\"python\",\"command\":[\"echo\",\"x\"]}");
    expect_verdict(&before, VERDICT_ACCEPTED); /* the worker has opened the store */
    in_home("mv objects away");
    struct id id = run_job(json), unwanted = run_in_batch(json, batch.text);
    await(&id, RUNS, 1);
    await(&unwanted, RUNS, 1);
    cancel(batch.text);
    await(&unwanted, "SELECT count(*) FROM jobs WHERE verdict = 'cancelled' AND id = $", 1);
    cr_expect_eq(fake_pool_leases(pool), 1, "one machine, of the job before");
    in_home("mv away objects");
    expect_verdict(&id, VERDICT_ACCEPTED);
    cr_expect_eq(about(&id, "SELECT attempt FROM jobs WHERE id = $"), 1);
    cr_expect_eq(fake_pool_leases(pool), 2);
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
