/* brood down: ask the supervisor to stop; where there is none, end what it left. Doing it twice is
 * fine. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/leftovers.h"
#include "cli/proc.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define DOWN_MS_MAX                                                                                \
    100000 /* the sum of what services_stop may take, but for the worker's drain                   \
            */
#define DOWN_SAY_MS 3000

static const struct argp argp = {
    .parser = cli_parse_key,
    .doc = "Stop what brood up started, in order. Running jobs get a short time to end; what does "
           "not is run again after the next up.\v"
           "Examples:\n"
           "  brood down\n"
           "  brood down --home ./here\n",
    .children = cli_globals,
};

static int stop_supervisor(const struct config *c, pid_t pid)
{
    static struct proc_record rows[PROC_RECORDS_MAX];
    struct proc_record supervisor = { .pid = pid, .start = proc_start_time(pid) };
    int n = proc_records(c->run_dir, rows, PROC_RECORDS_MAX);
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].name, SUPERVISOR_NAME) == 0) {
            supervisor = rows[i];
        }
    }
    if (!proc_alive(&supervisor)) {
        return cli_fail_text(
            CLI_OTHER, "%s/up.lock is held, but not by a supervisor that can be found (pid %d)",
            c->home, (int)pid);
    }
    (void)kill(supervisor.pid, SIGTERM);
    (void)fprintf(stderr, "stopping brood for %s (pid %d)\n", c->home, (int)supervisor.pid);
    int64_t begin = mono_ms(), said = begin;
    while (proc_alive(&supervisor) && mono_ms() - begin < DOWN_MS_MAX + c->worker_drain_ms) {
        sleep_ms(20);
        if (mono_ms() - said >= DOWN_SAY_MS) {
            said = mono_ms();
            int left = proc_records(c->run_dir, rows, PROC_RECORDS_MAX);
            (void)fprintf(stderr, "  waiting for");
            for (int i = 0; i < left; i++) {
                (void)fprintf(stderr, " %s", rows[i].name);
            }
            (void)fputc('\n', stderr);
        }
    }
    if (!proc_end(&supervisor, SIGKILL, 1000)) {
        return cli_fail_text(CLI_OTHER, "the supervisor (pid %d) does not end",
                             (int)supervisor.pid);
    }
    return CLI_OK;
}

int cmd_down(struct cli *cli, int argc, char **argv)
{
    struct cli_opts o = { .cli = cli };
    struct err err;
    int rc = cli_parse(cli, &argp, argc, argv, &o);
    if (rc != 0) {
        return rc;
    }
    const struct config *c = &cli->config;
    if (access(c->home, F_OK) != 0) {
        (void)rmdir(c->run_dir); /* no lock to hold without a home: only when it is empty */
        (void)fprintf(stderr, "nothing is running: %s does not exist\n", c->home);
        return CLI_OK;
    }
    cleanup_close int lock_fd = -1;
    pid_t pid = 0;
    if ((rc = home_lock(c, &lock_fd, &pid, &err)) < 0) {
        return cli_fail(cli, &err);
    }
    bool was_up = rc == 0;
    if (was_up) {
        int code = stop_supervisor(c, pid);
        if (code != CLI_OK) {
            return code;
        }
        for (int64_t begin = mono_ms();
             (rc = home_lock(c, &lock_fd, &pid, &err)) == 0 && mono_ms() - begin < 5000;) {
            sleep_ms(20);
        }
        if (rc != 1) {
            return rc < 0
                       ? cli_fail(cli, &err)
                       : cli_fail_text(CLI_OTHER, "another brood up took over (pid %d)", (int)pid);
        }
    }
    int ended = leftovers_clean(c);
    if (was_up) {
        (void)fprintf(stderr, "brood is down; everything it keeps is in %s\n", c->home);
    } else if (ended) {
        (void)fprintf(stderr, "brood was not up; %d process%s of a killed supervisor ended\n",
                      ended, ended == 1 ? "" : "es");
    } else {
        (void)fprintf(stderr, "nothing is running for %s\n", c->home);
    }
    return CLI_OK;
}
