/* HumanEval's layout to jobs: one JSON object a line with task_id, prompt, entry_point,
 * canonical_solution, test.
 *
 * The candidate program is candidate.py: prompt + completion. The tests go to the stdin of the
 * template's harness, which runs them in a process that the candidate's code cannot reach, and
 * prints a random token, the expected stdout, only when all of them have passed (docs/verdicts.md,
 * "Python tests"). Pure but for the random token, which the caller gives. */
#pragma once
#include <jansson.h>
#include "common/base/err.h"

#define HUMANEVAL_LINE_MAX (4u << 20)
#define HUMANEVAL_TOKEN_MAX 80

struct humaneval_opts {
    const char *template_name; /* "python" */
    const char *replace_body;  /* statement that replaces every body, or NULL */
    const char *expect;        /* word for the label expected_verdict, or NULL */
};

/* task: a parsed line. completion: NULL = canonical_solution. sample: number of the completion for
 * the task, from 0; -1 = the only one (no suffix to the name). token: [A-Za-z0-9-]. Returns a new
 * reference. -ERR_INVALID names the field. */
MUST_CHECK int humaneval_job(const json_t *task, const char *completion, int sample,
                             const char *token, const struct humaneval_opts *o, json_t **ret_job,
                             struct err *err);
