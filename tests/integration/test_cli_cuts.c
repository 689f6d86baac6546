/* Connections that break while brood submit, run, ci and cancel use them: the commands themselves,
 * their Postgres or Redis behind a proxy that cuts at a word; and an object store that is late. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/store/object.h"
#include "tests/support/cli_run.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

#define PIECE 65536
#define JOBS 100

static struct fixture f;
static struct err err;
static char dir[] = "/tmp/brood-cuts-XXXXXX", jobs_path[64], proxy_path[64];
static pid_t proxy_pid;
static int *cuts_left; /* shared with the proxy */

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)

/* ---- the proxy ---- */

static int open_socket(const char *path, bool listening)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int rc = listening ? bind(fd, (struct sockaddr *)&a, sizeof a)
                       : connect(fd, (struct sockaddr *)&a, sizeof a);
    return rc < 0 || (listening && listen(fd, 64) < 0) ? -1 : fd;
}

static ssize_t pass(int in, int out, char *piece)
{
    ssize_t n = recv(in, piece, PIECE, 0);
    return n <= 0 || send(out, piece, (size_t)n, MSG_NOSIGNAL) != n ? -1 : n;
}

/* What the client sends with word in it reaches the server and is answered there, and then the
 * connection is cut, as long as there are cuts left. */
static void serve(int client, const char *target, const char *word)
{
    static char piece[PIECE];
    int server = open_socket(target, false);
    struct pollfd p[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
    while (server >= 0 && poll(p, 2, -1) > 0) {
        if (p[0].revents) {
            ssize_t n = pass(client, server, piece);
            if (n < 0) {
                return;
            }
            if (*cuts_left > 0 && memmem(piece, (size_t)n, word, strlen(word))) {
                --*cuts_left;
                (void)recv(server, piece, sizeof piece, 0);
                return;
            }
        }
        if (p[1].revents && pass(server, client, piece) < 0) {
            return;
        }
    }
}

/* Ends with the test, however that ends; the children end with it. */
static void start_proxy(const char *path, const char *target, const char *word, int cuts)
{
    (void)snprintf(proxy_path, sizeof proxy_path, "%s", path);
    int fd = open_socket(path, true);
    cr_assert_geq(fd, 0, "%s", path);
    *cuts_left = cuts;
    pid_t parent = getpid();
    proxy_pid = fork();
    cr_assert_geq(proxy_pid, 0);
    if (proxy_pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGCHLD, SIG_IGN);
        while (getppid() == parent) {
            int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
            pid_t me = getpid(), pid = fork();
            if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() == me) {
                    serve(client, target, word);
                }
                _exit(0);
            }
            (void)close(client);
        }
        _exit(0);
    }
    (void)close(fd);
}

static void stop_proxy(void)
{
    if (proxy_pid > 0) {
        (void)kill(proxy_pid, SIGKILL);
        (void)waitpid(proxy_pid, NULL, 0);
        (void)unlink(proxy_path);
        proxy_pid = 0;
    }
}

static void cut_postgres(const char *word, int cuts)
{
    char host[96], path[112], target[144], url[320];
    cr_assert_eq(sscanf(f.pg_url, "host=%95s", host), 1);
    (void)snprintf(path, sizeof path, "%s/.s.PGSQL.5432", dir);
    (void)snprintf(target, sizeof target, "%s/.s.PGSQL.5432", host);
    (void)snprintf(url, sizeof url, "host=%s%s", dir, f.pg_url + strlen("host=") + strlen(host));
    start_proxy(path, target, word, cuts);
    setenv("BROOD_POSTGRES_URL", url, 1);
}

static void cut_redis(const char *word, int cuts)
{
    char path[64], url[80];
    (void)snprintf(path, sizeof path, "%s/redis.sock", dir);
    (void)snprintf(url, sizeof url, "unix://%s", path);
    start_proxy(path, f.redis_url + strlen("unix://"), word, cuts);
    setenv("BROOD_REDIS_URL", url, 1);
}

/* ---- around each test ---- */

static void set_up(void)
{
    fixture_open(&f);
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(jobs_path, sizeof jobs_path, "%s/jobs.jsonl", dir);
    cuts_left =
        mmap(NULL, sizeof *cuts_left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(cuts_left, MAP_FAILED);
    setenv("BROOD_HOME", dir, 1);
    setenv("BROOD_POSTGRES_URL", f.pg_url, 1);
    setenv("BROOD_REDIS_URL", f.redis_url, 1);
}

static void tear_down(void)
{
    char command[96];
    stop_proxy();
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    (void)!system(command);
    fixture_close(&f);
}

TestSuite(cli_cuts, .init = set_up, .fini = tear_down, .timeout = 300);

static long jobs_stored(void)
{
    return fixture_number(&f, "SELECT count(*) FROM jobs");
}

static void wait_stored(struct cli_run *r)
{
    while (jobs_stored() == 0) {
        cr_assert_eq(waitpid(r->pid, NULL, WNOHANG), 0, "it ended before it stored a job");
        sleep_ms(20);
    }
}

/* Until stderr has text. */
static void wait_said(struct cli_run *r, const char *text)
{
    char said[4096];
    for (ssize_t n = 0; n <= 0 || !memmem(said, (size_t)n, text, strlen(text)); sleep_ms(20)) {
        cr_assert_eq(waitpid(r->pid, NULL, WNOHANG), 0, "it ended before it said %s", text);
        n = pread(r->fds[1], said, sizeof said, 0);
    }
}

/* The next job is run by nobody and ends as accepted, with these artifacts. */
static void run_one(const struct manifest *artifacts)
{
    struct dispatch_row row;
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1, "%s", err.text);
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    r.run = (struct run_result){ .present = true };
    struct commit_item item = { .job_id = row.job_id,
                                .tenant = "default",
                                .template_name = "python",
                                .worker = "w",
                                .attempt = 1,
                                .result = &r,
                                .artifacts = artifacts };
    OK(store_commit(&f.pg, &item, 1, &err));
    dispatch_rows_done(&row, 1);
    job_result_done(&r);
}

/* ---- a commit whose answer is lost ---- */

Test(cli_cuts, a_batch_whose_commit_is_not_answered_is_stored_once)
{
    cleanup_cli_run struct cli_run r;
    FILE *file = fopen(jobs_path, "we");
    cr_assert_not_null(file);
    for (int i = 0; i < JOBS; i++) {
        (void)fprintf(file, "{\"template\":\"python\",\"command\":\"x\"}\n");
    }
    cr_assert_eq(fclose(file), 0);
    cut_postgres("COMMIT", 2); /* the second time the repeated call, which has nothing to add */
    BROOD(&r, "submit", jobs_path, "--json");
    cr_expect_eq(*cuts_left, 0);
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    cr_expect_eq(jobs_stored(), JOBS);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM batches"), 1);
    cr_expect_eq(fixture_number(&f, "SELECT jobs FROM batches"), JOBS);
    cr_expect(strstr(r.out.data, "\"submitted\":100") && strstr(r.out.data, "\"duplicates\":0"),
              "%s", r.out.data);
}

Test(cli_cuts, a_run_whose_commit_is_not_answered_goes_on)
{
    cleanup_cli_run struct cli_run r;
    cut_postgres("COMMIT", 1);
    BROOD_START(&r, "run", "--", "x");
    wait_stored(&r);
    run_one(NULL);
    cli_finish(&r);
    cr_expect_eq(*cuts_left, 0);
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    cr_expect_eq(jobs_stored(), 1);
}

/* ---- Redis ---- */

/* The connection has died between its opening and the first use of it. */
Test(cli_cuts, a_run_that_cannot_wake_the_scheduler_goes_on)
{
    cleanup_cli_run struct cli_run r;
    cut_redis("XADD", 2);
    BROOD_START(&r, "run", "--", "x");
    wait_stored(&r);
    run_one(NULL);
    cli_finish(&r);
    cr_expect_eq(*cuts_left, 0, "it was tried once more");
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    cr_expect(strstr(r.err.data, "the scheduler could not be told"), "%s", r.err.data);
}

static void start_ci(struct cli_run *r, const char *options)
{
    char command[160];
    (void)snprintf(command, sizeof command, "cd %s && exec %s ci %s -- x", dir,
                   BROOD_BINARY_DIR "/brood", options);
    cli_start(r, (const char *const[]){ "/bin/sh", "-c", command, NULL });
}

Test(cli_cuts, a_ci_that_cannot_wake_the_scheduler_goes_on)
{
    cleanup_cli_run struct cli_run r;
    cut_redis("XADD", 2);
    start_ci(&r, "");
    wait_stored(&r);
    run_one(NULL);
    cli_finish(&r);
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    cr_expect(strstr(r.err.data, "the scheduler could not be told"), "%s", r.err.data);
}

/* A ci whose server goes away, and then ^C. */
static void interrupt_ci(struct cli_run *r)
{
    start_ci(r, "");
    wait_said(r, ", batch ");
    stop_proxy();
    cr_assert_eq(kill(r->pid, SIGINT), 0);
    cli_finish(r);
    cr_assert_eq(r->exit_code, 130, "%s", r->err.data);
}

Test(cli_cuts, an_interrupt_cancels_while_redis_is_away)
{
    cleanup_cli_run struct cli_run r;
    cut_redis("", 0);
    interrupt_ci(&r);
    cr_expect(strstr(r.err.data, " is cancelled\n"), "%s", r.err.data);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'cancelled'"), 1);
}

Test(cli_cuts, an_interrupt_that_cannot_cancel_says_so)
{
    cleanup_cli_run struct cli_run r;
    cut_postgres("", 0);
    interrupt_ci(&r);
    cr_expect(strstr(r.err.data, "brood cancel ") && !strstr(r.err.data, "is cancelled"), "%s",
              r.err.data);
}

Test(cli_cuts, cancel_needs_no_redis)
{
    cleanup_cli_run struct cli_run r;
    struct submit_item item = { .spec = fixture_job("x", NULL) };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    setenv("BROOD_REDIS_URL", "unix:///nonexistent/redis.sock", 1);
    BROOD(&r, "cancel", "--job", item.ret_id.text);
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    cr_expect(strstr(r.out.data, "1 job cancelled"), "%s", r.out.data);
    cr_expect(strstr(r.err.data, "Redis was not told"), "%s", r.err.data);
}

/* ---- the object store ---- */

static const char report[] = "<testsuite name='s'><testcase classname='c' name='a'/></testsuite>";
#define REPORT_SHA "5b6b82b2b2e26ca7cfc610ad49151690e9944914abdf9d26189a241521cc33e9"

/* A run whose only report is listed like this. in_the_way: a file where the store has a folder. */
static void run_with_report(struct cli_run *r, bool stored, enum artifact_reason reason,
                            const char *in_the_way)
{
    cleanup_manifest struct manifest m = { 0 };
    struct artifact *a;
    start_ci(r, "--report r.xml");
    wait_said(r, ", batch ");
    if (in_the_way) {
        cleanup_close int fd = open(in_the_way, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        cr_assert_geq(fd, 0);
    }
    OK(manifest_add(&m, "r.xml", 5, NULL, 0, &a, &err));
    a->size = strlen(report);
    a->stored = stored;
    a->reason = reason;
    (void)snprintf(a->sha256, sizeof a->sha256, "%s", REPORT_SHA);
    run_one(&m);
}

static void store_report(void)
{
    struct object_store *store = NULL;
    struct object_options o = { .driver = OBJECT_DIR };
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", dir);
    OK(object_store_open(&store, &o, &err));
    cleanup_close int fd = memfd_create("report", MFD_CLOEXEC);
    cr_assert_eq(write(fd, report, strlen(report)), (ssize_t)strlen(report));
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    struct object_id want;
    OK(object_id_parse(&want, REPORT_SHA, &err));
    OK(object_put(
        store,
        &(struct object_put){ .fd = fd, .size_bytes = (int64_t)strlen(report), .want = &want },
        &err));
    object_store_free(store);
}

Test(cli_cuts, a_report_that_waits_for_the_object_store_is_waited_for)
{
    cleanup_cli_run struct cli_run r;
    run_with_report(&r, false, ARTIFACT_PENDING, NULL);
    wait_said(&r, "waiting for the object store");
    store_report();
    char job[64];
    fixture_value(&f, "SELECT id FROM jobs", job, sizeof job);
    cr_assert_eq(store_artifact_came(&f.pg, job, REPORT_SHA, &err), 1, "%s", err.text);
    cli_finish(&r);
    cr_assert_eq(r.exit_code, 0, "%s%s", r.out.data, r.err.data);
    cr_expect(strstr(r.out.data, "tests 1  passed 1"), "%s", r.out.data);
}

Test(cli_cuts, an_object_store_that_fails_is_asked_again)
{
    cleanup_cli_run struct cli_run r;
    char way[96];
    (void)snprintf(way, sizeof way, "%s/objects/%.2s", dir, REPORT_SHA);
    run_with_report(&r, true, ARTIFACT_OK, way);
    wait_said(&r, "waiting for the object store");
    cr_assert_eq(unlink(way), 0);
    store_report();
    cli_finish(&r);
    cr_assert_eq(r.exit_code, 0, "%s%s", r.out.data, r.err.data);
}

Test(cli_cuts, a_report_that_the_object_store_has_not_is_no_test_that_failed)
{
    for (int stored = 0; stored < 2; stored++) {
        cleanup_cli_run struct cli_run r;
        run_with_report(&r, stored, stored ? ARTIFACT_OK : ARTIFACT_STORE, NULL);
        cli_finish(&r);
        cr_expect_eq(r.exit_code, 125, "%s%s", r.out.data, r.err.data);
        cr_expect(strstr(r.out.data, "brood could not get every report"), "%s", r.out.data);
    }
}
