/* Branches and tests: the same object under two names. A test is a leaf that is fed and compared; a
 * branch can also set up, keep its state and branch again. */
#include "common/model/job_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char *const test_fields[] = { "name",      "files",  "env",    "command",
                                           "args",      "stdin",  "expect", "limits",
                                           "artifacts", "weight", NULL };
static const char *const branch_fields[] = { "name",   "files", "env",      "setup",  "command",
                                             "args",   "stdin", "expect",   "limits", "artifacts",
                                             "weight", "keep",  "branches", "tests",  NULL };

static int read_name(const json_t *v, const char *at, char **ret_name, struct err *err)
{
    char sub[JR_PATH_MAX];
    if (!v) {
        return 0;
    }
    job_field(sub, at, "name");
    int rc = jr_string(v, sub, 1, JOB_NAME_MAX, JR_PRINTABLE, ret_name, err);
    if (rc == 0 && strchr(*ret_name, '/')) {
        return err_set(err, ERR_INVALID, "%s: must not hold a '/': it divides the names of a path",
                       sub);
    }
    return rc;
}

static int read_run(const json_t *v, const char *at, struct job_branch *b, struct err *err)
{
    const json_t *command = json_object_get(v, "command"), *args = json_object_get(v, "args");
    const json_t *input = json_object_get(v, "stdin");
    char sub[JR_PATH_MAX], args_at[JR_PATH_MAX];
    job_field(args_at, at, "args");
    int rc = 0;
    if (command) {
        job_field(sub, at, "command");
        rc = job_read_command(command, sub, args, args_at, &b->command, err);
    } else if (args) {
        rc = job_read_args(args, args_at, &b->args, err);
    }
    if (rc < 0) {
        return rc;
    }
    job_field(sub, at, "stdin");
    b->has_stdin = input != NULL;
    if (input && (rc = jr_bytes(input, sub, JOB_STDIN_BYTES_MAX, &b->stdin_data, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "expect");
    if ((rc = job_read_expect(json_object_get(v, "expect"), sub, &b->expect, &b->has_expect, err)) <
        0) {
        return rc;
    }
    job_field(sub, at, "limits");
    return job_read_limits(json_object_get(v, "limits"), sub, false, &b->command, err);
}

static int read_branch(const json_t *v, const char *at, int depth, bool test,
                       struct branch_totals *totals, struct job_branch *b, struct err *err)
{
    char sub[JR_PATH_MAX];
    b->is_test = test;
    b->weight = -1;
    int rc = jr_object(v, at, test ? test_fields : branch_fields, err);
    if (rc < 0 || (rc = read_name(json_object_get(v, "name"), at, &b->name, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "files");
    rc = job_read_files(json_object_get(v, "files"), sub, &b->files, &b->n_files,
                        &totals->file_bytes, err);
    if (rc < 0) {
        return rc;
    }
    job_field(sub, at, "env");
    if ((rc = job_read_env(json_object_get(v, "env"), sub, &b->env, &b->n_env, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "setup");
    rc = job_read_steps(json_object_get(v, "setup"), sub, &b->steps, &b->n_steps, err);
    if (rc < 0 || (rc = read_run(v, at, b, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "artifacts");
    const json_t *artifacts = json_object_get(v, "artifacts"),
                 *weight = json_object_get(v, "weight");
    b->has_artifacts = artifacts != NULL;
    if ((rc = job_read_artifacts(artifacts, sub, &b->artifacts, &b->n_artifacts, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "weight");
    if (weight && (rc = jr_int(weight, sub, 0, JOB_WEIGHT_MAX, &b->weight, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "keep");
    if ((rc = job_read_keep(json_object_get(v, "keep"), sub, &b->keep, err)) < 0) {
        return rc;
    }
    return job_read_branches(v, at, depth, totals, &b->branches, &b->n_branches, err);
}

/* A branch without a name is called by its number. */
static const char *shown_name(const struct job_branch *b, int i, char number[16])
{
    if (b->name) {
        return b->name;
    }
    (void)snprintf(number, 16, "%d", i);
    return number;
}

struct named {
    const char *name;
    int i;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->i - y->i;
}

static int check_names(const struct job_branch *b, int n, const char *at, struct err *err)
{
    cleanup_free struct named *sorted = job_new_array((size_t)n, sizeof *sorted);
    cleanup_free char *numbers = job_new_array((size_t)n, 16);
    for (int i = 0; i < n; i++) {
        sorted[i] = (struct named){ shown_name(&b[i], i, numbers + 16 * (size_t)i), i };
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int i = 1; i < n; i++) {
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0) {
            char shown[JR_PATH_MAX];
            jr_printable(shown, sorted[i].name);
            return err_set(err, ERR_INVALID,
                           "%s[%d].name: \"%s\" is also the name of %s[%d] (without a name, the "
                           "number is the name)",
                           at, sorted[i].i, shown, at, sorted[i - 1].i);
        }
    }
    return 0;
}

static int check_counts(size_t n, const char *at, int depth, struct branch_totals *totals,
                        struct err *err)
{
    if (n == 0) {
        return err_set(err, ERR_INVALID, "%s: must hold at least one", at);
    }
    if (n > JOB_TREE_CHILDREN_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu; at most %d side by side", at, n,
                       JOB_TREE_CHILDREN_MAX);
    }
    if (depth + 1 > JOB_TREE_DEPTH_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: deeper than %d levels of branches", at,
                       JOB_TREE_DEPTH_MAX);
    }
    totals->nodes += (int)n;
    if (totals->nodes > JOB_TREE_NODES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: more than %d branches and tests in all", at,
                       JOB_TREE_NODES_MAX - 1);
    }
    return 0;
}

/* Recursion is as deep as JOB_TREE_DEPTH_MAX. */
int job_read_branches(const json_t *obj, const char *at, int depth, struct branch_totals *totals,
                      struct job_branch **ret_branches, int *ret_n, struct err *err)
{
    const json_t *branches = json_object_get(obj, "branches"),
                 *tests = json_object_get(obj, "tests");
    char list_at[JR_PATH_MAX];
    job_field(list_at, at, tests ? "tests" : "branches");
    if (!branches && !tests) {
        return 0;
    }
    if (branches && tests) {
        return err_set(err, ERR_INVALID, "%s: either branches or tests, not both", list_at);
    }
    const json_t *list = tests ? tests : branches;
    if (!json_is_array(list)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of objects", list_at);
    }
    size_t n = json_array_size(list);
    int rc = check_counts(n, list_at, depth, totals, err);
    if (rc < 0) {
        return rc;
    }
    *ret_branches = job_new_array(n, sizeof **ret_branches);
    *ret_n = (int)n;
    for (int i = 0; i < *ret_n; i++) {
        char sub[JR_PATH_MAX];
        (void)snprintf(sub, sizeof sub, "%s[%d]", list_at, i);
        rc = read_branch(json_array_get(list, (size_t)i), sub, depth + 1, tests != NULL, totals,
                         &(*ret_branches)[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return check_names(*ret_branches, *ret_n, list_at, err);
}
