#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/humaneval.h"
#include "common/model/job.h"

static const struct humaneval_opts plain = { .template_name = "python" };

static json_t *task(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "task_id", "HumanEval/0", "prompt",
                     "def f(x):\n    \"\"\"doc\"\"\"\n", "entry_point", "f", "canonical_solution",
                     "    return x\n", "test", "def check(c):\n    assert c(1) == 1\n");
}

static const char *file_text(const json_t *job, size_t i)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(job, "files"), i), "text"));
}

Test(humaneval, canonical_solution_is_a_valid_job)
{
    struct err err;
    json_t *t = task(), *job;
    cr_assert_eq(humaneval_job(t, NULL, -1, "deadbeef", &plain, &job, &err), 0, "%s", err.text);
    cr_assert_str_eq(file_text(job, 0), "def f(x):\n    \"\"\"doc\"\"\"\n    return x\n");
    cr_assert_str_eq(json_string_value(json_object_get(job, "stdin")),
                     "deadbeef\ndef check(c):\n    assert c(1) == 1\n\n");
    const json_t *command = json_object_get(job, "command");
    cr_assert_str_eq(json_string_value(json_array_get(command, 2)), "candidate.py");
    cr_assert_str_eq(json_string_value(json_array_get(command, 3)), "f");
    cr_assert_str_eq(json_string_value(json_object_get(job, "name")), "HumanEval/0");
    cr_assert_null(json_object_get(json_object_get(job, "labels"), "expected_verdict"));
    char *text = json_dumps(job, 0);
    struct job_spec *spec;
    cr_assert_eq(job_parse(text, strlen(text), &spec, &err), 0, "%s", err.text);
    cr_assert(spec->expect.has_stdout);
    cr_assert_eq(spec->n_files, 1);
    job_spec_free(spec);
    free(text);
    json_decref(job);
    json_decref(t);
}

Test(humaneval, completion_sample_and_expectation)
{
    struct err err;
    struct humaneval_opts o = plain;
    o.expect = "wrong_answer|runtime_error";
    json_t *t = task(), *job;
    cr_assert_eq(humaneval_job(t, "    return 2\n", 3, "t", &o, &job, &err), 0);
    cr_assert(strstr(file_text(job, 0), "    return 2\n"));
    cr_assert_null(strstr(file_text(job, 0), "return x"));
    cr_assert_str_eq(json_string_value(json_object_get(job, "name")), "HumanEval/0#3");
    cr_assert_str_eq(
        json_string_value(json_object_get(json_object_get(job, "labels"), "expected_verdict")),
        o.expect);
    json_decref(job);
    json_decref(t);
}

Test(humaneval, replaced_body_needs_no_solution)
{
    struct err err;
    struct humaneval_opts o = plain;
    o.replace_body = "return None";
    json_t *t = task(), *job;
    cr_assert_eq(json_object_del(t, "canonical_solution"), 0);
    cr_assert_eq(humaneval_job(t, NULL, -1, "t", &o, &job, &err), 0);
    cr_assert(strstr(file_text(job, 0), "\"\"\"doc\"\"\"\n    return None\n"));
    json_decref(job);
    json_decref(t);
}

Test(humaneval, refusals_name_the_field)
{
    struct err err;
    static const char *const fields[] = { "task_id", "prompt", "entry_point", "canonical_solution",
                                          "test" };
    json_t *job;
    for (int i = 0; i < 5; i++) {
        json_t *t = task();
        cr_assert_eq(json_object_del(t, fields[i]), 0);
        cr_assert_eq(humaneval_job(t, NULL, -1, "t", &plain, &job, &err), -ERR_INVALID);
        cr_assert_eq(strncmp(err.text, fields[i], strlen(fields[i])), 0, "%s", err.text);
        cr_assert_eq(json_object_set_new(t, fields[i], json_integer(1)), 0);
        cr_assert_eq(humaneval_job(t, NULL, -1, "t", &plain, &job, &err), -ERR_INVALID);
        json_decref(t);
    }
    json_t *t = task();
    cr_assert_eq(json_object_set_new(t, "entry_point", json_string("f); import os; (0")), 0);
    cr_assert_eq(humaneval_job(t, NULL, -1, "t", &plain, &job, &err), -ERR_INVALID);
    json_decref(t);
    json_t *list = json_array();
    cr_assert_eq(humaneval_job(list, NULL, -1, "t", &plain, &job, &err), -ERR_INVALID);
    json_decref(list);
}
