/* One job's conversation with the guest of its sandbox: identity, files, setup, main run.
 *
 * Theory: everything the guest needs is written in one go, so that it wakes up once; then frames
 * are read against a state table (session_table.def) and deadlines. Every wait is a poll whose
 * time-out is the nearest deadline, also for the CPU limit: CPU time cannot advance faster than
 * wall time x vCPUs, so the meter is read again only when the limit could have been reached.
 * Whatever the guest does, memory is bounded by the captures and every loop by a deadline. A limit
 * that is broken is answered with Kill, and the guest has kill_grace_ms to report; then it is given
 * up, the verdict stands. Everything else that is wrong is an error of this attempt. */
#pragma once
#include "common/model/job.h"
#include "common/model/result.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"
#include "worker/absence.h"
#include "worker/capture.h"
#include "worker/judge.h"
#include "worker/live.h"
#include "worker/outq.h"
#include "worker/session_table.h"

#define STDIN_FIRST_BYTES 65536u /* sent right behind Run, before any Pull */

struct session_times {
    int64_t ready_ms;        /* from the first write to Ready */
    int64_t start_ms;        /* from Ready, or from the end of the setup, to Started */
    int64_t kill_grace_ms;   /* from Kill to Exit */
    int64_t output_grace_ms; /* CPU time from passing the output limit to Kill (wall time without a
                                meter) */
};
extern const struct session_times session_times_default;

struct session_job {
    int channel_fd; /* stream socket */
    int cpu_fd;     /* schedstat of the vCPU thread; -1: the guest's own figure is used */
    int abort_fd;   /* readable: end at once with -ERR_STALE; -1: never */
    int vcpus;      /* >= 1 */
    int memory_mib; /* of the machine, which bounds what the guest may claim; 0: not known */
    const struct job_spec *spec;       /* files, env, command, stdin */
    const struct job_file *more_files; /* n_more_files before the spec's own: an archive's */
    int n_more_files;
    const struct job_command *const *steps; /* n_steps of set-up, before the command */
    int n_steps;
    int n_first; /* of these, how many come before the files: on_fork */
    bool keep;   /* what set-up leaves running lives on */
    bool last;   /* nothing runs in the machine after the command; not with cell */
    bool settle; /* there is no command: the machine is to be frozen after set-up */
    bool cell;   /* a shared machine: in the container that session_cell has had made */
    bool resume; /* the machine is one that an earlier session has left: it has its identity */
    int64_t lease_start_us; /* mono: from where the first byte's latency counts */
    struct live *live;      /* or NULL */
    const struct session_times *times;
};

/* Moments of a session on the monotonic clock, microseconds; 0 = did not happen. Of the last run
 * where there are two. */
struct session_trace {
    int64_t sent_us, ready_us, started_us, first_byte_us, exit_us;
};

/* Memory of a slot, reused from job to job. */
struct session {
    struct frame_parser parser;
    struct outq out;
    struct capture capture[2]; /* stdout, stderr */
    guest_Run *run_scratch;

    /* the job in hand */
    const struct session_job *job;
    const struct job_command *command;
    enum session_state state;
    enum run_stop stop;
    bool settling;   /* Settle was sent */
    bool celling;    /* Cell was sent, and not answered */
    bool out_closed; /* the guest no longer reads; what it still says counts */
    bool user_fault;
    bool warm;
    struct disk_full disk_full;
    int failed_step;          /* index into steps; -1: none */
    uint32_t run;             /* number of the run in this VM */
    struct bytes stdin_left;  /* not queued yet; points into the spec */
    uint64_t stdin_credit;    /* bytes the guest may be sent */
    uint64_t run_mark;        /* position in out where Run ends */
    int64_t identity_ns;      /* UTC, when Identity was made */
    int64_t begin_us, run_us; /* first write; Run fully written (0: not yet) */
    int64_t wait_us;          /* since when Started is waited for */
    int64_t cpu_base_ns, cpu_us, cpu_check_us;
    int64_t wait_base_ns, waited_ns, kill_wait_ns; /* the CPU meter's other figure: when Run went
                                                      out, the latest, when Kill was queued */
    struct absence absence;                        /* since the run began */
    int64_t over_us, kill_us;                      /* output limit passed; Kill queued (0: not) */
    int64_t over_cpu_ns;        /* CPU meter when the limit was passed (0: not read yet) */
    struct run_result reported; /* from Exit */
    char refused[RUN_REFUSED_MAX];
    char trouble[RUN_REFUSED_MAX]; /* what a shared machine found of the job before */
    struct session_trace trace;
};

void session_init(struct session *s);
void session_done(struct session *s);
/* Run job in the sandbox. Fills r->setup with the last step that ran (and r->setup_failed),
 * ret_before with those before it (run_result_join), r->run (outputs are malloc'ed, r's),
 * r->first_byte_us and both facts; 0 when there is something to judge. -ERR_PROTOCOL, -ERR_CLOSED,
 * -ERR_TIMEOUT, -ERR_SYS: the attempt failed, by our or the guest's fault; -ERR_STALE: aborted. */
MUST_CHECK int session_run(struct session *s, const struct session_job *job, struct job_result *r,
                           struct run_result *ret_before, struct run_facts *ret_setup,
                           struct run_facts *ret_run, struct err *err);
/* After a session_run whose command has exited: have the machine ready to be frozen. Errors as
 * session_run's. job is the same. */
MUST_CHECK int session_settle(struct session *s, const struct session_job *job, struct err *err);
/* Have the container of the machine's next job made. First in a machine (job->resume false): gives
 * it its identity. Waits for an answer to session_cell_ask when that was called, else asks. 0: a
 * job may run with job->cell and job->resume; s->trouble not empty: the machine is to be thrown
 * away. Errors as of session_run. */
MUST_CHECK int session_cell(struct session *s, const struct session_job *job, bool spare,
                            struct err *err);
/* After a job: tell the machine to make the next one's container, and do not wait. */
MUST_CHECK int session_cell_ask(struct session *s, const struct session_job *job, bool spare,
                                struct err *err);
/* What `more` did after `run`, as one: times and counts summed, peaks the highest, output one
 * behind the other while that is short, the rest of `more`. Both are used up, the sum is in *run.
 */
void run_result_join(struct run_result *run, struct run_result *more);
