/* What happened to a job: the worker fills it, the store keeps it, the CLI and API print it. Pure.
 */
#pragma once
#include "common/model/job.h"

/* One output stream: the first and the last bytes, and how many there were. head_len + tail_len <=
 * the limit; when nothing was cut, all of it is in head and tail is empty. */
struct stream_result {
    struct bytes head, tail;
    uint64_t total_bytes;
    bool truncated;
    int64_t cut_bytes; /* kept by the run, but not stored: branch_result.h, "Output" */
};

/* One command's run (setup or main). */
struct run_result {
    bool present;
    int exit_code;        /* -1: ended by signal or never started */
    int signal;           /* 0: none */
    int64_t cpu_us;       /* host's clock of the vCPU threads */
    int64_t wall_us;      /* host's clock */
    int64_t host_wait_us; /* of these, its processor waited for one of the host's */
    int64_t guest_cpu_us; /* guest cgroup's own account */
    int64_t memory_peak_bytes;
    int64_t oom_kills, process_refusals, leftover_processes, disk_used_bytes, disk_files_used;
    int64_t disk_refusals, open_file_refusals; /* times the kernel said ENOSPC, EMFILE */
    bool warm;                                 /* the warm interpreter took it */
    char exec_error[160];
    struct stream_result out, err_out;
};

#define RESULT_REASON_MAX 256

/* The job's nodes in sum (score.h). nodes 0: a plain job. */
struct result_tree {
    int nodes, leaves, accepted, failed, skipped, cancelled;
    int score_micro;
    int first_failed; /* node that explains the verdict; -1: none */
};

/* What is listed and stored of the artifacts of this node, or, for the job, of all its nodes. */
struct result_artifacts {
    int64_t listed, stored, stored_bytes;
    bool truncated; /* there may be more than are listed: a maximum, or the collecting broke off */
};

/* The submitter's checker, when it was asked. */
#define CHECKER_MESSAGE_MAX 512
struct result_checker {
    bool present;
    int64_t exit_code, signal; /* exit_code -1: none */
    int64_t cpu_us, wall_us;
    char message[CHECKER_MESSAGE_MAX]; /* beginning of its stderr, else stdout; printable ASCII */
};

struct job_result {
    enum verdict verdict;
    char reason[RESULT_REASON_MAX]; /* one plain sentence; "" for accepted */
    char limit_name[16]; /* of a limit verdict (also compile_error by a limit): "cpu_ms", ...; "" =
                            none */
    int64_t limit_value, limit_used;
    struct run_result setup, run; /* of several setup steps: times summed, peaks the highest, output
                                     one behind the other, the rest of the last that ran */
    int setup_steps, setup_failed; /* how many there are, when more than one; index of the one that
                                      failed, -1: none */
    struct result_tree tree;
    struct result_artifacts artifacts;
    char **warnings; /* n_warnings sentences, heap */
    int n_warnings;
    struct job_limits limits; /* in force for the main run */
    struct result_checker checker;
    enum compare_mode compare;
    bool compared;
    char engine[32], snapshot[72], worker[64];
    int vcpus, memory_mib;
    int64_t leased_wall_ms,
        ended_wall_ms;   /* UTC ms: the sandbox's billed interval (resume to end) */
    int64_t measured_ms; /* monotonic length of that interval, milliseconds, rounded up */
    int64_t lease_us,
        first_byte_us; /* latencies: lease call; lease start to first output byte (-1: none) */
};

void job_result_init(struct job_result *r);
void job_result_done(struct job_result *r);
/* Add a warning (something that is no failure: a pattern that matched nothing). Each at most
 * RESULT_REASON_MAX - 1 bytes, the same one only once, JOB_WARNINGS_MAX of them; then only counted
 * in the last one's place. */
void job_result_warn(struct job_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Whether the customer pays for the job's own sandbox: by its verdict (verdict.def); one that was
 * cancelled while it ran, to that moment. */
bool job_result_billed(const struct job_result *r);
/* The "detail" JSON (everything but the output bytes), compact; free(). Parse is the inverse
 * (unknown keys ignored). */
char *job_result_detail(const struct job_result *r);
MUST_CHECK int job_result_parse_detail(const char *json, size_t len, struct job_result *ret_r,
                                       struct err *err);

struct json_t;
/* Put bytes into a JSON object: obj[key] = text when it is valid UTF-8 without NUL, else
 * obj[key_base64]. */
int json_put_bytes(struct json_t *obj, const char *key, const char *data, size_t len);
/* The same under key itself, always base64. */
void json_put_base64(struct json_t *obj, const char *key, const char *data, size_t len);
