/* What the programs about brood-worker have in common: Redis and Postgres of their own, a played
 * vmpool, a worker, and the scheduler's part. Included once by each. BROOD_TEST_WORKER names
 * another program to test, e.g. one built with a sanitizer. */
#pragma once
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/fake_guest_pool.h"
#include "tests/support/fixture.h"

#define WORKER_KIT __attribute__((unused))
#define WAIT_MS 20000

static struct fixture f;
static struct err err;
static struct fake_pool *pool;
static char home[32], pool_path[64];
static const char *program_log; /* where the programs write what they have to say; NULL: here */

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)

WORKER_KIT static void start_pool(enum fake_pool_mode mode)
{
    (void)snprintf(pool_path, sizeof pool_path, "%s/pool.sock", home);
    pool = fake_pool_start(pool_path, mode, guest_script_shell, NULL);
}

WORKER_KIT static void set_up(void)
{
    fixture_open(&f);
    (void)snprintf(home, sizeof home, "/tmp/brood-worker-XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    start_pool(POOL_GOOD);
}

WORKER_KIT static void tear_down(void)
{
    char command[64];
    fake_pool_stop(pool);
    fixture_close(&f);
    (void)snprintf(command, sizeof command, "rm -rf -- %s", home);
    cr_assert_eq(system(command), 0);
}

WORKER_KIT static void set(const char *name, const char *value)
{
    (void)setenv(name, value, 1);
}

/* One of brood's programs, on this test's servers. */
WORKER_KIT static pid_t start_program(const char *path, const char *pg_url)
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
    if (program_log && !freopen(program_log, "a", stderr)) {
        _exit(126);
    }
    set("BROOD_HOME", home);
    set("BROOD_REDIS_URL", f.redis_url);
    set("BROOD_POSTGRES_URL", pg_url);
    set("BROOD_VMPOOL_SOCKET", pool_path);
    set("BROOD_WORKER_SLOTS", "2");
    set("BROOD_WORKER_HEARTBEAT_MS", "100");
    set("BROOD_SCHEDULER_RETRY_BASE_MS", "1");
    set("BROOD_SCHEDULER_INFRA_ATTEMPTS_MAX", "2");
    set("BROOD_SCHEDULER_INFRA_WAITS_MAX", "4");
    (void)execl(path, path, (char *)NULL);
    perror(path);
    _exit(126);
}

WORKER_KIT static pid_t start_worker_at(const char *name, const char *pg_url)
{
    const char *program = getenv("BROOD_TEST_WORKER");
    set("BROOD_WORKER_NAME", name);
    return start_program(program ? program : BROOD_BINARY_DIR "/brood-worker", pg_url);
}

WORKER_KIT static pid_t start_worker(const char *name)
{
    return start_worker_at(name, f.pg_url);
}

/* A claim that stood as it is for quiet_ms is taken over, as the scheduler does. */
WORKER_KIT static void take_over(int quiet_ms, struct expired_claim *ret_e)
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

WORKER_KIT static void kill_worker(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Exit status after SIGTERM. */
WORKER_KIT static int end_worker(pid_t pid)
{
    int status;
    (void)kill(pid, SIGTERM);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "status %d", status);
    return WEXITSTATUS(status);
}

WORKER_KIT static struct id submit_to(struct pg *pg, const char *json)
{
    struct job_spec *spec;
    OK(job_parse(json, strlen(json), &spec, &err));
    struct submit_item item = { .spec = spec };
    OK(store_submit(pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    job_spec_free(spec);
    return item.ret_id;
}

/* What the scheduler does. spec NULL: the job's own. */
WORKER_KIT static void dispatch(struct pg *pg, int n, const char *spec)
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

WORKER_KIT static struct id run_job(const char *json)
{
    struct id id = submit_to(&f.pg, json);
    dispatch(&f.pg, 1, NULL);
    return id;
}

/* A figure about one job: "SELECT ... '$'" with the id for the $. */
WORKER_KIT static long about(const struct id *id, const char *sql)
{
    char text[512];
    const char *at = strchr(sql, '$');
    (void)snprintf(text, sizeof text, "%.*s'%s'%s", (int)(at - sql), sql, id->text, at + 1);
    return fixture_number(&f, text);
}

WORKER_KIT static void await(const struct id *id, const char *sql, long want)
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

WORKER_KIT static void expect_verdict(const struct id *id, enum verdict want)
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

WORKER_KIT static void expect_queue_empty(void)
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

#define URL_BYTES 320

/* A Postgres of this test's own, which it may end: the fixture's goes on. */
WORKER_KIT static void open_own(struct server *own, char url[URL_BYTES], struct pg *pg)
{
    const struct template_info t = {
        .name = "python", .digest = "d1", .memory_mib = 512, .vcpus = 1
    };
    cr_assert_eq(postgres_start(own), 0);
    (void)snprintf(url, URL_BYTES, "%s dbname=postgres", own->url);
    OK(pg_open(pg, url, &err));
    OK(pg_migrate(pg, &err));
    OK(store_template_put(pg, &t, &err));
}

/* All of them end as accepted, at the first attempt. */
WORKER_KIT static void await_accepted(struct pg *pg, const struct id *ids, int n)
{
    int done = 0;
    for (int64_t end = mono_ms() + WAIT_MS; done < n && mono_ms() < end; sleep_ms(50)) {
        done = 0;
        for (int i = 0; i < n; i++) {
            struct result_row row;
            if (store_job(pg, ids[i].text, &row, &err) == 0) {
                done +=
                    row.has_result && row.result.verdict == VERDICT_ACCEPTED && row.attempt == 1;
                result_row_done(&row);
            }
        }
    }
    cr_assert_eq(done, n);
}
