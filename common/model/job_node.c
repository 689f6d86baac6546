/* Readers of what a job and each of its branches can have: files, setup, env, artifacts, what is
 * kept.
 */
#include "common/model/job_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/glob.h"

#define FILE_MODE 0644

void job_field(char out[JR_PATH_MAX], const char *at, const char *name)
{
    (void)snprintf(out, JR_PATH_MAX, "%s%s%s", at, *at ? "." : "", name);
}

void *job_new_array(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) {
        abort();
    }
    return p;
}

bool job_word_chars(const char *s, const char *extra)
{
    for (; *s; s++) {
        bool word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                    (*s >= '0' && *s <= '9') || *s == '_';
        if (!word && !strchr(extra, *s)) {
            return false;
        }
    }
    return true;
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

static int add_bytes(size_t *total, size_t n, struct err *err)
{
    *total += n;
    if (*total > JOB_FILES_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "files: more than %u bytes in all", JOB_FILES_BYTES_MAX);
    }
    return 0;
}

static int read_file(const json_t *v, const char *at, struct job_file *f, size_t *total,
                     struct err *err)
{
    static const char *const known[] = { "path", "text", "base64", "mode", NULL };
    char sub[JR_PATH_MAX];
    int rc = jr_object(v, at, known, err);
    if (rc < 0) {
        return rc;
    }
    const json_t *path = json_object_get(v, "path"), *text = json_object_get(v, "text");
    const json_t *base64 = json_object_get(v, "base64"), *mode = json_object_get(v, "mode");
    job_field(sub, at, "path");
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
    job_field(sub, at, text ? "text" : "base64");
    rc = text ? jr_text_bytes(text, sub, JOB_FILE_BYTES_MAX, &f->content, err)
              : jr_base64_bytes(base64, sub, JOB_FILE_BYTES_MAX, &f->content, err);
    if (rc < 0) {
        return rc;
    }
    if ((rc = add_bytes(total, f->content.len, err)) < 0) {
        return rc;
    }
    f->mode = FILE_MODE;
    job_field(sub, at, "mode");
    return mode ? read_mode(mode, sub, &f->mode, err) : 0;
}

/* JOB_FILES_MAX squared short compares are less than a millisecond; few jobs have ten files. */
static int check_paths(const struct job_file *files, int n_files, const char *at, struct err *err)
{
    for (int i = 0; i < n_files; i++) {
        size_t n = strlen(files[i].path);
        for (int j = 0; j < n_files; j++) {
            const char *other = files[j].path;
            if (i == j || strncmp(files[i].path, other, n) != 0) {
                continue;
            }
            char shown[JR_PATH_MAX];
            jr_printable(shown, files[i].path);
            if (other[n] == 0) {
                return err_set(err, ERR_INVALID, "%s[%d].path: \"%s\" is given twice", at,
                               i > j ? i : j, shown);
            }
            if (other[n] == '/') {
                return err_set(err, ERR_INVALID,
                               "%s[%d].path: \"%s\" is a file and the folder of %s[%d]", at, i,
                               shown, at, j);
            }
        }
    }
    return 0;
}

int job_read_files(const json_t *v, const char *at, struct job_file **ret_files, int *ret_n,
                   size_t *total, struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_array(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of objects", at);
    }
    size_t n = json_array_size(v);
    if (n > JOB_FILES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu files; at most %d", at, n, JOB_FILES_MAX);
    }
    *ret_files = job_new_array(n, sizeof **ret_files);
    *ret_n = (int)n;
    for (int i = 0; i < *ret_n; i++) {
        char sub[JR_PATH_MAX];
        (void)snprintf(sub, sizeof sub, "%s[%d]", at, i);
        int rc = read_file(json_array_get(v, (size_t)i), sub, &(*ret_files)[i], total, err);
        if (rc < 0) {
            return rc;
        }
    }
    return check_paths(*ret_files, *ret_n, at, err);
}

static int read_object(const json_t *v, const char *at, char out[65], struct err *err)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    size_t n = json_is_string(v) ? json_string_length(v) : 0;
    if (n != 64 || strspn(s, "0123456789abcdef") != 64) {
        return err_set(err, ERR_INVALID, "%s: must be a SHA-256, 64 lower-case hex digits", at);
    }
    memcpy(out, s, 65);
    return 0;
}

int job_read_archive(const json_t *v, const char *at, struct job_archive *a, size_t *total,
                     struct err *err)
{
    static const char *const known[] = { "format", "base64", "object", NULL };
    if (!v) {
        return 0;
    }
    char sub[JR_PATH_MAX];
    int rc = jr_object(v, at, known, err);
    if (rc < 0) {
        return rc;
    }
    const json_t *format = json_object_get(v, "format"), *base64 = json_object_get(v, "base64"),
                 *object = json_object_get(v, "object");
    int f = ARCHIVE_TAR;
    while (f <= ARCHIVE_ZIP &&
           !(json_is_string(format) &&
             strcmp(json_string_value(format), archive_word((enum archive_format)f)) == 0)) {
        f++;
    }
    if (f > ARCHIVE_ZIP) {
        return err_set(err, ERR_INVALID, "%s.format: must be tar, tar.gz, tar.zst or zip", at);
    }
    if (!base64 == !object) {
        return err_set(err, ERR_INVALID, "%s: needs either base64 or object", at);
    }
    a->present = true;
    a->format = (enum archive_format)f;
    job_field(sub, at, base64 ? "base64" : "object");
    if (object) {
        return read_object(object, sub, a->object, err);
    }
    rc = jr_base64_bytes(base64, sub, JOB_FILES_BYTES_MAX, &a->content, err);
    if (rc == 0 && a->content.len == 0) {
        return err_set(err, ERR_INVALID, "%s: must not be empty", sub);
    }
    return rc < 0 ? rc : add_bytes(total, a->content.len, err);
}

int job_read_step(const json_t *v, const char *at, struct job_command *c, struct err *err)
{
    static const char *const known[] = { "command", "limits", NULL };
    char sub[JR_PATH_MAX];
    job_field(sub, at, "limits");
    if (!json_is_object(v)) {
        int rc = job_read_command(v, at, NULL, NULL, c, err);
        return rc < 0 ? rc : job_read_limits(NULL, sub, true, c, err);
    }
    int rc = jr_object(v, at, known, err);
    if (rc < 0) {
        return rc;
    }
    char command_at[JR_PATH_MAX];
    job_field(command_at, at, "command");
    const json_t *command = json_object_get(v, "command");
    if (!command) {
        return err_set(err, ERR_INVALID, "%s: missing", command_at);
    }
    if ((rc = job_read_command(command, command_at, NULL, NULL, c, err)) < 0) {
        return rc;
    }
    return job_read_limits(json_object_get(v, "limits"), sub, true, c, err);
}

int job_read_steps(const json_t *v, const char *at, struct job_command **ret_steps, int *ret_n,
                   struct err *err)
{
    if (!v) {
        return 0;
    }
    bool list = json_is_object(json_array_get(v, 0));
    size_t n = list ? json_array_size(v) : 1;
    if (n > JOB_SETUP_STEPS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu steps; at most %d", at, n, JOB_SETUP_STEPS_MAX);
    }
    *ret_steps = job_new_array(n, sizeof **ret_steps);
    for (size_t i = 0; i < n; i++) {
        char sub[JR_PATH_MAX];
        const json_t *step = list ? json_array_get(v, i) : v;
        (void)snprintf(sub, sizeof sub, list ? "%s[%zu]" : "%s", at, i);
        if (list && !json_is_object(step)) {
            return err_set(err, ERR_INVALID,
                           "%s: must be an object with command, as the other steps are", sub);
        }
        *ret_n = (int)i + 1;
        int rc = job_read_step(step, sub, &(*ret_steps)[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int job_read_env(const json_t *v, const char *at, struct job_pair **ret_env, int *ret_n,
                 struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "%s: must be an object of strings", at);
    }
    size_t n = json_object_size(v), bytes = 0;
    if (n > JOB_ENV_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu variables; at most %d", at, n, JOB_ENV_MAX);
    }
    *ret_env = job_new_array(n, sizeof **ret_env);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char shown[JR_PATH_MAX], sub[JR_PATH_MAX];
        jr_printable(shown, key);
        job_field(sub, at, shown);
        if (!*key || (key[0] >= '0' && key[0] <= '9') || !job_word_chars(key, "")) {
            return err_set(err, ERR_INVALID,
                           "%s: a variable's name is letters, digits and _, no digit first", sub);
        }
        struct job_pair *p = &(*ret_env)[(*ret_n)++];
        p->key = jr_dup(key, strlen(key));
        int rc = jr_string(value, sub, 0, JOB_ENV_BYTES_MAX, JR_NO_NUL, &p->value, err);
        if (rc < 0) {
            return rc;
        }
        bytes += strlen(key) + strlen(p->value) + 2; /* K=V and its NUL */
        if (bytes > JOB_ENV_BYTES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "%s: more than %d bytes in all", at,
                           JOB_ENV_BYTES_MAX);
        }
    }
    return 0;
}

static_assert(GLOBS_MAX == JOB_ARTIFACT_GLOBS_MAX && GLOB_BYTES_MAX == JOB_ARTIFACT_GLOB_MAX,
              "what a job may give is what the matcher takes");

int job_read_artifacts(const json_t *v, const char *at, char ***ret_globs, int *ret_n,
                       struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_array(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of patterns", at);
    }
    size_t n = json_array_size(v), bytes = 0;
    if (n > JOB_ARTIFACT_GLOBS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu patterns; at most %d", at, n,
                       JOB_ARTIFACT_GLOBS_MAX);
    }
    *ret_globs = job_new_array(n, sizeof **ret_globs);
    for (size_t i = 0; i < n; i++) {
        char sub[JR_PATH_MAX];
        (void)snprintf(sub, sizeof sub, "%s[%zu]", at, i);
        char *glob = NULL;
        int rc = jr_string(json_array_get(v, i), sub, 1, JOB_ARTIFACT_GLOB_MAX, JR_PRINTABLE, &glob,
                           err);
        if (rc < 0) {
            return rc;
        }
        (*ret_globs)[(*ret_n)++] = glob;
        bytes += strlen(glob) + 1;
        if ((rc = glob_check(glob, strlen(glob), err)) < 0) {
            return err_prefix(err, "%s", sub);
        }
    }
    if (bytes > GLOBS_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%s: more than %u bytes in all", at, GLOBS_BYTES_MAX);
    }
    return 0;
}

int job_read_keep(const json_t *v, const char *at, struct job_keep *k, struct err *err)
{
    static const char *const known[] = { "name", "ttl_s", "pin", NULL };
    if (!v) {
        return 0;
    }
    int rc = jr_object(v, at, known, err);
    if (rc < 0) {
        return rc;
    }
    const json_t *name = json_object_get(v, "name"), *ttl = json_object_get(v, "ttl_s"),
                 *pin = json_object_get(v, "pin");
    char sub[JR_PATH_MAX];
    job_field(sub, at, "name");
    if (!name) {
        return err_set(err, ERR_INVALID, "%s: missing", sub);
    }
    if ((rc = jr_string(name, sub, 1, JOB_SNAPSHOT_NAME_MAX, JR_PRINTABLE, &k->name, err)) < 0) {
        return rc;
    }
    if (!snapshot_name_ok(k->name)) {
        return err_set(err, ERR_INVALID,
                       "%s: must be letters, digits, _ . - and not begin with . or -", sub);
    }
    job_field(sub, at, "pin");
    if (pin && (rc = jr_bool(pin, sub, &k->pin, err)) < 0) {
        return rc;
    }
    job_field(sub, at, "ttl_s");
    if (k->pin && ttl) {
        return err_set(err, ERR_INVALID, "%s: not together with pin: a pinned snapshot stays", sub);
    }
    k->ttl_s = k->pin ? 0 : JOB_KEEP_TTL_S_DEFAULT;
    return ttl ? jr_int(ttl, sub, JOB_KEEP_TTL_S_MIN, JOB_KEEP_TTL_S_MAX, &k->ttl_s, err) : 0;
}
