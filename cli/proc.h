/* Processes: start them so that they die with us, remember them so that a successor finds them.
 *
 * A record is run_dir/pids/NAME with "pid start-time": the start time (field 22 of /proc/PID/stat,
 * clock ticks since boot) makes sure that a recycled pid is never killed. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"

#define PROC_NAME_MAX 32
#define PROC_RECORDS_MAX 64
#define PROC_GIDS_MAX 2
#define PROC_KEEP_USER ((uid_t)-1)

struct spawn_opts {
    char *const *argv;    /* argv[0] is the path or a name looked up in PATH */
    const char *log_path; /* stdout and stderr are appended there; NULL: inherited */
    const char *cwd;      /* NULL: stay */
    char *const *env;     /* NULL: ours */
    const char *input;    /* text for stdin (at most PIPE_BUF bytes); NULL: /dev/null */
    uid_t
        uid; /* PROC_KEEP_USER or who to become, for good (no_new_privs), with gid and extra_gids */
    gid_t gid;
    gid_t extra_gids[PROC_GIDS_MAX]; /* further groups; 0: none */
    const char *fd_env; /* the child's environment names pass_fd by this; NULL: none is passed */
    int pass_fd;        /* open in the child, under the same number */
    int death_signal;   /* sent when the caller dies; 0: none */
    bool own_group;     /* a process group of its own: the terminal's Ctrl-C does not reach it */
    bool out_to_err;    /* stdout goes to our stderr (progress) when log_path is NULL */
};

/* Fork and exec; returns once exec has succeeded. All signals are unblocked in the child, fds are
 * closed by CLOEXEC. */
MUST_CHECK int proc_spawn(const struct spawn_opts *o, pid_t *ret_pid, struct err *err);
/* Spawn and wait. Returns the exit status, 128 + signal; or an error when it cannot start. */
MUST_CHECK int proc_run(const struct spawn_opts *o, struct err *err);
/* Run argv, keep up to room - 1 bytes of its stdout (NUL-terminated), stderr dropped, killed after
 * timeout_ms. As proc_run. */
MUST_CHECK int proc_capture(char *const *argv, int64_t timeout_ms, char *out, size_t room,
                            struct err *err);

/* This process becomes that user, without a way back: no other groups, no capability, nothing to
 * gain by an exec. extra_gids: 0 = none. 0, or -1 with errno. For a child of its own. */
MUST_CHECK int proc_become(uid_t uid, gid_t gid, const gid_t extra_gids[PROC_GIDS_MAX]);

/* 0 when there is no such process, or it is a zombie. */
uint64_t proc_start_time(pid_t pid);
/* The last lines of a file, at most max_lines, each prefixed with "  | ", to stderr. */
void proc_print_tail(const char *path, int max_lines);
/* path -> path.1 when it is larger than max_bytes. */
void proc_rotate(const char *path, int64_t max_bytes);

struct proc_record {
    char name[PROC_NAME_MAX];
    pid_t pid;
    uint64_t start;
};
MUST_CHECK int proc_record(const char *run_dir, const char *name, pid_t pid, struct err *err);
void proc_forget(const char *run_dir, const char *name);
/* Records whose process lives; returns the count. */
int proc_records(const char *run_dir, struct proc_record *ret_rows, int max);
bool proc_alive(const struct proc_record *r);
/* Send signal, wait up to timeout_ms for the end, then SIGKILL and wait shortly. false: it lives
 * on. */
bool proc_end(const struct proc_record *r, int signal, int64_t timeout_ms);
/* The same; SIGKILL also as soon as hurry() is true (NULL: never), which is asked all the time. */
bool proc_end_or_hurry(const struct proc_record *r, int signal, int64_t timeout_ms,
                       bool (*hurry)(void));
