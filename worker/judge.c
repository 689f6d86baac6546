#include "worker/judge.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "worker/compare.h"

struct finding {
    enum verdict verdict; /* VERDICT_NONE: nothing to object to */
    const char *limit_name;
    int64_t value, used;
    char reason[RESULT_REASON_MAX];
};

__attribute__((format(printf, 3, 4))) static void find(struct finding *f, enum verdict v,
                                                       const char *fmt, ...)
{
    f->verdict = v;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(f->reason, sizeof f->reason, fmt, ap);
    va_end(ap);
}

static void find_limit(struct finding *f, const char *name, int64_t value, int64_t used)
{
    f->limit_name = name;
    f->value = value;
    f->used = used;
}

static int64_t ms_up(int64_t us)
{
    return (us + 999) / 1000;
}

static int64_t mib_up(int64_t bytes)
{
    return bytes / (1 << 20) + (bytes % (1 << 20) != 0);
}

static bool over_output(const struct run_result *run, const struct job_limits *limits,
                        struct finding *f)
{
    bool out = run->out.truncated;
    if (!out && !run->err_out.truncated) {
        return false;
    }
    int64_t total = (int64_t)(out ? run->out.total_bytes : run->err_out.total_bytes);
    find_limit(f, "output_bytes", limits->output_bytes, total);
    find(f, VERDICT_OUTPUT_LIMIT, "wrote %" PRId64 " bytes to %s; the limit is %" PRId64 " bytes",
         total, out ? "stdout" : "stderr", limits->output_bytes);
    return true;
}

/* Limits whose breach shows only together with a bad end. */
static bool over_memory_or_processes(const struct run_result *run, const struct job_limits *limits,
                                     struct finding *f)
{
    if (run->oom_kills > 0) {
        find_limit(f, "memory_mib", limits->memory_mib, mib_up(run->memory_peak_bytes));
        find(f, VERDICT_MEMORY_LIMIT,
             "ran out of memory: peak %" PRId64 " MiB; the limit is %" PRId64 " MiB", f->used,
             limits->memory_mib);
        return true;
    }
    if (run->process_refusals > 0) {
        find_limit(f, "processes", limits->processes, limits->processes);
        find(f, VERDICT_PROCESS_LIMIT,
             "%" PRId64 " new processes or threads were refused; the limit is %" PRId64 " at once",
             run->process_refusals, limits->processes);
        return true;
    }
    return false;
}

static bool over_time(const struct run_result *run, const struct run_facts *facts,
                      const struct job_limits *limits, struct finding *f)
{
    /* what a run used after it was ended for its wall time is not held against it */
    if (facts->stop == STOP_CPU ||
        (facts->stop != STOP_WALL && run->cpu_us > limits->cpu_ms * 1000)) {
        find_limit(f, "cpu_ms", limits->cpu_ms, ms_up(run->cpu_us));
        find(f, VERDICT_TIME_LIMIT, "used %" PRId64 " ms of CPU; the limit is %" PRId64 " ms",
             f->used, limits->cpu_ms);
        return true;
    }
    int64_t wall_ms = limits->wall_ms, own_us = run->wall_us - run->host_wait_us;
    if (own_us > wall_ms * 1000 || facts->stop == STOP_WALL) {
        find_limit(f, "wall_ms", wall_ms, ms_up(own_us));
        find(f, VERDICT_WALL_TIME_LIMIT, "ran for %" PRId64 " ms; the limit is %" PRId64 " ms",
             f->used, wall_ms);
        return true;
    }
    return false;
}

/* The layer may have room again: then what was used at the worst is the limit. */
static bool over_disk(const struct run_result *run, const struct run_facts *facts,
                      const struct job_limits *limits, struct finding *f)
{
    if (facts->disk_full.bytes) {
        int64_t used = mib_up(run->disk_used_bytes);
        used = used < limits->disk_mib ? limits->disk_mib : used;
        find_limit(f, "disk_mib", limits->disk_mib, used);
        find(f, VERDICT_DISK_LIMIT,
             "the disk ran full: %" PRId64 " MiB used; the limit is %" PRId64 " MiB", f->used,
             limits->disk_mib);
        return true;
    }
    if (facts->disk_full.files) {
        find_limit(f, "disk_files", limits->disk_files, limits->disk_files);
        find(f, VERDICT_DISK_LIMIT, "no more files: the limit is %" PRId64, limits->disk_files);
        return true;
    }
    return false;
}

/* No verdict of its own: a program that was refused a descriptor and ends badly has a run-time
 * error, and is told which limit it met. */
static void name_open_files(const struct run_result *run, const struct job_limits *limits,
                            struct finding *f)
{
    if (run->open_file_refusals == 0 || run->exec_error[0]) {
        return;
    }
    find_limit(f, "open_files", limits->open_files, limits->open_files);
    size_t n = strlen(f->reason);
    (void)snprintf(f->reason + n, sizeof f->reason - n,
                   "; the limit of %" PRId64 " open files was met", limits->open_files);
}

static void bad_end(const struct run_result *run, int want_exit, struct finding *f)
{
    if (run->exec_error[0]) {
        find(f, VERDICT_RUNTIME_ERROR, "could not start the command: %s", run->exec_error);
    } else if (run->signal != 0) {
        const char *name = sigabbrev_np(run->signal);
        find(f, VERDICT_RUNTIME_ERROR, "ended by signal %d (%s%s)", run->signal, name ? "SIG" : "",
             name ? name : "real-time");
    } else {
        find(f, VERDICT_RUNTIME_ERROR, "exited with code %d; expected %d", run->exit_code,
             want_exit);
    }
}

/* Everything but the comparison, for a setup or a main run. */
static void judge_command(const struct run_result *run, const struct run_facts *facts,
                          const struct job_limits *limits, int want_exit, struct finding *f)
{
    *f = (struct finding){ .verdict = VERDICT_NONE };
    bool bad = run->signal != 0 || run->exit_code != want_exit || run->exec_error[0];
    if (over_output(run, limits, f)) {
        return;
    }
    if ((bad || facts->stop != STOP_NONE) && over_memory_or_processes(run, limits, f)) {
        return;
    }
    if (over_time(run, facts, limits, f)) {
        return;
    }
    if (bad && over_disk(run, facts, limits, f)) {
        return;
    }
    if (bad) {
        bad_end(run, want_exit, f);
        name_open_files(run, limits, f);
    }
}

bool judge_step_ok(const struct job_limits *limits, const struct run_result *step,
                   const struct run_facts *facts)
{
    struct finding f;
    judge_command(step, facts, limits, 0, &f);
    return f.verdict == VERDICT_NONE;
}

static void put(struct job_result *r, enum verdict v, const char *prefix, const struct finding *f)
{
    r->verdict = v;
    (void)snprintf(r->reason, sizeof r->reason, "%s%s", prefix, f->reason);
    (void)snprintf(r->limit_name, sizeof r->limit_name, "%s", f->limit_name ? f->limit_name : "");
    r->limit_value = f->value;
    r->limit_used = f->used;
}

void judge(const struct job_spec *spec, const struct run_facts *setup, const struct run_facts *run,
           struct job_result *r)
{
    struct finding f = { .verdict = VERDICT_NONE };
    r->compare = spec->expect.compare;
    r->compared = false;
    if (run->refused[0]) {
        find_limit(&f, "disk_mib", spec->command.limits.disk_mib, spec->command.limits.disk_mib);
        find(&f, VERDICT_DISK_LIMIT, "the job's files cannot be taken: %s", run->refused);
        put(r, f.verdict, "", &f);
        return;
    }
    if (r->setup.present) {
        judge_command(&r->setup, setup, &spec->setup.limits, 0, &f);
        if (f.verdict != VERDICT_NONE) {
            put(r, VERDICT_COMPILE_ERROR, "setup: ", &f);
            return;
        }
    }
    if (!r->run.present) {
        return;
    }
    judge_command(&r->run, run, &spec->command.limits, spec->expect.exit_code, &f);
    /* with a checker, the expected text is its answer file: nothing is compared here */
    if (f.verdict == VERDICT_NONE && spec->expect.has_stdout && !spec->expect.checker) {
        char why[COMPARE_WHY_MAX];
        struct compare_text want = { spec->expect.text.data, spec->expect.text.len };
        struct compare_text got = { r->run.out.head.data, r->run.out.head.len };
        r->compared = true;
        if (!compare_output(spec->expect.compare, want, got, spec->expect.tolerance_abs,
                            spec->expect.tolerance_rel, why)) {
            find(&f, VERDICT_WRONG_ANSWER, "%s", why);
        }
    }
    put(r, f.verdict == VERDICT_NONE ? VERDICT_ACCEPTED : f.verdict, "", &f);
}
