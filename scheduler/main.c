/* brood-scheduler: reads the command line, loads the configuration, runs the loop until SIGTERM or
 * SIGINT. */
#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "scheduler/keeper.h"
#include "scheduler/scheduler.h"
#include "scheduler/sweeper.h"

struct options {
    const char *home, *config;
    bool check;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

static const struct argp_option option_rows[] = {
    { "home", 'H', "DIR", 0, "home folder (default: $BROOD_HOME, else /var/lib/brood or ~/.brood)",
      0 },
    { "config", 'c', "FILE", 0, "INI file read after HOME/brood.ini", 0 },
    { "check", 'n', NULL, 0,
      "check configuration, Postgres and Redis, print what is in force, and exit", 0 },
    { 0 }
};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'H':
        o->home = arg;
        return 0;
    case 'c':
        o->config = arg;
        return 0;
    case 'n':
        o->check = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int check(struct scheduler *s, struct err *err)
{
    config_print(s->config, stdout);
    int rc = scheduler_connect(s, err);
    if (rc == 0) {
        (void)printf("\n# Postgres and Redis answer; the schema is there\n");
    }
    return rc;
}

int main(int argc, char **argv)
{
    static const struct argp argp = { option_rows,
                                      on_option,
                                      NULL,
                                      "brood's scheduler: intake, dispatch, leases and "
                                      "retries.\vSIGTERM ends it after the turn it is in.",
                                      NULL,
                                      NULL,
                                      NULL };
    struct options o = { .home = NULL };
    (void)argp_parse(&argp, argc, argv, 0, NULL, &o);
    static struct config config;
    static struct scheduler s;
    struct err err;
    if (config_load(&config, o.home, o.config, &err) < 0) {
        (void)fprintf(stderr, "brood-scheduler: %s\n", err.text);
        return 2;
    }
    int level = log_level_parse(config.log_level);
    if (level < 0) {
        (void)fprintf(stderr,
                      "brood-scheduler: log.level: \"%s\" is none of debug, info, warn, error\n",
                      config.log_level);
        return 2;
    }
    log_init("scheduler", (enum log_level)level, STDERR_FILENO);
    scheduler_init(&s, &config);
    if (o.check) {
        int rc = check(&s, &err);
        if (rc < 0) {
            (void)fprintf(stderr, "brood-scheduler: %s\n", err.text);
        }
        scheduler_done(&s);
        return rc < 0 ? 1 : 0;
    }
    struct sigaction on = { .sa_handler = on_signal };
    (void)sigaction(SIGTERM, &on, NULL);
    (void)sigaction(SIGINT, &on, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    struct keeper *keeper = NULL;
    if (keeper_start(&config, &keeper, &err) < 0) {
        log_error("no keeper", "error", err.text);
        scheduler_done(&s);
        return 1;
    }
    struct sweeper *sweeper = NULL;
    if (sweeper_start(&config, &sweeper, &err) < 0) {
        log_error("no sweeper", "error", err.text); /* disk space only */
    }
    scheduler_run(&s, &stop);
    sweeper_stop(sweeper);
    keeper_stop(keeper);
    scheduler_done(&s);
    return 0;
}
