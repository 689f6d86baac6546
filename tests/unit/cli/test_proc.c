#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/proc.h"
#include "cli/services.h"

static char *const sleeper[] = { (char *)(uintptr_t) "sleep", (char *)(uintptr_t) "100", NULL };

Test(proc, records_by_pid_and_start_time)
{
    struct err err;
    struct proc_record rows[PROC_RECORDS_MAX];
    char dir[] = "/tmp/test_proc_XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(proc_records(dir, rows, PROC_RECORDS_MAX), 0);
    pid_t pid;
    struct spawn_opts o = { .argv = sleeper, .uid = PROC_KEEP_USER, .death_signal = SIGKILL };
    cr_assert_eq(proc_spawn(&o, &pid, &err), 0, "%s", err.text);
    cr_assert_eq(proc_record(dir, "one", pid, &err), 0);
    cr_assert_eq(proc_records(dir, rows, PROC_RECORDS_MAX), 1);
    cr_assert_eq(rows[0].pid, pid);
    cr_assert_str_eq(rows[0].name, "one");
    /* the same pid with another start time is another process: never touched */
    struct proc_record other = rows[0];
    other.start++;
    cr_assert_not(proc_alive(&other));
    cr_assert(proc_end(&other, SIGKILL, 10));
    cr_assert(proc_alive(&rows[0]));
    cr_assert(proc_end(&rows[0], SIGTERM, 5000));
    cr_assert_not(proc_alive(&rows[0]));
    cr_assert_eq(proc_records(dir, rows, PROC_RECORDS_MAX), 0);
    proc_forget(dir, "one");
    (void)snprintf(path, sizeof path, "%s/pids", dir);
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(rmdir(dir), 0);
}

Test(proc, a_child_dies_with_its_parent)
{
    int p[2];
    pid_t child = 0;
    cr_assert_eq(pipe(p), 0);
    pid_t parent = fork();
    if (parent == 0) {
        struct err err;
        struct spawn_opts o = { .argv = sleeper, .uid = PROC_KEEP_USER, .death_signal = SIGKILL };
        if (proc_spawn(&o, &child, &err) == 0) {
            (void)!write(p[1], &child, sizeof child);
        }
        (void)pause();
        _exit(0);
    }
    cr_assert_eq(read(p[0], &child, sizeof child), (ssize_t)sizeof child);
    struct proc_record r = { .pid = child, .start = proc_start_time(child) };
    cr_assert(proc_alive(&r));
    (void)kill(parent, SIGKILL);
    (void)waitpid(parent, NULL, 0);
    for (int i = 0; i < 500 && proc_alive(&r); i++) {
        (void)usleep(10000);
    }
    cr_assert_not(proc_alive(&r));
}

Test(proc, a_missing_program_is_an_error)
{
    struct err err;
    pid_t pid;
    char *const argv[] = { (char *)(uintptr_t) "/nonexistent/program", NULL };
    struct spawn_opts o = { .argv = argv, .uid = PROC_KEEP_USER };
    cr_assert_eq(proc_spawn(&o, &pid, &err), -ERR_SYS);
    cr_assert(strstr(err.text, "/nonexistent/program"), "%s", err.text);
}

Test(proc, capture_keeps_what_fits_and_ends_late_ones)
{
    struct err err;
    char out[8];
    char *const echo[] = { (char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                           (char *)(uintptr_t) "echo 123456789; exit 3", NULL };
    cr_assert_eq(proc_capture(echo, 5000, out, sizeof out, &err), 3);
    cr_assert_str_eq(out, "1234567");
    cr_assert_eq(proc_capture(sleeper, 50, out, sizeof out, &err), -ERR_TIMEOUT);
}

Test(proc, input_is_given)
{
    struct err err;
    char *const argv[] = { (char *)(uintptr_t) "grep", (char *)(uintptr_t) "-q",
                           (char *)(uintptr_t) "needle", NULL };
    struct spawn_opts o = { .argv = argv, .uid = PROC_KEEP_USER, .input = "hay\nneedle\n" };
    cr_assert_eq(proc_run(&o, &err), 0);
    o.input = NULL;
    cr_assert_eq(proc_run(&o, &err), 1);
}

static int asked;

static bool soon(void)
{
    return ++asked > 2;
}

/* The worker waits for its jobs, and somebody loses patience meanwhile. */
Test(services, a_hurry_that_comes_late_ends_the_waiting, .timeout = 60)
{
    static struct config config = { .worker_drain_ms = 600000 };
    static struct services s;
    struct err err;
    struct spawn_opts o = { .argv = sleeper, .uid = PROC_KEEP_USER, .death_signal = SIGKILL };
    (void)snprintf(config.run_dir, sizeof config.run_dir, "/nonexistent");
    services_init(&s, &config);
    (void)signal(SIGTERM, SIG_IGN); /* inherited */
    cr_assert_eq(proc_spawn(&o, &s.all[SVC_WORKER].pid, &err), 0, "%s", err.text);
    struct proc_record r = { .pid = s.all[SVC_WORKER].pid };
    r.start = proc_start_time(r.pid);
    services_stop(&s, soon);
    cr_expect_not(proc_alive(&r));
    cr_expect_eq(s.all[SVC_WORKER].pid, 0);
}

Test(services, backoff_doubles_up_to_its_maximum)
{
    int64_t ms = 0, want[] = { 200, 400, 800, 1600, 3200, 6400, 10000, 10000 };
    for (int i = 0; i < 8; i++) {
        ms = backoff_next(ms);
        cr_assert_eq(ms, want[i]);
    }
}

/* On a host that lacks something by now: what runs, runs. */
Test(up, that_it_runs_already_is_looked_at_before_the_host)
{
    char dir[] = "/tmp/test_up_XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/up.lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
    setenv("PATH", "/nonexistent", 1); /* no redis-server, no qemu */
    char *argv[] = { (char *)(uintptr_t) "up", (char *)(uintptr_t) "--detach",
                     (char *)(uintptr_t) "--home", dir, NULL };
    struct cli cli = { .home = NULL };
    cr_expect_eq(cmd_up(&cli, 4, argv), CLI_OK);
    cr_assert_eq(unlink(path), 0);
    cr_expect_eq(rmdir(dir), 0, "nothing else was made");
}
