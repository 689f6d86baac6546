/* From JSON to struct job_spec, the only way in: every field has one reader here, every refusal
 * names its field.
 *
 * The order is: bounded parse, unknown fields, then field by field in the order of docs/jobs.md;
 * the first broken rule is the one reported. What is kept for storing and hashing is the input
 * itself in canonical form, not the spec: a job stored by an older version is read again by the
 * same function. */
#include "common/model/job_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/tree.h"

static const char *const job_fields[] = { "template",
                                          "name",
                                          "files",
                                          "archive",
                                          "setup",
                                          "command",
                                          "args",
                                          "stdin",
                                          "env",
                                          "expect",
                                          "limits",
                                          "labels",
                                          "idempotency_key",
                                          "stream",
                                          "tests",
                                          "branches",
                                          "parallel",
                                          "stop",
                                          "isolation",
                                          "keep",
                                          "artifacts",
                                          "on_fork",
                                          "secrets",
                                          "priority",
                                          "not_before",
                                          "deadline",
                                          "retries",
                                          NULL };

static int read_template(const json_t *root, struct job_spec *spec, struct err *err)
{
    const json_t *v = json_object_get(root, "template");
    if (!v) {
        return err_set(err, ERR_INVALID,
                       "template: missing; the name of a template, e.g. \"python\"");
    }
    int rc = jr_string(v, "template", 1, JOB_TEMPLATE_MAX, JR_PRINTABLE, &spec->template_name, err);
    if (rc < 0) {
        return rc;
    }
    const char *name = spec->template_name, *at = strchr(name, '@');
    bool ends_ok = name[0] != '.' && name[0] != '-' && name[0] != ':' && name[0] != '@' &&
                   (!at || (at != name && at[1]));
    if (!ends_ok || !job_word_chars(name, ".-@:") || (at && strchr(at + 1, '@')) ||
        strchr(name, '/')) {
        return err_set(err, ERR_INVALID,
                       "template: must be a name (letters, digits, _ . -) or name@digest");
    }
    const char *snapshot = job_snapshot_name(spec);
    if (snapshot && !snapshot_name_ok(snapshot)) {
        return err_set(err, ERR_INVALID,
                       "template: behind snapshot: a snapshot's name (letters, digits, _ . -, at "
                       "most %d bytes) is needed",
                       JOB_SNAPSHOT_NAME_MAX);
    }
    return 0;
}

static int read_labels(const json_t *v, struct job_spec *spec, struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "labels: must be an object of strings");
    }
    size_t n = json_object_size(v);
    if (n > JOB_LABELS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "labels: %zu labels; at most %d", n, JOB_LABELS_MAX);
    }
    spec->labels = job_new_array(n, sizeof *spec->labels);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char shown[JR_PATH_MAX], sub[JR_PATH_MAX];
        jr_printable(shown, key);
        job_field(sub, "labels", shown);
        if (!*key || strlen(key) > JOB_LABEL_KEY_MAX || !job_word_chars(key, "./-")) {
            return err_set(err, ERR_INVALID,
                           "%s: a label's key is 1 to %d of letters, digits, _ . / -", sub,
                           JOB_LABEL_KEY_MAX);
        }
        struct job_pair *p = &spec->labels[spec->n_labels++];
        p->key = jr_dup(key, strlen(key));
        int rc = jr_string(value, sub, 0, JOB_LABEL_VALUE_MAX, JR_PRINTABLE, &p->value, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_texts(const json_t *root, struct job_spec *spec, struct err *err)
{
    const json_t *name = json_object_get(root, "name"),
                 *key = json_object_get(root, "idempotency_key");
    const json_t *input = json_object_get(root, "stdin"), *stream = json_object_get(root, "stream");
    int rc = 0;
    if (name &&
        (rc = jr_string(name, "name", 0, JOB_NAME_MAX, JR_PRINTABLE, &spec->name, err)) < 0) {
        return rc;
    }
    if (key && (rc = jr_string(key, "idempotency_key", 1, JOB_KEY_MAX, JR_PRINTABLE,
                               &spec->idempotency_key, err)) < 0) {
        return rc;
    }
    if (input && (rc = jr_bytes(input, "stdin", JOB_STDIN_BYTES_MAX, &spec->stdin_data, err)) < 0) {
        return rc;
    }
    return stream ? jr_bool(stream, "stream", &spec->stream, err) : 0;
}

/* The index of v among n words; -1: none of them. */
static int word_index(const json_t *v, const char *const *words, int n)
{
    for (int i = 0; json_is_string(v) && i < n; i++) {
        if (json_string_length(v) == strlen(words[i]) &&
            strcmp(json_string_value(v), words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* How the branches are run. */
static int read_tree_rules(const json_t *root, struct job_spec *spec, struct err *err)
{
    const char *stops[] = { job_stop_word(JOB_STOP_ALL), job_stop_word(JOB_STOP_FIRST_FAILURE) };
    const char *isolations[] = { job_isolation_word(ISOLATION_VM),
                                 job_isolation_word(ISOLATION_SHARED) };
    const json_t *parallel = json_object_get(root, "parallel"),
                 *stop = json_object_get(root, "stop");
    const json_t *isolation = json_object_get(root, "isolation"),
                 *on_fork = json_object_get(root, "on_fork");
    int64_t n = JOB_PARALLEL_MAX;
    int rc = parallel ? jr_int(parallel, "parallel", 1, JOB_PARALLEL_MAX, &n, err) : 0;
    if (rc < 0) {
        return rc;
    }
    spec->parallel = (int)n;
    int s = stop ? word_index(stop, stops, 2) : JOB_STOP_ALL;
    if (s < 0) {
        return err_set(err, ERR_INVALID, "stop: must be all or first_failure");
    }
    spec->stop = (enum job_stop)s;
    int i = isolation ? word_index(isolation, isolations, 2) : ISOLATION_VM;
    if (i < 0) {
        return err_set(err, ERR_INVALID, "isolation: must be vm or shared");
    }
    spec->isolation = (enum job_isolation)i;
    return on_fork ? job_read_step(on_fork, "on_fork", &spec->on_fork, err) : 0;
}

/* One after the other in one machine: there is no state to go back to. */
static int check_shared(const struct job_spec *spec, struct err *err)
{
    if (spec->isolation != ISOLATION_SHARED) {
        return 0;
    }
    if (spec->keep.name || spec->on_fork.argc > 0) {
        return err_set(err, ERR_INVALID,
                       "isolation: shared: there are no forks, so neither keep nor on_fork");
    }
    if (spec->n_branches == 0 && job_snapshot_name(spec)) {
        return err_set(err, ERR_INVALID,
                       "isolation: shared: a container does not show what a kept state has in its "
                       "folders; a job that starts from a snapshot needs isolation vm");
    }
    for (int i = 0; i < spec->n_branches; i++) {
        const struct job_branch *b = &spec->branches[i];
        if (b->n_branches > 0 || b->keep.name) {
            return err_set(
                err, ERR_INVALID,
                "branches[%d]: a branch that is kept or branches again needs isolation vm", i);
        }
    }
    return 0;
}

static int read_command(const json_t *root, struct job_spec *spec, struct err *err)
{
    const json_t *command = json_object_get(root, "command"), *args = json_object_get(root, "args");
    if (command) {
        return job_read_command(command, "command", args, "args", &spec->command, err);
    }
    if (args) {
        return err_set(err, ERR_INVALID, "args: only together with a command");
    }
    if (spec->n_branches == 0 && !spec->keep.name) {
        return err_set(err, ERR_INVALID, "command: missing; a list of strings or a shell line");
    }
    return 0;
}

int job_set_canonical(const json_t *root, struct job_spec *spec, struct err *err)
{
    spec->canonical = json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!spec->canonical) {
        abort(); /* only memory can fail: root came from the parser */
    }
    spec->canonical_len = strlen(spec->canonical);
    if (spec->canonical_len >
        JOB_JSON_MAX) { /* \u escapes are longer than UTF-8; it must be readable again */
        return err_set(err, ERR_TOO_LARGE,
                       "job: %zu bytes as ASCII JSON; at most %u; give binary data as base64",
                       spec->canonical_len, JOB_JSON_MAX);
    }
    return 0;
}

static int read_fields(const json_t *root, struct job_spec *spec, struct err *err)
{
    struct branch_totals totals = { .nodes = 1 };
    int rc = read_template(root, spec, err);
    rc = rc < 0 ? rc : read_texts(root, spec, err);
    rc = rc < 0 ? rc
                : job_read_files(json_object_get(root, "files"), "files", &spec->files,
                                 &spec->n_files, &totals.file_bytes, err);
    rc = rc < 0 ? rc
                : job_read_archive(json_object_get(root, "archive"), "archive", &spec->archive,
                                   &totals.file_bytes, err);
    rc = rc < 0 ? rc
                : job_read_steps(json_object_get(root, "setup"), "setup", &spec->steps,
                                 &spec->n_steps, err);
    rc = rc < 0 ? rc : job_read_keep(json_object_get(root, "keep"), "keep", &spec->keep, err);
    rc = rc < 0 ? rc
                : job_read_branches(root, "", 0, &totals, &spec->branches, &spec->n_branches, err);
    rc = rc < 0 ? rc : read_command(root, spec, err);
    rc = rc < 0 ? rc
                : job_read_env(json_object_get(root, "env"), "env", &spec->env, &spec->n_env, err);
    rc = rc < 0 ? rc
                : job_read_expect(json_object_get(root, "expect"), "expect", &spec->expect,
                                  &spec->has_expect, err);
    rc = rc < 0 ? rc
                : job_read_limits(json_object_get(root, "limits"), "limits", false, &spec->command,
                                  err);
    rc = rc < 0 ? rc : read_labels(json_object_get(root, "labels"), spec, err);
    rc = rc < 0 ? rc
                : job_read_artifacts(json_object_get(root, "artifacts"), "artifacts",
                                     &spec->artifacts, &spec->n_artifacts, err);
    rc = rc < 0 ? rc : read_tree_rules(root, spec, err);
    rc = rc < 0 ? rc : job_read_secrets(json_object_get(root, "secrets"), spec, err);
    rc = rc < 0 ? rc : job_read_schedule(root, spec, err);
    return rc < 0 ? rc : check_shared(spec, err);
}

int job_parse(const char *json, size_t len, struct job_spec **ret_spec, struct err *err)
{
    assert((json || len == 0) && ret_spec);
    cleanup_json json_t *root = NULL;
    int rc = jr_load(json, len, &root, err);
    if (rc < 0 || (rc = jr_object(root, "", job_fields, err)) < 0) {
        return rc;
    }
    cleanup_job_spec struct job_spec *spec = job_new_array(1, sizeof *spec);
    if ((rc = read_fields(root, spec, err)) < 0) {
        return rc;
    }
    if (spec->n_steps > 0) {
        spec->setup = spec->steps[0];
    }
    if ((rc = tree_build(spec, &spec->tree, err)) < 0 ||
        (rc = job_set_canonical(root, spec, err)) < 0) {
        return rc;
    }
    *ret_spec = TAKE_PTR(spec);
    return 0;
}
