#include <criterion/criterion.h>
#include <string.h>

#include "worker/judge.h"

#define LIMITS                                                                                     \
    {                                                                                              \
        .cpu_ms = 2000, .wall_ms = 9000, .memory_mib = 128, .processes = 64, .disk_mib = 64,       \
        .disk_files = 5000, .output_bytes = 1024, .open_files = 256                                \
    }

static char *stdout_text = "42\n";

struct outcome {
    const char *name;
    struct run_result run;
    struct run_facts facts;
    enum verdict want;
    const char *limit;
    int64_t value, used;
    const char *reason; /* NULL: not looked at */
};

/* a row overrides the defaults of RUN */
#pragma GCC diagnostic ignored "-Woverride-init"
#define RUN(...) .run = { .present = true, .cpu_us = 1000, .wall_us = 2000, __VA_ARGS__ }
#define EXITED(...) .facts = { .exited = true, __VA_ARGS__ }

static const struct outcome outcomes[] = {
    { "accepted", RUN(.exit_code = 0), EXITED(), VERDICT_ACCEPTED, "", 0, 0, "" },
    { "nonzero", RUN(.exit_code = 3), EXITED(), VERDICT_RUNTIME_ERROR, "", 0, 0,
      "exited with code 3; expected 0" },
    { "signal", RUN(.exit_code = -1, .signal = 11), EXITED(), VERDICT_RUNTIME_ERROR, "", 0, 0,
      "ended by signal 11 (SIGSEGV)" },
    { "real-time signal", RUN(.exit_code = -1, .signal = 40), EXITED(), VERDICT_RUNTIME_ERROR, "",
      0, 0, "ended by signal 40 (real-time)" },
    { "exec", RUN(.exit_code = 127, .exec_error = "gcc: not found"), EXITED(),
      VERDICT_RUNTIME_ERROR, "", 0, 0, "could not start the command: gcc: not found" },
    { "cpu", RUN(.exit_code = -1, .signal = 9, .cpu_us = 2003200), EXITED(.stop = STOP_CPU),
      VERDICT_TIME_LIMIT, "cpu_ms", 2000, 2004, "used 2004 ms of CPU; the limit is 2000 ms" },
    { "cpu, ended by itself", RUN(.exit_code = 0, .cpu_us = 2000001), EXITED(), VERDICT_TIME_LIMIT,
      "cpu_ms", 2000, 2001, NULL },
    { "cpu, just in time", RUN(.exit_code = 0, .cpu_us = 2000000), EXITED(), VERDICT_ACCEPTED, "",
      0, 0, NULL },
    { "wall", RUN(.exit_code = -1, .signal = 9, .wall_us = 9000500), EXITED(.stop = STOP_WALL),
      VERDICT_WALL_TIME_LIMIT, "wall_ms", 9000, 9001, "ran for 9001 ms; the limit is 9000 ms" },
    { "wall, but for the host's part in it",
      RUN(.exit_code = 0, .wall_us = 9900000, .host_wait_us = 1000000), EXITED(), VERDICT_ACCEPTED,
      "", 0, 0, NULL },
    { "wall, the host's part does not excuse it",
      RUN(.exit_code = 0, .wall_us = 12000000, .host_wait_us = 1000000), EXITED(),
      VERDICT_WALL_TIME_LIMIT, "wall_ms", 9000, 11000, NULL },
    { "wall, no answer to the kill", RUN(.exit_code = -1, .wall_us = 9000001),
      .facts = { .stop = STOP_WALL }, VERDICT_WALL_TIME_LIMIT, "wall_ms", 9000, 9001, NULL },
    { "ended for wall, whatever cpu was used since",
      RUN(.exit_code = -1, .cpu_us = 2100000, .wall_us = 9000500), EXITED(.stop = STOP_WALL),
      VERDICT_WALL_TIME_LIMIT, "wall_ms", 9000, 9001, NULL },
    { "memory", RUN(.exit_code = -1, .signal = 9, .oom_kills = 1, .memory_peak_bytes = 128 << 20),
      EXITED(), VERDICT_MEMORY_LIMIT, "memory_mib", 128, 128,
      "ran out of memory: peak 128 MiB; the limit is 128 MiB" },
    { "memory, a child was killed, the program coped", RUN(.exit_code = 0, .oom_kills = 1),
      EXITED(), VERDICT_ACCEPTED, "", 0, 0, NULL },
    { "memory before cpu", RUN(.exit_code = -1, .signal = 9, .oom_kills = 2, .cpu_us = 3000000),
      EXITED(.stop = STOP_CPU), VERDICT_MEMORY_LIMIT, "memory_mib", 128, 0, NULL },
    { "processes", RUN(.exit_code = 1, .process_refusals = 5), EXITED(), VERDICT_PROCESS_LIMIT,
      "processes", 64, 64, NULL },
    { "processes, fork bomb that was ended",
      RUN(.exit_code = -1, .signal = 9, .process_refusals = 500, .cpu_us = 2100000),
      EXITED(.stop = STOP_CPU), VERDICT_PROCESS_LIMIT, "processes", 64, 64, NULL },
    { "processes, the program coped", RUN(.exit_code = 0, .process_refusals = 5), EXITED(),
      VERDICT_ACCEPTED, "", 0, 0, NULL },
    { "output", RUN(.exit_code = 0, .out = { .total_bytes = 3000, .truncated = true }), EXITED(),
      VERDICT_OUTPUT_LIMIT, "output_bytes", 1024, 3000,
      "wrote 3000 bytes to stdout; the limit is 1024 bytes" },
    { "stderr", RUN(.exit_code = 1, .err_out = { .total_bytes = 1025, .truncated = true }),
      EXITED(), VERDICT_OUTPUT_LIMIT, "output_bytes", 1024, 1025,
      "wrote 1025 bytes to stderr; the limit is 1024 bytes" },
    { "output before all",
      RUN(.exit_code = -1, .signal = 9, .oom_kills = 1, .cpu_us = 9000000, .wall_us = 99000000,
          .out = { .total_bytes = 9999999, .truncated = true }),
      EXITED(.stop = STOP_OUTPUT), VERDICT_OUTPUT_LIMIT, "output_bytes", 1024, 9999999, NULL },
    { "disk", RUN(.exit_code = 1, .disk_used_bytes = 64 << 20), EXITED(.disk_full.bytes = true),
      VERDICT_DISK_LIMIT, "disk_mib", 64, 64, NULL },
    { "disk, and room again at the end", RUN(.exit_code = 1, .disk_used_bytes = 1 << 20),
      EXITED(.disk_full.bytes = true), VERDICT_DISK_LIMIT, "disk_mib", 64, 64, NULL },
    { "files", RUN(.exit_code = 1), EXITED(.disk_full.files = true), VERDICT_DISK_LIMIT,
      "disk_files", 5000, 5000, "no more files: the limit is 5000" },
    { "open files", RUN(.exit_code = 1, .open_file_refusals = 3), EXITED(), VERDICT_RUNTIME_ERROR,
      "open_files", 256, 256,
      "exited with code 1; expected 0; the limit of 256 open files was met" },
    { "open files, the program coped", RUN(.exit_code = 0, .open_file_refusals = 3), EXITED(),
      VERDICT_ACCEPTED, "", 0, 0, NULL },
    { "disk full, the program coped", RUN(.exit_code = 0), EXITED(.disk_full.bytes = true),
      VERDICT_ACCEPTED, "", 0, 0, NULL },
    { "files do not fit", RUN(.exit_code = -1), .facts = { .refused = "file: no space" },
      VERDICT_DISK_LIMIT, "disk_mib", 64, 64, "the job's files cannot be taken: file: no space" },
};

static struct job_spec make_spec(void)
{
    static char *argv[] = { "x", NULL };
    struct job_spec spec = { .command = { .argv = argv, .argc = 1, .limits = LIMITS } };
    return spec;
}

Test(judge, with_a_checker_nothing_is_compared)
{
    struct job_checker checker = { .protocol = CHECKER_KATTIS };
    struct job_spec spec = make_spec();
    spec.expect = (struct job_expect){ .has_stdout = true,
                                       .text = { stdout_text, strlen(stdout_text) },
                                       .checker = &checker };
    struct job_result r = { RUN(.exit_code = 0) };
    struct run_facts none = { 0 }, exited = { .exited = true };
    judge(&spec, &none, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_ACCEPTED, "%s", r.reason);
    cr_assert(!r.compared);
    r.run.exit_code = 1;
    judge(&spec, &none, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_RUNTIME_ERROR);
}

Test(judge, every_outcome_of_a_run)
{
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        const struct outcome *o = &outcomes[i];
        struct job_spec spec = make_spec();
        struct job_result r = { .run = o->run };
        struct run_facts none = { 0 };
        judge(&spec, &none, &o->facts, &r);
        cr_assert_eq(r.verdict, o->want, "%s: %s (%s)", o->name, verdict_word(r.verdict), r.reason);
        cr_assert_str_eq(r.limit_name, o->limit, "%s", o->name);
        cr_assert_eq(r.limit_value, o->value, "%s: value %ld", o->name, (long)r.limit_value);
        cr_assert_eq(r.limit_used, o->used, "%s: used %ld", o->name, (long)r.limit_used);
        if (o->reason) {
            cr_assert_str_eq(r.reason, o->reason, "%s", o->name);
        }
        cr_assert_eq(r.reason[0] == 0, r.verdict == VERDICT_ACCEPTED, "%s", o->name);
    }
}

/* The same ends of a setup: all that were bad are compile_error and keep the limit's name; the main
 * run did not happen. */
Test(judge, every_outcome_of_a_setup)
{
    for (size_t i = 0; i + 1 < sizeof outcomes / sizeof outcomes[0];
         i++) { /* the last is no end of a setup */
        const struct outcome *o = &outcomes[i];
        struct job_spec spec = make_spec();
        spec.setup = spec.command;
        struct run_facts none = { 0 };
        struct job_result r = { .setup = o->run };
        bool ok = judge_step_ok(&spec.setup.limits, &o->run, &o->facts);
        cr_assert_eq(ok, o->want == VERDICT_ACCEPTED, "%s", o->name);
        if (!ok) {
            judge(&spec, &o->facts, &none, &r);
            cr_assert_eq(r.verdict, VERDICT_COMPILE_ERROR, "%s", o->name);
            cr_assert_str_eq(r.limit_name, o->limit, "%s", o->name);
            cr_assert(strncmp(r.reason, "setup: ", 7) == 0, "%s", o->name);
        }
    }
}

Test(judge, expected_exit_code)
{
    struct job_spec spec = make_spec();
    spec.expect.exit_code = 3;
    struct run_facts exited = { .exited = true };
    struct job_result r = { .run = { .present = true, .exit_code = 3 } };
    judge(&spec, &exited, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_ACCEPTED);
    r = (struct job_result){ .run = { .present = true, .exit_code = 0 } };
    judge(&spec, &exited, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_RUNTIME_ERROR);
    cr_assert_str_eq(r.reason, "exited with code 0; expected 3");
}

Test(judge, compares_only_a_good_end)
{
    struct job_spec spec = make_spec();
    spec.expect.has_stdout = true;
    spec.expect.compare = COMPARE_TRIM;
    spec.expect.text = (struct bytes){ stdout_text, 3 };
    struct run_facts exited = { .exited = true };
    struct job_result r = { .run = { .present = true,
                                     .out = { .head = { "42", 2 }, .total_bytes = 2 } } };
    judge(&spec, &exited, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_ACCEPTED);
    cr_assert(r.compared);
    cr_assert_eq(r.compare, COMPARE_TRIM);

    r = (struct job_result){ .run = { .present = true,
                                      .out = { .head = { "41", 2 }, .total_bytes = 2 } } };
    judge(&spec, &exited, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_WRONG_ANSWER);
    cr_assert(r.compared);
    cr_assert_null(strstr(r.reason, "42"), "the expected output is not told");

    r = (struct job_result){
        .run = { .present = true, .exit_code = 1, .out = { .head = { "42", 2 }, .total_bytes = 2 } }
    };
    judge(&spec, &exited, &exited, &r);
    cr_assert_eq(r.verdict, VERDICT_RUNTIME_ERROR);
    cr_assert(!r.compared);
}
