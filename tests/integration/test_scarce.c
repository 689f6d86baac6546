/* What runs out and what does not answer: file descriptors of a worker and of a scheduler, the
 * names of Redis and Postgres, Postgres' disk. Each is waited for, said once, and nothing is lost
 * or done twice. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "tests/integration/worker_kit.h"
#include "tests/support/names.h"

FIXTURE_MAIN

#define QUIET_MS 1500 /* long enough for several tries of whatever cannot work */
#define JOB "{\"template\":\"python\",\"command\":[\"echo\",\"1\"]}"
#define WITHOUT_FD "no file descriptor is left"
#define OUTAGE "cannot work, trying again"

static char log_path[64];

static void set_up_logged(void)
{
    set_up();
    (void)snprintf(log_path, sizeof log_path, "%s/log", home);
    program_log = log_path;
}

/* Lines of the log that hold text. */
static int said(const char *text)
{
    char line[4096];
    int n = 0;
    FILE *log = fopen(log_path, "re");
    while (log && fgets(line, sizeof line, log)) {
        n += strstr(line, text) != NULL;
    }
    if (log) {
        (void)fclose(log);
    }
    return n;
}

/* What a failed test has to show. */
static void tear_down_logged(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "tail -n 30 %s >&2", log_path);
    if (getenv("BROOD_TEST_SHOW_LOG")) {
        (void)!system(command);
    }
    tear_down();
}

TestSuite(scarce, .init = set_up_logged, .fini = tear_down_logged, .timeout = 120);

static void await_said(const char *text, int want)
{
    for (int64_t end = mono_ms() + WAIT_MS; said(text) < want && mono_ms() < end; sleep_ms(20)) {
    }
    cr_assert_geq(said(text), want, "\"%s\" was not said", text);
}

#define STANDARD_FDS 3 /* open; and no poll() here has more, which may not be above the limit */

/* Those that are open stay, nothing more can be opened, also not what was open and breaks. */
static struct rlimit deny_descriptors(pid_t pid)
{
    struct rlimit was, now;
    cr_assert_eq(prlimit(pid, RLIMIT_NOFILE, NULL, &was), 0);
    now = (struct rlimit){ .rlim_cur = STANDARD_FDS, .rlim_max = was.rlim_max };
    cr_assert_eq(prlimit(pid, RLIMIT_NOFILE, &now, NULL), 0);
    return was;
}

static void allow_descriptors(pid_t pid, const struct rlimit *was)
{
    cr_assert_eq(prlimit(pid, RLIMIT_NOFILE, was, NULL), 0);
}

/* Everybody's connections but those of this test. */
static void cut_connections(void)
{
    redisReply *r = redisCommand(f.queue.ctx, "CLIENT KILL TYPE normal SKIPME yes");
    cr_assert(r && r->type == REDIS_REPLY_INTEGER);
    freeReplyObject(r);
    PGresult *res =
        PQexec(f.pg.conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                          "datname = current_database() AND pid <> pg_backend_pid()");
    cr_assert_eq(PQresultStatus(res), PGRES_TUPLES_OK, "%s", PQerrorMessage(f.pg.conn));
    PQclear(res);
}

static pid_t start_scheduler(const char *pg_url)
{
    return start_program(BROOD_BINARY_DIR "/brood-scheduler", pg_url);
}

static void expect_first_attempt(const struct id *id)
{
    expect_verdict(id, VERDICT_ACCEPTED);
    cr_expect_eq(about(id, "SELECT attempt FROM jobs WHERE id = $"), 1);
    cr_expect_eq(about(id, ATTEMPTS), 1);
}

/* ---- file descriptors ---- */

Test(scarce, a_worker_without_descriptors_holds_its_claim)
{
    pid_t pid = start_worker("w1");
    struct id before = run_job(JOB), id;
    expect_verdict(&before, VERDICT_ACCEPTED);
    struct rlimit was = deny_descriptors(pid);
    id = run_job(JOB);
    await_said(WITHOUT_FD, 1);
    sleep_ms(QUIET_MS);
    cr_expect_eq(about(&id, ENDED), 0);
    cr_expect_eq(said(WITHOUT_FD), 1, "said %d times", said(WITHOUT_FD));
    cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it lives");
    allow_descriptors(pid, &was);
    expect_first_attempt(&id);
    expect_queue_empty();
    cr_expect_eq(end_worker(pid), 0);
}

/* Its connections break, and it cannot make others. */
Test(scarce, a_scheduler_without_descriptors_takes_nothing_and_waits)
{
    pid_t pid = start_scheduler(f.pg_url);
    OK(queue_intake_add(&f.queue, JOB, strlen(JOB), NULL, NULL, 0, &err));
    struct id none = { "" };
    await(&none, "SELECT count(*) FROM jobs WHERE '' = $", 1);
    struct rlimit was = deny_descriptors(pid);
    cut_connections();
    await_said(OUTAGE, 1);
    OK(queue_intake_add(&f.queue, JOB, strlen(JOB), NULL, NULL, 0, &err));
    sleep_ms(QUIET_MS);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 1);
    cr_expect_leq(said(OUTAGE), 2, "once for each server: %d", said(OUTAGE));
    cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it lives");
    allow_descriptors(pid, &was);
    await(&none, "SELECT count(*) FROM jobs WHERE '' = $", 2);
    await_said("working again", 1);
    cr_expect_eq(end_worker(pid), 0);
}

/* ---- names ---- */

/* Redis and Postgres of the fixture, by name and TCP, for programs; this test goes on as it was. */
static void use_names(pid_t fronts[2], char pg_url[URL_BYTES])
{
    char path[300], dir[128], rest[128];
    int port = tcp_front(f.redis_url + strlen("unix://"), &fronts[0]);
    (void)snprintf(f.redis_url, sizeof f.redis_url, "redis://redis.brood.test:%d", port);
    cr_assert_eq(sscanf(f.pg_url, "host=%127s %127[^\n]", dir, rest), 2, "%s", f.pg_url);
    (void)snprintf(path, sizeof path, "%s/.s.PGSQL.5432", dir);
    port = tcp_front(path, &fronts[1]);
    (void)snprintf(pg_url, URL_BYTES, "host=pg.brood.test port=%d %s", port, rest);
}

#define BOTH_NAMES "127.0.0.1 redis.brood.test pg.brood.test\n"

/* The job is the scheduler's to dispatch. */
static struct id submit(void)
{
    struct id id = submit_to(&f.pg, JOB);
    OK(queue_wake(&f.queue, &err));
    return id;
}

/* The names go while scheduler and worker work, and come back. */
static void a_job_waits_for_names(void)
{
    int before = said(OUTAGE);
    names_set("");
    cut_connections();
    await_said(OUTAGE, before + 1);
    struct id id = submit();
    sleep_ms(QUIET_MS);
    cr_expect_eq(about(&id, ENDED), 0);
    names_set(BOTH_NAMES);
    expect_first_attempt(&id);
}

Test(scarce, names_that_do_not_resolve_are_waited_for)
{
    struct pg pg;
    struct queue queue;
    char pg_url[URL_BYTES];
    pid_t fronts[2];
    if (!names_begin(home)) {
        cr_skip_test("no mount namespace");
    }
    use_names(fronts, pg_url);
    cr_expect_eq(pg_open(&pg, pg_url, &err), -ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "pg.brood.test"), "%s", err.text);
    pg_close(&pg);
    cr_expect_eq(queue_open(&queue, f.redis_url, &err), -ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "redis.brood.test"), "%s", err.text);
    queue_close(&queue);

    pid_t scheduler = start_scheduler(pg_url), worker = start_worker_at("w1", pg_url);
    struct id id = submit_to(&f.pg, JOB);
    await_said(OUTAGE, 1);
    sleep_ms(QUIET_MS);
    int once = said(OUTAGE);
    sleep_ms(QUIET_MS);
    cr_expect_eq(said(OUTAGE), once, "said again");
    cr_assert(waitpid(scheduler, NULL, WNOHANG) == 0 && waitpid(worker, NULL, WNOHANG) == 0);
    names_set(BOTH_NAMES);
    expect_first_attempt(&id);

    a_job_waits_for_names(); /* and while they work */
    if (names_silence()) {   /* and of a server that says nothing at all */
        a_job_waits_for_names();
    }
    expect_queue_empty();
    cr_expect_eq(end_worker(worker), 0);
    cr_expect_eq(end_worker(scheduler), 0);
    kill_worker(fronts[0]);
    kill_worker(fronts[1]);
}

/* A job whose spec is too long for the queue: the worker that has claimed it cannot reach Postgres.
 */
Test(scarce, a_large_job_waits_for_postgres_and_keeps_its_claim)
{
    enum { STDIN_BYTES = 2 * DISPATCH_SPEC_BYTES_MAX };
    char pg_url[URL_BYTES];
    pid_t fronts[2];
    if (!names_begin(home)) {
        cr_skip_test("no mount namespace");
    }
    use_names(fronts, pg_url);
    names_set(BOTH_NAMES);
    pid_t worker = start_worker_at("w1", pg_url);
    struct id before = run_job(JOB);
    expect_first_attempt(&before); /* its committer is connected */
    names_set("127.0.0.1 redis.brood.test\n");
    char *json = malloc(STDIN_BYTES + 200);
    cr_assert(json);
    size_t n = (size_t)snprintf(
        json, 200, "{\"template\":\"python\",\"command\":[\"echo\",\"1\"],\"stdin\":\"");
    memset(json + n, 'x', STDIN_BYTES);
    memcpy(json + n + STDIN_BYTES, "\"}", sizeof "\"}");
    struct id id = run_job(json);
    await_said("a large job waits for Postgres", 1);
    sleep_ms(QUIET_MS);
    cr_expect_eq(about(&id, ENDED), 0);
    struct pending_claim held;
    cr_expect_eq(queue_pending(&f.queue, NULL, &held, 1, &err), 1);
    names_set(BOTH_NAMES);
    expect_first_attempt(&id);
    expect_queue_empty();
    free(json);
    cr_expect_eq(end_worker(worker), 0);
    kill_worker(fronts[0]);
    kill_worker(fronts[1]);
}

/* ---- Postgres' disk ---- */

#define DISK_MIB 128
#define JOBS 4

/* All that is free on the server's file system. */
static void fill(const struct server *s, const char *path)
{
    struct statvfs st;
    cr_assert_eq(statvfs(s->dir, &st), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fallocate(fd, 0, 0, (off_t)(st.f_bfree * st.f_bsize)), 0);
    (void)close(fd);
}

Test(scarce, postgres_with_a_full_disk_gets_results_later)
{
    struct server own = { .pid = 0, .size_mib = DISK_MIB };
    char url[URL_BYTES], ballast[128], spool[64];
    struct pg pg;
    struct id ids[JOBS];
    if (!own_mounts()) {
        cr_skip_test("no mount namespace");
    }
    open_own(&own, url, &pg);
    pid_t pid = start_worker_at("w1", url);
    for (int i = 0; i < JOBS; i++) {
        ids[i] = submit_to(&pg, "{\"template\":\"python\",\"command\":[\"sleep\",\"500\"]}");
    }
    dispatch(&pg, JOBS, NULL);
    while (fake_pool_leases(pool) < 1) {
        sleep_ms(10);
    }
    (void)snprintf(ballast, sizeof ballast, "%s/ballast", own.dir);
    (void)snprintf(spool, sizeof spool, "%s/spool/results.0", home);
    fill(&own, ballast);
    struct stat st = { .st_size = 0 };
    for (int64_t end = mono_ms() + WAIT_MS; mono_ms() < end; sleep_ms(20)) {
        if (fake_pool_releases(pool) == JOBS && stat(spool, &st) == 0 && st.st_size > 0) {
            break;
        }
    }
    cr_assert_eq(fake_pool_releases(pool), JOBS, "the jobs ran");
    cr_assert_gt(st.st_size, 0, "results are on the worker's disk");
    sleep_ms(QUIET_MS);
    cr_expect_leq(said(OUTAGE), 2, "%d times", said(OUTAGE));
    cr_assert_eq(unlink(ballast), 0);
    if (waitpid(own.pid, NULL, WNOHANG) == own.pid) { /* it wanted a new piece of its log */
        own.pid = 0;
        cr_assert_eq(postgres_start(&own), 0);
    }
    await_accepted(&pg, ids, JOBS);
    cr_expect_eq(fake_pool_leases(pool), JOBS, "nothing was run again");
    expect_queue_empty();
    cr_expect_eq(end_worker(pid), 0);
    pg_close(&pg);
    server_remove(&own);
}
