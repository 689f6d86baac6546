/* The program around a worker: reads the configuration, starts the worker, waits for signals.
 *
 * SIGTERM or SIGINT: no new claims, what runs may end within worker.drain_ms, the rest is given
 * back, results are committed or spooled, exit 0. A second one ends at once; claims then expire and
 * the jobs run elsewhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/secret_key.h"
#include "worker/worker_main.h"

#define DRAIN_POLL_MS 50
#define COMMIT_WAIT_MS 10000

/* The next signal of set within timeout_ms; 0 when none came. */
static int wait_signal(const sigset_t *set, long timeout_ms)
{
    struct timespec ts = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000 };
    int sig = sigtimedwait(set, NULL, &ts);
    return sig > 0 ? sig : 0;
}

static int serve(const struct config *config, job_script script)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread: all inherit it */
    (void)signal(SIGPIPE, SIG_IGN);

    struct worker *w;
    struct err err = { 0 };
    if (worker_start(config, script, &w, &err) < 0) {
        log_error("worker cannot start", "error", err.text);
        return 1;
    }
    while (wait_signal(&set, 3600000) == 0) {
    }
    log_info("draining");
    worker_drain(w);
    int64_t until_ms = mono_ms() + config->worker_drain_ms;
    while (mono_ms() < until_ms && !worker_drained(w)) {
        if (wait_signal(&set, DRAIN_POLL_MS) != 0) {
            log_warn("second signal: ended at once; claims will expire");
            _exit(1);
        }
    }
    int left = worker_stop(w, COMMIT_WAIT_MS);
    if (left > 0) {
        log_fmt(LOG_ERROR, "%d results could not be committed; their claims will expire", left);
        return 1;
    }
    log_info("worker ended");
    return 0;
}

int worker_main(int argc, char **argv, job_script script)
{
    static const struct program program = {
        .name = "worker",
        .doc = "Claims jobs from the ready stream, runs each in a sandbox of vmpool, judges and "
               "commits.",
    };
    static struct config config;
    bool check;
    int rc = program_begin(&program, argc, argv, &config, &check);
    if (rc != 0) {
        return rc;
    }
    if (check) {
        config_print(&config, stdout);
        return 0;
    }
    secret_no_core_file();
    if (script) {
        log_warn("scripted outcomes: nothing is run; this is a program of the tests");
    }
    return serve(&config, script);
}
