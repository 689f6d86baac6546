/* HumanEval, when it is there: all canonical solutions are accepted, and with every body replaced
 * by `return None` exactly those pass that also pass when the same programs are run on the host. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

#define SUITE E2E_SOURCE_DIR "/../shared/data/humaneval.jsonl.gz"
#define HARNESS E2E_SOURCE_DIR "/templates/python/harness.py"
#define PROBLEMS 164
#define NATIVE_MS 20000

/* The batch file that `brood import humaneval ARGS...` writes. */
static json_t *import(const char *option, const char *value)
{
    if (access(SUITE, R_OK) != 0) {
        cr_skip_test("there is no ../shared/data/humaneval.jsonl.gz");
    }
    cleanup_e2e_run struct e2e_run r;
    if (option) {
        E2E_BROOD(&r, E2E_SHORT_MS, "import", "humaneval", SUITE, option, value);
    } else {
        E2E_BROOD(&r, E2E_SHORT_MS, "import", "humaneval", SUITE);
    }
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
    json_t *jobs = json_array();
    char *rest = r.out.data;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (*line) {
            json_t *job = json_loads(line, 0, NULL);
            cr_assert_not_null(job);
            (void)json_array_append_new(jobs, job);
        }
    }
    cr_assert_eq(json_array_size(jobs), PROBLEMS);
    return jobs;
}

Test(humaneval, all_canonical_solutions_are_accepted)
{
    json_t *jobs = import(NULL, NULL), *results = e2e_run_batch(jobs), *result;
    size_t i;
    int accepted = 0;
    json_array_foreach(results, i, result)
    {
        bool yes = strcmp(e2e_verdict(result), "accepted") == 0;
        cr_expect(yes, "%s: %s (%s)", json_string_value(e2e_at(result, "name")),
                  e2e_verdict(result), json_string_value(e2e_at(result, "reason")));
        accepted += yes;
    }
    cr_expect_eq(accepted, PROBLEMS);
    json_decref(results);
    json_decref(jobs);
}

static void write_file(const char *dir, const char *path, const char *text)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", dir, path);
    cleanup_fclose FILE *f = fopen(full, "we");
    cr_assert_not_null(f);
    (void)fputs(text, f);
}

/* The job's own files and command, run by the host's python3: is its output the expected one? */
static bool passes_natively(const json_t *job)
{
    char dir[] = "/tmp/brood-e2e-native-XXXXXX";
    cr_assert_not_null(mkdtemp(dir));
    size_t i;
    json_t *file;
    json_array_foreach(json_object_get(job, "files"), i, file)
    {
        write_file(dir, json_string_value(json_object_get(file, "path")),
                   json_string_value(json_object_get(file, "text")));
    }
    const char *argv[16] = { "sh", "-c", "cd \"$0\" && exec \"$@\"", dir };
    const json_t *command = json_object_get(job, "command");
    cr_assert(json_is_array(command) && json_array_size(command) < 10);
    for (i = 0; i < json_array_size(command); i++) {
        const char *word = json_string_value(json_array_get(command, i));
        argv[4 + i] = strcmp(word, "python3") == 0                  ? "/usr/bin/python3"
                      : strcmp(word, "/usr/lib/brood/harness") == 0 ? HARNESS
                                                                    : word;
    }
    cleanup_e2e_run struct e2e_run r, gone;
    e2e_run(&r, argv, json_string_value(json_object_get(job, "stdin")), NATIVE_MS);
    const char *want = json_string_value(e2e_at(job, "expect.stdout"));
    cr_assert_not_null(want);
    size_t n = strcspn(want, "\n"), got = strcspn(r.out.data, "\n");
    bool passes = r.exit_code == 0 && n == got && strncmp(want, r.out.data, n) == 0;
    e2e_run(&gone, (const char *const[]){ "rm", "-r", dir, NULL }, NULL, E2E_SHORT_MS);
    return passes;
}

Test(humaneval, with_return_none_only_the_trivially_right_ones_pass)
{
    json_t *jobs = import("--replace-body", "return None"), *results = e2e_run_batch(jobs);
    size_t i;
    json_t *job;
    int passing = 0;
    json_array_foreach(jobs, i, job)
    {
        const json_t *result = json_array_get(results, i);
        bool here = strcmp(e2e_verdict(result), "accepted") == 0, there = passes_natively(job);
        cr_expect_eq(here, there, "%s: %s, but the host says %s",
                     json_string_value(e2e_at(result, "name")), e2e_verdict(result),
                     there ? "pass" : "fail");
        passing += there;
    }
    cr_expect_lt(passing, PROBLEMS / 10, "%d of the programs without a body pass", passing);
    json_decref(results);
    json_decref(jobs);
}
