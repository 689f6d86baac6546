/* kill -9 of the worker, and of vmpool, while branches run: a later attempt ends the job, once,
 * with all of its branches. (The same for plain jobs, and for the other parts: test_faults.c.) */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/e2e/cli.h"

#define START_MS 300000
#define BRANCHES 3

static json_int_t number(const json_t *v, const char *path)
{
    return json_integer_value(e2e_at(v, path));
}

static json_t *status(void)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "status", "--json");
    json_t *s = json_loads(r.out.data, 0, NULL);
    cr_assert_not_null(s, "brood status --json: %s", r.err.data);
    return s;
}

/* The process's id, as `brood status` says it. */
static pid_t pid_of(const char *name)
{
    json_t *s = status(), *p;
    pid_t pid = 0;
    size_t i;
    json_array_foreach(e2e_at(s, "processes"), i, p)
    {
        const char *is = json_string_value(json_object_get(p, "name"));
        if (is && strcmp(is, name) == 0) {
            pid = (pid_t)number(p, "pid");
        }
    }
    json_decref(s);
    cr_assert_gt(pid, 1, "brood status names no process %s", name);
    return pid;
}

static json_int_t leased(void)
{
    json_t *s = status(), *row;
    json_int_t n = 0;
    size_t i;
    json_array_foreach(e2e_at(s, "pool.snapshots"), i, row)
    {
        n += number(row, "leased");
    }
    json_decref(s);
    return n;
}

/* A job of three branches that take their time, once at least one of them has its machine (beside
 * the state that it was forked from); the batch's id. */
static char *submit_and_wait_for_forks(void)
{
    json_t *jobs = json_pack("[{s:s, s:s, s:s, s:[{},{s:s, s:[{},{}]}]}]", "template", "python",
                             "setup", "echo root > path", "command", "sleep 4; cat path",
                             "branches", "setup", "echo inner >> path", "tests");
    cr_assert_not_null(jobs);
    char *batch = e2e_submit(jobs);
    json_decref(jobs);
    int64_t deadline_ms = mono_ms() + START_MS;
    while (leased() < 2) {
        cr_assert_lt(mono_ms(), deadline_ms, "no branch ever ran");
        sleep_ms(20);
    }
    cr_assert_eq(
        e2e_sql("SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict IS NULL", batch), 1,
        "it ended before it was killed");
    return batch;
}

static void ended_once(const char *batch)
{
    static const char *const want[] = { "root\n", "", "root\ninner\n", "root\ninner\n" };
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS), *b;
    cr_assert_eq(json_array_size(results), 1);
    const json_t *result = json_array_get(results, 0);
    const char *id = json_string_value(e2e_at(result, "job"));
    cr_expect_str_eq(e2e_verdict(result), "accepted", "%s (%s)", e2e_verdict(result),
                     json_string_value(e2e_at(result, "reason")));
    cr_expect_gt(number(result, "attempt"), 1, "a later attempt ended it");
    cr_expect_eq(number(result, "tree.accepted"), BRANCHES);
    cr_assert_eq(json_array_size(e2e_at(result, "branches")), sizeof want / sizeof want[0]);
    size_t i;
    json_array_foreach(e2e_at(result, "branches"), i, b)
    {
        cleanup_buf struct buf out = { 0 };
        e2e_output(b, "stdout", &out);
        cr_expect_str_eq(e2e_verdict(b), "accepted", "branch %zu: %s (%s)", i, e2e_verdict(b),
                         json_string_value(e2e_at(b, "reason")));
        cr_expect(out.len == strlen(want[i]) &&
                      (out.len == 0 || memcmp(out.data, want[i], out.len) == 0),
                  "branch %zu printed %.*s", i, (int)out.len, (char *)out.data);
    }
    cr_expect_eq(e2e_sql("SELECT count(*) FROM attempts WHERE job_id = '%s' AND outcome = "
                         "'committed'",
                         id),
                 1, "one committed attempt");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM results WHERE job_id = '%s'", id), 1, "one result");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records WHERE job_id = '%s'", id),
                 2 * (1 + 1 + BRANCHES), "each sandbox of the last attempt is billed once");
    json_decref(results);
}

Test(branches_killed, the_worker)
{
    cleanup_free char *batch = submit_and_wait_for_forks();
    cr_assert_eq(kill(pid_of("worker"), SIGKILL), 0);
    ended_once(batch);
}

Test(branches_killed, vmpool)
{
    cleanup_free char *batch = submit_and_wait_for_forks();
    cr_assert_eq(kill(pid_of("vmpool"), SIGKILL), 0);
    ended_once(batch);
}
