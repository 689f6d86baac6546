/* brood-scheduler: reads the command line, loads the configuration, runs the loop until SIGTERM or
 * SIGINT. */
#include <signal.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/program.h"
#include "scheduler/keeper.h"
#include "scheduler/scheduler.h"
#include "scheduler/sweeper.h"

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
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
    static const struct program program = {
        .name = "scheduler",
        .doc = "brood's scheduler: intake, dispatch, leases and retries.\vSIGTERM ends it after "
               "the turn it is in. --check asks Postgres and Redis, too.",
    };
    static struct config config;
    static struct scheduler s;
    struct err err;
    bool only_check;
    int bad = program_begin(&program, argc, argv, &config, &only_check);
    if (bad != 0) {
        return bad;
    }
    scheduler_init(&s, &config);
    if (only_check) {
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
