/* The children of `brood up`: one table of what is started, in order, and how each is stopped.
 *
 * Every child is told by the kernel to end when the supervisor dies (PR_SET_PDEATHSIG), is recorded
 * in run_dir/pids, logs to HOME/log, and is started again with a back-off when it dies. One thread.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "cli/pgserver.h"
#include "cli/proc.h"
#include "common/base/config.h"

#define SERVICE_ARGS_MAX 32
#define LOG_BYTES_MAX (16 << 20)
#define BACKOFF_MS_MIN 200
#define BACKOFF_MS_MAX 10000
#define BACKOFF_RESET_MS                                                                           \
    30000 /* a child that lived for so long starts with the shortest back-off again */

enum service_id { SVC_POSTGRES, SVC_REDIS, SVC_VMPOOL, SVC_SCHEDULER, SVC_WORKER, SVC_COUNT };

struct user {
    uid_t uid; /* PROC_KEEP_USER: stays */
    gid_t gid;
    gid_t extra_gids[PROC_GIDS_MAX]; /* 0: none */
};

/* users.h says who */
struct users {
    struct user
        of[SVC_COUNT]; /* Postgres: uid kept (pgserver.h finds it), gid the group it joins */
    bool own;          /* at least one changes */
    char staying[64];  /* names of those that stay root though they should not */
    char why_not[240]; /* for people: why the last of these does */
};

struct service {
    enum service_id id;
    bool wanted; /* false: external, or not started yet */
    pid_t pid;   /* 0: not running */
    int64_t started_ms, restart_at_ms, backoff_ms;
    int last_status; /* of waitpid */
    unsigned restarts;
};

struct services {
    const struct config *config;
    struct pgserver postgres;
    struct users users;
    struct service all[SVC_COUNT];
};

void services_init(struct services *s, const struct config *c);
const char *service_name(enum service_id id);
void service_log_path(const struct config *c, const char *name, char *out, size_t room);
MUST_CHECK int service_start(struct services *s, enum service_id id, struct err *err);
/* Reap what has ended, start again what is due. Tells each on stderr. Returns the milliseconds
 * until the next restart, -1: none. */
int64_t services_tend(struct services *s, int64_t now_ms);
/* Has it ended since it was started? (reaps) */
bool service_dead(struct services *s, enum service_id id);
/* In the reverse order of start; each gets its own way and time to end, then SIGKILL. hurry is
 * asked all the time: once it is true, jobs are not waited for. */
void services_stop(struct services *s, bool (*hurry)(void));
/* "status 1" or "signal 9 (Killed)" */
void status_text(int wait_status, char *out, size_t room);
/* Delay before restart number n of a row, from 1. Pure. */
int64_t backoff_next(int64_t previous_ms);
