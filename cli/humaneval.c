#include "cli/humaneval.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/buf.h"

/* The template's harness runs the tests in a process that the candidate's code never is
 * (docs/verdicts.md, "Python tests"); it prints the token when all of them have passed. */
#define HARNESS "/usr/lib/brood/harness"

static int field(const json_t *task, const char *name, const char **ret_text, struct err *err)
{
    const json_t *v = json_object_get(task, name);
    if (!v) {
        return err_set(err, ERR_INVALID,
                       "%s: missing (HumanEval lines have task_id, prompt, entry_point, "
                       "canonical_solution, test)",
                       name);
    }
    if (!json_is_string(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a string", name);
    }
    *ret_text = json_string_value(v);
    return 0;
}

static bool identifier(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_') {
        return false;
    }
    for (; *s; s++) {
        if (!isalnum((unsigned char)*s) && *s != '_') {
            return false;
        }
    }
    return true;
}

static json_t *file(const char *path, const char *text)
{
    return json_pack("{s:s, s:s}", "path", path, "text", text);
}

int humaneval_job(const json_t *task, const char *completion, int sample, const char *token,
                  const struct humaneval_opts *o, json_t **ret_job, struct err *err)
{
    assert(strlen(token) < HUMANEVAL_TOKEN_MAX);
    const char *id, *prompt, *entry, *solution = completion, *test;
    if (!json_is_object(task)) {
        return err_set(err, ERR_INVALID, "must be a JSON object");
    }
    int rc;
    if ((rc = field(task, "task_id", &id, err)) < 0 ||
        (rc = field(task, "prompt", &prompt, err)) < 0 ||
        (rc = field(task, "entry_point", &entry, err)) < 0 ||
        (rc = field(task, "test", &test, err)) < 0 ||
        (!completion && !o->replace_body &&
         (rc = field(task, "canonical_solution", &solution, err)) < 0)) {
        return rc;
    }
    if (!identifier(entry)) {
        return err_set(err, ERR_INVALID, "entry_point: must be a Python name");
    }
    cleanup_buf struct buf program = { 0 };
    buf_init(&program, 3 * HUMANEVAL_LINE_MAX);
    rc = o->replace_body ? buf_addf(&program, err, "%s    %s\n", prompt, o->replace_body)
                         : buf_addf(&program, err, "%s%s", prompt, solution);
    cleanup_buf struct buf tests = { 0 };
    buf_init(&tests, 3 * HUMANEVAL_LINE_MAX);
    if (rc < 0 || (rc = buf_addf(&tests, err, "%s\n%s\n", token, test)) < 0) {
        return rc;
    }
    char name[160];
    if (sample >= 0) {
        (void)snprintf(name, sizeof name, "%.100s#%d", id, sample);
    } else {
        (void)snprintf(name, sizeof name, "%.120s", id);
    }
    json_t *labels = json_pack("{s:s}", "task_id", id);
    if (o->expect) {
        (void)json_object_set_new(labels, "expected_verdict", json_string(o->expect));
    }
    *ret_job =
        json_pack("{s:s, s:s, s:[o], s:[s, s, s, s], s:s, s:{s:s, s:s}, s:o}", "template",
                  o->template_name, "name", name, "files", file("candidate.py", program.data),
                  "command", "python3", HARNESS, "candidate.py", entry, "stdin", tests.data,
                  "expect", "stdout", token, "compare", "trim", "labels", labels);
    return *ret_job ? 0 : err_set(err, ERR_INVALID, "text is not UTF-8");
}
