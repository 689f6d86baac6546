/* Two homes with a worker and a vmpool each, one Redis, Postgres and object store: a job whose
 * branches outnumber the places of the worker that has it is helped by the other, which fetches the
 * state from the object store. The second home is below the first; only what is its own is there.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/e2e/cli.h"

#define START_MS 300000
#define LEAVES 10

static char second[1024];

static void second_brood(struct e2e_run *r, const char *a, const char *b)
{
    e2e_run(r, (const char *const[]){ e2e_binary(), "--home", second, a, b, NULL }, NULL, START_MS);
}

/* Templates and snapshots are copies (by reference where the file system can), so that it need not
 * make its own; its vmpool is of another user than the first's. */
static void start_second(void)
{
    cleanup_e2e_run struct e2e_run copy, up;
    char line[4096], objects[1200];
    const char *home = e2e_home();
    (void)snprintf(second, sizeof second, "%s/second", home);
    (void)snprintf(
        line, sizeof line,
        "set -e; mkdir -p '%s'; for d in templates kernel snapshots; do [ -e '%s'/$d ] || "
        "{ [ ! -e '%s'/$d ] || cp -a --reflink=auto '%s'/$d '%s'/$d; }; done",
        second, second, home, home, second);
    e2e_run(&copy, (const char *const[]){ "sh", "-c", line, NULL }, NULL, START_MS);
    cr_assert_eq(copy.exit_code, 0, "%s", copy.err.data);
    const struct config *config = e2e_config();
    (void)snprintf(objects, sizeof objects, "%s/objects", home);
    (void)setenv("BROOD_REDIS_URL", config->redis_url, 1);
    (void)setenv("BROOD_POSTGRES_URL", config->postgres_url, 1);
    (void)setenv("BROOD_OBJECT_DIR", objects, 1);
    (void)setenv("BROOD_WORKER_NAME", "second", 1);
    (void)setenv("BROOD_WORKER_HEARTBEAT_MS", "500", 1);
    second_brood(&up, "up", "--detach");
    cr_assert_eq(up.exit_code, 0, "%s", up.err.data);
    (void)unsetenv("BROOD_REDIS_URL");
    (void)unsetenv("BROOD_POSTGRES_URL");
    (void)unsetenv("BROOD_OBJECT_DIR");
    (void)unsetenv("BROOD_WORKER_NAME");
}

static void stop_second(void)
{
    cleanup_e2e_run struct e2e_run down;
    second_brood(&down, "down", NULL);
}

static pid_t second_worker(void)
{
    cleanup_e2e_run struct e2e_run r;
    second_brood(&r, "status", "--json");
    json_t *s = json_loads(r.out.data ? r.out.data : "", 0, NULL), *p;
    pid_t pid = 0;
    size_t i;
    json_array_foreach(e2e_at(s, "processes"), i, p)
    {
        const char *is = json_string_value(json_object_get(p, "name"));
        if (is && strcmp(is, "worker") == 0) {
            pid = (pid_t)json_integer_value(json_object_get(p, "pid"));
        }
    }
    json_decref(s);
    cr_assert_gt(pid, 1, "%s", r.err.data);
    return pid;
}

/* What is in the object store, but for a template's own snapshot, which stays for the next state.
 */
static int64_t objects(void)
{
    cleanup_e2e_run struct e2e_run r;
    char line[1400];
    (void)snprintf(line, sizeof line, "find '%s/objects' -type f | wc -l", e2e_home());
    e2e_run(&r, (const char *const[]){ "sh", "-c", line, NULL }, NULL, E2E_SHORT_MS);
    return strtoll(r.out.data ? r.out.data : "-1", NULL, 10);
}

/* LEAVES tests after a set-up, each of which takes a while and says what it sees of the set-up. */
static char *submit_wide(void)
{
    json_t *tests = json_array();
    for (int i = 0; i < LEAVES; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", i);
        (void)json_array_append_new(tests, json_pack("{s:[s]}", "args", text));
    }
    json_t *jobs = json_pack(
        "[{s:s, s:s, s:[s,s,s,s], s:i, s:o, s:s, s:[s]}]", "template", "python", "setup",
        "echo prepared > state; (while :; do echo . >> beats; sleep 0.2; done) > /dev/null 2>&1 &",
        "command", "sh", "-c",
        "sleep 4; cat state; test $(wc -l < beats) -gt 3 && echo beats; echo $1 > out.txt; echo $1",
        "t", "parallel", LEAVES, "tests", tests, "isolation", "vm", "artifacts", "out.txt");
    cr_assert_not_null(jobs);
    char *batch = e2e_submit(jobs);
    json_decref(jobs);
    return batch;
}

/* Right whoever ran it; how many branches the second worker ran. */
static int check(const char *batch)
{
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS), *b;
    const json_t *result = json_array_get(results, 0);
    const char *id = json_string_value(e2e_at(result, "job"));
    int helped = 0;
    size_t i;
    cr_assert_eq(json_array_size(results), 1);
    cr_expect_str_eq(e2e_verdict(result), "accepted", "%s (%s)", e2e_verdict(result),
                     json_string_value(e2e_at(result, "reason")));
    cr_assert_eq(json_array_size(e2e_at(result, "branches")), LEAVES);
    json_array_foreach(e2e_at(result, "branches"), i, b)
    {
        cleanup_buf struct buf out = { 0 };
        char want[64];
        const char *worker = json_string_value(e2e_at(b, "worker"));
        (void)snprintf(want, sizeof want, "prepared\nbeats\n%zu\n", i);
        e2e_output(b, "stdout", &out);
        cr_expect_str_eq(out.data ? out.data : "", want, "branch %zu", i);
        cr_expect_eq(json_array_size(e2e_at(b, "artifacts.files")) +
                             json_array_size(e2e_at(b, "artifacts")) >
                         0,
                     true, "branch %zu has its artifact", i);
        helped += worker && strcmp(worker, "second") == 0;
    }
    cr_expect_eq(e2e_sql("SELECT count(*) FROM attempts WHERE job_id = '%s'", id), 1,
                 "one attempt");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records WHERE job_id = '%s'", id),
                 2 * (1 + LEAVES), "each sandbox is billed once");
    json_decref(results);
    return helped;
}

static void nothing_left(void)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_REDIS(&r, "--raw", "KEYS", "brood:help*");
    cr_expect_str_eq(r.out.data ? r.out.data : "", "\n", "left in Redis");
}

Test(two_hosts, the_second_helps, .fini = stop_second)
{
    start_second();
    cleanup_free char *first = submit_wide(); /* whoever has claimed it */
    (void)check(first);
    int64_t before = objects();
    int helped = 0;
    for (int i = 0; i < 3 && (helped == 0 || helped == LEAVES); i++) {
        cleanup_free char *batch = submit_wide();
        helped = check(batch);
    }
    cr_expect(helped > 0 && helped < LEAVES, "%d of %d branches were run by the second worker",
              helped, LEAVES);
    cr_expect_eq(objects(), before + 0, "no lent state stays in the object store");
    nothing_left();
}

Test(two_hosts, the_helper_is_killed, .fini = stop_second)
{
    start_second();
    cleanup_free char *batch = submit_wide();
    /* Killed at a moment when it has a branch or the job itself: either way all is done in the end.
     */
    int64_t until_ms = mono_ms() + START_MS;
    for (bool has = false; !has && mono_ms() < until_ms; sleep_ms(100)) {
        cleanup_e2e_run struct e2e_run r;
        E2E_REDIS(&r, "--raw", "KEYS", "brood:help:have:*");
        has = r.out.len > 1 ||
              e2e_sql("SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict IS NULL",
                      batch) == 0;
    }
    cr_assert_eq(kill(second_worker(), SIGKILL), 0);
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS);
    const json_t *result = json_array_get(results, 0);
    cr_expect_str_eq(e2e_verdict(result), "accepted", "%s (%s)", e2e_verdict(result),
                     json_string_value(e2e_at(result, "reason")));
    cr_expect_eq(json_integer_value(e2e_at(result, "tree.accepted")), LEAVES);
    cr_expect_eq(e2e_sql("SELECT count(*) FROM results WHERE job_id = '%s'",
                         json_string_value(e2e_at(result, "job"))),
                 1, "one result");
    json_decref(results);
}
