/* The reader of brood.json: one small document, read by jansson, then field by field. */
#include "cli/brood_json.h"

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/model/glob.h"
#include "common/model/job.h"
#include "common/model/json_read.h"
#include "common/report/shard.h"

static const char *const known[] = { "template",     "setup",      "test",    "shards", "artifacts",
                                     "reports",      "key_files",  "include", "env",    "limits",
                                     "setup_limits", "test_files", NULL };

static void list_done(struct string_list *l)
{
    for (int i = 0; i < l->n; i++) {
        free(l->items[i]);
    }
    free(l->items);
    *l = (struct string_list){ 0 };
}

void brood_json_done(struct brood_json *b)
{
    free(b->template_name);
    list_done(&b->setup);
    list_done(&b->test);
    list_done(&b->artifacts);
    list_done(&b->reports);
    list_done(&b->key_files);
    list_done(&b->include);
    list_done(&b->test_files);
    json_decref(b->env);
    json_decref(b->limits);
    json_decref(b->setup_limits);
    *b = (struct brood_json){ 0 };
}

/* v (NULL: not given) is a list of at most max strings, each at most bytes_max. */
static int read_list(const json_t *v, const char *at, size_t max, size_t bytes_max,
                     struct string_list *l, struct err *err)
{
    if (!v) {
        return 0;
    }
    if (!json_is_array(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a list of strings", at);
    }
    size_t n = json_array_size(v);
    if (n > max) {
        return err_set(err, ERR_INVALID, "%s: at most %zu", at, max);
    }
    l->items = calloc(n + 1, sizeof *l->items);
    if (!l->items) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        char path[JR_PATH_MAX];
        (void)snprintf(path, sizeof path, "%s[%zu]", at, i);
        int rc = jr_string(json_array_get(v, i), path, 0, bytes_max, JR_NO_NUL, &l->items[i], err);
        if (rc < 0) {
            return rc;
        }
        l->n++;
    }
    return 0;
}

static int read_globs(const json_t *root, const char *name, struct string_list *l, struct err *err)
{
    int rc = read_list(json_object_get(root, name), name, GLOBS_MAX, GLOB_BYTES_MAX, l, err);
    size_t bytes = 0;
    for (int i = 0; rc == 0 && i < l->n; i++) {
        size_t n = strlen(l->items[i]);
        bytes += n + 1;
        if (glob_check(l->items[i], n, err) < 0) {
            rc = err_prefix(err, "%s[%d]", name, i);
        } else if (bytes > GLOBS_BYTES_MAX) {
            rc = err_set(err, ERR_INVALID, "%s: at most %u bytes in all", name, GLOBS_BYTES_MAX);
        }
    }
    return rc;
}

/* A string is a list of one. */
static int read_lines(const json_t *v, const char *at, size_t max, struct string_list *l,
                      bool *ret_one, struct err *err)
{
    *ret_one = json_is_string(v);
    if (!*ret_one) {
        return read_list(v, at, max, BROOD_JSON_LINE_BYTES_MAX, l, err);
    }
    l->items = calloc(2, sizeof *l->items);
    if (!l->items) {
        abort();
    }
    int rc = jr_string(v, at, 1, BROOD_JSON_LINE_BYTES_MAX, JR_NO_NUL, &l->items[0], err);
    l->n = rc == 0 ? 1 : 0;
    return rc;
}

static int read_commands(const json_t *root, struct brood_json *b, struct err *err)
{
    bool one;
    int rc = read_lines(json_object_get(root, "setup"), "setup", BROOD_JSON_STEPS_MAX, &b->setup,
                        &one, err);
    for (int i = 0; rc == 0 && i < b->setup.n; i++) {
        if (!b->setup.items[i][0]) {
            return err_set(err, ERR_INVALID, "setup[%d]: must not be empty", i);
        }
    }
    const json_t *test = json_object_get(root, "test");
    if (rc == 0) {
        rc = read_lines(test, "test", BROOD_JSON_ARGS_MAX, &b->test, &b->test_is_shell, err);
    }
    if (rc == 0 && test && (b->test.n == 0 || !b->test.items[0][0])) {
        rc = err_set(err, ERR_INVALID, "test: must name a program");
    }
    return rc;
}

static bool env_name_ok(const char *s)
{
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
    return s[0] && !s[n] && !(s[0] >= '0' && s[0] <= '9');
}

static int read_env(const json_t *root, struct brood_json *b, struct err *err)
{
    json_t *env = json_object_get(root, "env");
    if (!env) {
        return 0;
    }
    if (!json_is_object(env)) {
        return err_set(err, ERR_INVALID, "env: must be an object of strings");
    }
    if (json_object_size(env) > JOB_ENV_MAX) {
        return err_set(err, ERR_INVALID, "env: at most %d", JOB_ENV_MAX);
    }
    const char *key;
    json_t *value;
    json_object_foreach(env, key, value)
    {
        char path[JR_PATH_MAX + 8], shown[JR_PATH_MAX];
        jr_printable(shown, key);
        if (!env_name_ok(key)) {
            return err_set(err, ERR_INVALID, "env: \"%s\": names are [A-Za-z_][A-Za-z0-9_]*",
                           shown);
        }
        (void)snprintf(path, sizeof path, "env.%s", shown);
        cleanup_free char *text = NULL;
        int rc = jr_string(value, path, 0, JOB_ENV_BYTES_MAX, JR_NO_NUL, &text, err);
        if (rc < 0) {
            return rc;
        }
    }
    b->env = json_incref(env);
    return 0;
}

static int read_limits(const json_t *root, const char *name, json_t **ret_limits, struct err *err)
{
    static const char *const names[] = {
#define JOB_LIMIT(field, json, def, setup_def, min, max, help) json,
#include "common/model/limits.def"
        NULL
    };
    json_t *limits = json_object_get(root, name);
    if (!limits) {
        return 0;
    }
    int rc = jr_object(limits, name, names, err);
    if (rc < 0) {
        return rc;
    }
#define JOB_LIMIT(field, json, def, setup_def, min_value, max_value, help)                         \
    if (json_object_get(limits, json)) {                                                           \
        char path[JR_PATH_MAX];                                                                    \
        int64_t value;                                                                             \
        (void)snprintf(path, sizeof path, "%s.%s", name, json);                                    \
        rc = jr_int(json_object_get(limits, json), path, min_value, max_value, &value, err);       \
        if (rc < 0) {                                                                              \
            return rc;                                                                             \
        }                                                                                          \
    }
#include "common/model/limits.def"
    *ret_limits = json_incref(limits);
    return 0;
}

static int read_root(const json_t *root, struct brood_json *b, struct err *err)
{
    int rc = json_is_object(root) ? jr_object(root, "", known, err)
                                  : err_set(err, ERR_INVALID, "must be an object");
    const json_t *template = json_object_get(root, "template"),
                 *shards = json_object_get(root, "shards");
    if (rc == 0 && template) {
        rc = jr_string(template, "template", 1, JOB_TEMPLATE_MAX, JR_PRINTABLE, &b->template_name,
                       err);
    }
    if (rc == 0 && shards) {
        int64_t n = 0;
        rc = jr_int(shards, "shards", 1, SHARDS_MAX, &n, err);
        b->shards = (unsigned)n;
    }
    rc = rc < 0 ? rc : read_commands(root, b, err);
    rc = rc < 0 ? rc : read_globs(root, "artifacts", &b->artifacts, err);
    rc = rc < 0 ? rc : read_globs(root, "reports", &b->reports, err);
    rc = rc < 0 ? rc : read_globs(root, "key_files", &b->key_files, err);
    rc = rc < 0 ? rc : read_globs(root, "include", &b->include, err);
    rc = rc < 0 ? rc : read_globs(root, "test_files", &b->test_files, err);
    rc = rc < 0 ? rc : read_env(root, b, err);
    rc = rc < 0 ? rc : read_limits(root, "limits", &b->limits, err);
    return rc < 0 ? rc : read_limits(root, "setup_limits", &b->setup_limits, err);
}

int brood_json_parse(const char *text, size_t len, struct brood_json *ret_b, struct err *err)
{
    if (len > BROOD_JSON_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "brood.json: %zu bytes; at most %u", len,
                       BROOD_JSON_BYTES_MAX);
    }
    cleanup_json json_t *root = NULL;
    int rc = jr_load(text, len, &root, err);
    struct brood_json b = { 0 };
    rc = rc < 0 ? rc : read_root(root, &b, err);
    if (rc < 0) {
        brood_json_done(&b);
        return err_prefix(err, "brood.json");
    }
    *ret_b = b;
    return 0;
}

int brood_json_read(const char *dir, struct brood_json *ret_b, struct err *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/brood.json", dir) >= (int)sizeof path) {
        return err_set(err, ERR_INVALID, "brood.json: the folder's path is too long");
    }
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, BROOD_JSON_BYTES_MAX + 1);
    int rc = buf_read_file(&b, path, err);
    if (rc == -ERR_NOT_FOUND) {
        *ret_b = (struct brood_json){ 0 };
        return 0;
    }
    rc = rc < 0 ? rc : brood_json_parse(b.data, b.len, ret_b, err);
    return rc < 0 ? rc : 1;
}
