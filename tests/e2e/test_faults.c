/* kill -9 of each part at work: every accepted job still ends with one verdict, one result, two
 * usage records.
 *
 * The home runs with a short lease (fixture.sh), so that a dead worker's job is given to another
 * within seconds. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/e2e/cli.h"

#define START_MS 120000
#define GONE_MS 30000
#define LOAD_JOBS 40

static json_t *jobs_of(const json_t *job, int n)
{
    json_t *jobs = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append(jobs, (json_t *)(uintptr_t)job);
    }
    return jobs;
}

/* Submit n jobs that take a while; the batch's id, once at least one of them runs in a machine, or
 * has run: short ones are never shown as running. */
static char *submit_slow(const char *code, int n)
{
    json_t *job = e2e_python(code), *jobs = jobs_of(job, n);
    char *batch = e2e_submit(jobs);
    json_decref(jobs);
    json_decref(job);
    int64_t deadline_ms = mono_ms() + START_MS;
    while (e2e_sql("SELECT count(*) FROM jobs WHERE batch_id = '%s' AND state IN ('running', "
                   "'completed')",
                   batch) == 0) {
        cr_assert_lt(mono_ms(), deadline_ms, "no job of the batch ever ran");
        sleep_ms(20);
    }
    return batch;
}

/* Each job of the batch: accepted, one result, two usage records of one attempt, one committed
 * attempt. */
static void ended_once(const char *batch, int n)
{
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS), *result;
    cr_expect_eq(json_array_size(results), (size_t)n);
    size_t i;
    json_array_foreach(results, i, result)
    {
        cr_expect_str_eq(e2e_verdict(result), "accepted", "job %zu: %s (%s)", i,
                         e2e_verdict(result), json_string_value(e2e_at(result, "reason")));
    }
    json_decref(results);
    cr_expect_eq(e2e_sql("SELECT count(*) FROM jobs j WHERE batch_id = '%s' AND (SELECT count(*) "
                         "FROM results r WHERE "
                         "r.job_id = j.id AND r.attempt = j.attempt) <> 1",
                         batch),
                 0, "one result, of the attempt in force");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM jobs j WHERE batch_id = '%s' AND (SELECT count(*) "
                         "FROM usage_records u "
                         "WHERE u.job_id = j.id) <> 2",
                         batch),
                 0, "two usage records");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM jobs j WHERE batch_id = '%s' AND (SELECT count(*) "
                         "FROM attempts a WHERE "
                         "a.job_id = j.id AND a.outcome = 'committed') <> 1",
                         batch),
                 0, "one committed attempt");
}

static bool all_gone(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++) {
        if (kill(pids[i], 0) == 0) {
            return false;
        }
    }
    return true;
}

Test(faults, a_worker_killed_in_mid_job)
{
    cleanup_free char *batch = submit_slow("import time\ntime.sleep(4)\nprint('slept')\n", 1);
    cr_assert_gt(e2e_kill9("worker"), 0, "no worker process was found");
    ended_once(batch, 1);
    cr_expect_eq(e2e_sql("SELECT attempt FROM jobs WHERE batch_id = '%s'", batch), 2,
                 "it ended on the second attempt");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM attempts a JOIN jobs j ON j.id = a.job_id WHERE "
                         "batch_id = '%s' AND "
                         "a.attempt = 1 AND outcome = 'lost'",
                         batch),
                 1, "the first attempt is on record as lost");
}

#define SPOKEN_LINES 20
#define SPOKEN_MS 250

static int lines_of(const char *path)
{
    int n = 0;
    FILE *f = fopen(path, "re");
    for (int c; f && (c = fgetc(f)) != EOF;) {
        n += c == '\n';
    }
    if (f) {
        (void)fclose(f);
    }
    return n;
}

/* Its worker is killed while `brood run` shows what it prints; the job begins again elsewhere, and
 * the reader sees every line once. */
Test(faults, what_brood_run_shows_is_whole_and_comes_once)
{
    char *path = e2e_temp_file("", 0), code[160],
         script[64] = "exec \"$0\" run -- python3 -c \"$1\" >\"$2\"";
    (void)snprintf(code, sizeof code,
                   "import time\nfor i in range(%d):\n print('line', i, flush=True)\n "
                   "time.sleep(%d/1000)",
                   SPOKEN_LINES, SPOKEN_MS);
    const char *const argv[] = { "sh", "-c", script, e2e_binary(), code, path, NULL };
    pid_t reader = fork();
    if (reader == 0) {
        (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    int64_t end = mono_ms() + E2E_BATCH_MS;
    while (lines_of(path) < SPOKEN_LINES / 4 && mono_ms() < end) {
        sleep_ms(20);
    }
    cr_assert_gt(e2e_kill9("worker"), 0, "no worker process was found");
    int status = -1;
    cr_assert_eq(waitpid(reader, &status, 0), reader);
    cr_expect_eq(status, 0);
    FILE *f = fopen(path, "re");
    cr_assert_not_null(f);
    char line[64], want[64];
    for (int i = 0; i < SPOKEN_LINES; i++) {
        (void)snprintf(want, sizeof want, "line %d\n", i);
        cr_expect(fgets(line, sizeof line, f) && strcmp(line, want) == 0, "%s instead of %s", line,
                  want);
    }
    cr_expect(!fgets(line, sizeof line, f), "and then %s", line);
    (void)fclose(f);
    (void)unlink(path);
    free(path);
}

Test(faults, vmpool_killed)
{
    cleanup_free char *batch = submit_slow("import time\ntime.sleep(3)\nprint('slept')\n", 2);
    pid_t qemus[E2E_PIDS_MAX];
    int n = e2e_pids("qemu", qemus, E2E_PIDS_MAX);
    cr_assert_gt(n, 0, "no qemu process was found");
    cr_assert_gt(e2e_kill9("vmpool"), 0, "no vmpool process was found");
    int64_t deadline_ms = mono_ms() + GONE_MS;
    while (!all_gone(qemus, n) && mono_ms() < deadline_ms) {
        sleep_ms(50);
    }
    cr_expect(all_gone(qemus, n), "qemu processes outlive vmpool");
    ended_once(batch, 2);
}

#define LOAD "import time\ntime.sleep(0.1)\nprint('done')\n"

Test(faults, scheduler_killed_under_load)
{
    cleanup_free char *batch = submit_slow(LOAD, LOAD_JOBS);
    cr_assert_gt(e2e_kill9("scheduler"), 0, "no scheduler process was found");
    ended_once(batch, LOAD_JOBS);
}

Test(faults, redis_killed_under_load)
{
    cleanup_free char *batch = submit_slow(LOAD, LOAD_JOBS);
    cr_assert_gt(e2e_kill9("redis-server"), 0, "no redis-server process was found");
    ended_once(batch, LOAD_JOBS);
}

Test(faults, postgres_killed_under_load)
{
    cleanup_free char *batch = submit_slow(LOAD, LOAD_JOBS);
    cr_assert_gt(e2e_kill9("postgres"), 0, "no postgres process was found");
    ended_once(batch, LOAD_JOBS);
}

Test(faults, zz_after_all_of_it_an_ordinary_job_runs)
{
    json_t *job = e2e_python("print('well')\n"), *jobs = jobs_of(job, 2);
    cleanup_free char *batch = e2e_submit(jobs);
    ended_once(batch, 2);
    cr_expect_eq(e2e_sql("SELECT max(attempt) FROM jobs WHERE batch_id = '%s'", batch), 1);
    json_decref(jobs);
    json_decref(job);
}
