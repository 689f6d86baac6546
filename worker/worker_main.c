/* The program around a worker: reads the configuration, starts the worker, waits for signals.
 *
 * SIGTERM or SIGINT: no new claims, what runs may end within worker.drain_ms, the rest is given
 * back, results are committed or spooled, exit 0. A second one ends at once; claims then expire and
 * the jobs run elsewhere. */
#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/secret_key.h"
#include "worker/worker_main.h"

#define DRAIN_POLL_MS 50
#define COMMIT_WAIT_MS 10000

struct options {
    const char *home, *file;
    bool check;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'H':
        o->home = arg;
        return 0;
    case 'c':
        o->file = arg;
        return 0;
    case 'n':
        o->check = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument %s", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_rows[] = {
    { "home", 'H', "DIR", 0, "home folder of brood (default: $BROOD_HOME, /var/lib/brood as root)",
      0 },
    { "config", 'c', "FILE", 0, "configuration file", 0 },
    { "check", 'n', NULL, 0, "check the configuration, print it and exit", 0 },
    { 0 },
};
static const struct argp arguments = {
    .options = option_rows,
    .parser = parse_option,
    .doc =
        "Claims jobs from the ready stream, runs each in a sandbox of vmpool, judges and commits.",
};

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
    argp_program_version = "brood-worker " BROOD_VERSION;
    struct options o = { 0 };
    (void)argp_parse(&arguments, argc, argv, 0, NULL, &o);
    static struct config config;
    struct err err = { 0 };
    if (config_load(&config, o.home, o.file, &err) < 0) {
        (void)fprintf(stderr, "brood-worker: %s\n", err.text);
        return 2;
    }
    int level = log_level_parse(config.log_level);
    if (level < 0) {
        (void)fprintf(stderr, "brood-worker: log.level = %s: must be debug, info, warn or error\n",
                      config.log_level);
        return 2;
    }
    if (o.check) {
        config_print(&config, stdout);
        return 0;
    }
    log_init("worker", (enum log_level)level, STDERR_FILENO);
    secret_no_core_file();
    if (script) {
        log_warn("scripted outcomes: nothing is run; this is a program of the tests");
    }
    return serve(&config, script);
}
