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

#define FLOAT_TOLERANCE 1e-6
#define FLOAT_TOLERANCE_MAX 1e300
#define FILE_MODE 0644

static const char *const job_fields[] = { "template", "name",   "files",  "setup",
                                          "command",  "args",   "stdin",  "env",
                                          "expect",   "limits", "labels", "idempotency_key",
                                          "stream",   NULL };

static void *new_array(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        abort();
    }
    return p;
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool only(const char *s, const char *extra)
{
    for (; *s; s++) {
        if (!word_char(*s) && !strchr(extra, *s)) {
            return false;
        }
    }
    return true;
}

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
    bool ends_ok = word_char(name[0]) && (!at || (at != name && at[1]));
    if (!ends_ok || !only(name, ".-@:") || (at && strchr(at + 1, '@')) || strchr(name, '/')) {
        return err_set(err, ERR_INVALID,
                       "template: must be a name (letters, digits, _ . -) or name@digest");
    }
    return 0;
}

static int read_mode(const json_t *v, const char *path, uint32_t *ret_mode, struct err *err)
{
    const char *s = json_string_value(v);
    size_t n = s ? json_string_length(v) : 0;
    uint32_t mode = 0;
    bool ok = n == 3 || (n == 4 && s[0] == '0');
    for (size_t i = 0; ok && i < n; i++) {
        ok = s[i] >= '0' && s[i] <= '7';
        mode = mode * 8 + (uint32_t)(s[i] - '0');
    }
    if (!ok) {
        return err_set(err, ERR_INVALID, "%s: must be an octal string from \"0000\" to \"0777\"",
                       path);
    }
    *ret_mode = mode;
    return 0;
}

static int read_file(const json_t *v, int i, struct job_file *f, size_t *total, struct err *err)
{
    static const char *const known[] = { "path", "text", "base64", "mode", NULL };
    char at[32], sub[JR_PATH_MAX];
    (void)snprintf(at, sizeof at, "files[%d]", i);
    int rc = jr_object(v, at, known, err);
    if (rc < 0) {
        return rc;
    }
    const json_t *path = json_object_get(v, "path"), *text = json_object_get(v, "text");
    const json_t *base64 = json_object_get(v, "base64"), *mode = json_object_get(v, "mode");
    (void)snprintf(sub, sizeof sub, "%s.path", at);
    if (!path) {
        return err_set(err, ERR_INVALID, "%s: missing", sub);
    }
    if ((rc = jr_string(path, sub, 1, JOB_PATH_MAX, JR_PRINTABLE, &f->path, err)) < 0) {
        return rc;
    }
    if (!job_path_ok(f->path)) {
        char shown[JR_PATH_MAX];
        jr_printable(shown, f->path);
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": must be relative, without \"..\", \".\" or empty parts, each "
                       "at most %d bytes",
                       sub, shown, JOB_PATH_PART_MAX);
    }
    if (!text == !base64) {
        return err_set(err, ERR_INVALID, "%s: needs either text or base64", at);
    }
    (void)snprintf(sub, sizeof sub, "%s.%s", at, text ? "text" : "base64");
    rc = text ? jr_text_bytes(text, sub, JOB_FILE_BYTES_MAX, &f->content, err)
              : jr_base64_bytes(base64, sub, JOB_FILE_BYTES_MAX, &f->content, err);
    if (rc < 0) {
        return rc;
    }
    *total += f->content.len;
    if (*total > JOB_FILES_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "files: more than %u bytes in all", JOB_FILES_BYTES_MAX);
    }
    f->mode = FILE_MODE;
    (void)snprintf(sub, sizeof sub, "%s.mode", at);
    return mode ? read_mode(mode, sub, &f->mode, err) : 0;
}

/* JOB_FILES_MAX squared short compares are less than a millisecond; few jobs have ten files. */
static int check_paths(const struct job_spec *spec, struct err *err)
{
    for (int i = 0; i < spec->n_files; i++) {
        size_t n = strlen(spec->files[i].path);
        for (int j = 0; j < spec->n_files; j++) {
            const char *other = spec->files[j].path;
            if (i == j || strncmp(spec->files[i].path, other, n) != 0) {
                continue;
            }
            char shown[JR_PATH_MAX];
            jr_printable(shown, spec->files[i].path);
            if (other[n] == 0) {
                return err_set(err, ERR_INVALID, "files[%d].path: \"%s\" is given twice",
                               i > j ? i : j, shown);
            }
            if (other[n] == '/') {
                return err_set(err, ERR_INVALID,
                               "files[%d].path: \"%s\" is a file and the folder of files[%d]", i,
                               shown, j);
            }
        }
    }
    return 0;
}

static int read_files(const json_t *v, struct job_spec *spec, struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_array(v)) {
        return err_set(err, ERR_INVALID, "files: must be a list of objects");
    }
    size_t n = json_array_size(v), total = 0;
    if (n > JOB_FILES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "files: %zu files; at most %d", n, JOB_FILES_MAX);
    }
    spec->files = new_array(n, sizeof *spec->files);
    spec->n_files = (int)n;
    for (int i = 0; i < spec->n_files; i++) {
        int rc = read_file(json_array_get(v, (size_t)i), i, &spec->files[i], &total, err);
        if (rc < 0) {
            return rc;
        }
    }
    return check_paths(spec, err);
}

static int read_setup(const json_t *v, struct job_spec *spec, struct err *err)
{
    static const char *const known[] = { "command", "limits", NULL };
    if (!v) {
        return 0;
    }
    if (!json_is_object(v)) {
        int rc = job_read_command(v, "setup", NULL, &spec->setup, err);
        return rc < 0 ? rc : job_read_limits(NULL, "setup.limits", true, &spec->setup, err);
    }
    int rc = jr_object(v, "setup", known, err);
    if (rc < 0) {
        return rc;
    }
    const json_t *command = json_object_get(v, "command");
    if (!command) {
        return err_set(err, ERR_INVALID, "setup.command: missing");
    }
    if ((rc = job_read_command(command, "setup.command", NULL, &spec->setup, err)) < 0) {
        return rc;
    }
    return job_read_limits(json_object_get(v, "limits"), "setup.limits", true, &spec->setup, err);
}

static int read_env(const json_t *v, struct job_spec *spec, struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "env: must be an object of strings");
    }
    size_t n = json_object_size(v), bytes = 0;
    if (n > JOB_ENV_MAX) {
        return err_set(err, ERR_TOO_LARGE, "env: %zu variables; at most %d", n, JOB_ENV_MAX);
    }
    spec->env = new_array(n, sizeof *spec->env);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char shown[JR_PATH_MAX], sub[JR_PATH_MAX + 8];
        jr_printable(shown, key);
        (void)snprintf(sub, sizeof sub, "env.%s", shown);
        if (!*key || (key[0] >= '0' && key[0] <= '9') || !only(key, "")) {
            return err_set(err, ERR_INVALID,
                           "%s: a variable's name is letters, digits and _, no digit first", sub);
        }
        struct job_pair *p = &spec->env[spec->n_env++];
        p->key = jr_dup(key, strlen(key));
        int rc = jr_string(value, sub, 0, JOB_ENV_BYTES_MAX, JR_NO_NUL, &p->value, err);
        if (rc < 0) {
            return rc;
        }
        bytes += strlen(key) + strlen(p->value) + 2; /* K=V and its NUL */
        if (bytes > JOB_ENV_BYTES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "env: more than %d bytes in all", JOB_ENV_BYTES_MAX);
        }
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
    spec->labels = new_array(n, sizeof *spec->labels);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char shown[JR_PATH_MAX], sub[JR_PATH_MAX + 8];
        jr_printable(shown, key);
        (void)snprintf(sub, sizeof sub, "labels.%s", shown);
        if (!*key || strlen(key) > JOB_LABEL_KEY_MAX || !only(key, "./-")) {
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

static int read_compare(const json_t *v, enum compare_mode *ret_mode, struct err *err)
{
    for (int m = COMPARE_EXACT; json_is_string(v) && m <= COMPARE_FLOAT; m++) {
        const char *word = compare_word((enum compare_mode)m);
        if (json_string_length(v) == strlen(word) && strcmp(json_string_value(v), word) == 0) {
            *ret_mode = (enum compare_mode)m;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "expect.compare: must be exact, trim, tokens or float");
}

static int read_tolerance(const json_t *v, struct job_expect *e, struct err *err)
{
    static const char *const known[] = { "absolute", "relative", NULL };
    if (json_is_number(v)) {
        int rc = jr_real(v, "expect.tolerance", FLOAT_TOLERANCE_MAX, &e->tolerance_abs, err);
        e->tolerance_rel = e->tolerance_abs;
        return rc;
    }
    if (!json_is_object(v) || json_object_size(v) == 0) {
        return err_set(
            err, ERR_INVALID,
            "expect.tolerance: must be a number or {\"absolute\": .., \"relative\": ..}");
    }
    int rc = jr_object(v, "expect.tolerance", known, err);
    const json_t *a = json_object_get(v, "absolute"), *r = json_object_get(v, "relative");
    /* The one that is not given does not loosen the other. */
    e->tolerance_abs = e->tolerance_rel = 0;
    if (rc == 0 && a) {
        rc = jr_real(a, "expect.tolerance.absolute", FLOAT_TOLERANCE_MAX, &e->tolerance_abs, err);
    }
    if (rc == 0 && r) {
        rc = jr_real(r, "expect.tolerance.relative", FLOAT_TOLERANCE_MAX, &e->tolerance_rel, err);
    }
    return rc;
}

static int read_expect(const json_t *v, struct job_spec *spec, struct err *err)
{
    static const char *const known[] = { "exit_code", "stdout", "compare", "tolerance", NULL };
    struct job_expect *e = &spec->expect;
    *e = (struct job_expect){ .compare = COMPARE_TRIM,
                              .tolerance_abs = FLOAT_TOLERANCE,
                              .tolerance_rel = FLOAT_TOLERANCE };
    if (!v) {
        return 0;
    }
    int rc = jr_object(v, "expect", known, err);
    if (rc < 0) {
        return rc;
    }
    spec->has_expect = true;
    const json_t *code = json_object_get(v, "exit_code"), *out = json_object_get(v, "stdout");
    const json_t *compare = json_object_get(v, "compare"),
                 *tolerance = json_object_get(v, "tolerance");
    int64_t exit_code = 0;
    if (code && (rc = jr_int(code, "expect.exit_code", 0, 255, &exit_code, err)) < 0) {
        return rc;
    }
    e->exit_code = (int)exit_code;
    if (out && (rc = jr_bytes(out, "expect.stdout", JOB_EXPECT_BYTES_MAX, &e->text, err)) < 0) {
        return rc;
    }
    e->has_stdout = out != NULL;
    if (compare && (rc = read_compare(compare, &e->compare, err)) < 0) {
        return rc;
    }
    if (compare && !out) {
        return err_set(err, ERR_INVALID, "expect.compare: only together with expect.stdout");
    }
    if (tolerance && e->compare != COMPARE_FLOAT) {
        return err_set(err, ERR_INVALID, "expect.tolerance: only with \"compare\": \"float\"");
    }
    return tolerance ? read_tolerance(tolerance, e, err) : 0;
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

static int set_canonical(const json_t *root, struct job_spec *spec, struct err *err)
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

int job_parse(const char *json, size_t len, struct job_spec **ret_spec, struct err *err)
{
    assert((json || len == 0) && ret_spec);
    cleanup_json json_t *root = NULL;
    int rc = jr_load(json, len, &root, err);
    if (rc < 0 || (rc = jr_object(root, "", job_fields, err)) < 0) {
        return rc;
    }
    cleanup_job_spec struct job_spec *spec = new_array(1, sizeof *spec);
    const json_t *command = json_object_get(root, "command");
    if ((rc = read_template(root, spec, err)) < 0 || (rc = read_texts(root, spec, err)) < 0 ||
        (rc = read_files(json_object_get(root, "files"), spec, err)) < 0 ||
        (rc = read_setup(json_object_get(root, "setup"), spec, err)) < 0) {
        return rc;
    }
    if (!command) {
        return err_set(err, ERR_INVALID, "command: missing; a list of strings or a shell line");
    }
    if ((rc = job_read_command(command, "command", json_object_get(root, "args"), &spec->command,
                               err)) < 0 ||
        (rc = read_env(json_object_get(root, "env"), spec, err)) < 0 ||
        (rc = read_expect(json_object_get(root, "expect"), spec, err)) < 0 ||
        (rc = job_read_limits(json_object_get(root, "limits"), "limits", false, &spec->command,
                              err)) < 0 ||
        (rc = read_labels(json_object_get(root, "labels"), spec, err)) < 0 ||
        (rc = set_canonical(root, spec, err)) < 0) {
        return rc;
    }
    *ret_spec = TAKE_PTR(spec);
    return 0;
}
