/* The result's "detail" as JSON, and back. One table of a run's numbers serves both directions.
 *
 * Texts in a result may come from the guest (exec_error), so they are made valid UTF-8 before they
 * are written. Reading ignores unknown names, so that an older program can read what a newer one
 * stored. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>

#include "common/model/json_read.h"
#include "common/model/result.h"

struct number {
    const char *name;
    size_t offset;
};

static const struct number run_numbers[] = {
    { "cpu_us", offsetof(struct run_result, cpu_us) },
    { "wall_us", offsetof(struct run_result, wall_us) },
    { "host_wait_us", offsetof(struct run_result, host_wait_us) },
    { "guest_cpu_us", offsetof(struct run_result, guest_cpu_us) },
    { "memory_peak_bytes", offsetof(struct run_result, memory_peak_bytes) },
    { "oom_kills", offsetof(struct run_result, oom_kills) },
    { "process_refusals", offsetof(struct run_result, process_refusals) },
    { "leftover_processes", offsetof(struct run_result, leftover_processes) },
    { "disk_used_bytes", offsetof(struct run_result, disk_used_bytes) },
    { "disk_files_used", offsetof(struct run_result, disk_files_used) },
    { "disk_refusals", offsetof(struct run_result, disk_refusals) },
    { "open_file_refusals", offsetof(struct run_result, open_file_refusals) },
};
static const struct number checker_numbers[] = {
    { "exit_code", offsetof(struct result_checker, exit_code) },
    { "signal", offsetof(struct result_checker, signal) },
    { "cpu_us", offsetof(struct result_checker, cpu_us) },
    { "wall_us", offsetof(struct result_checker, wall_us) },
};
#define N_CHECKER_NUMBERS (sizeof checker_numbers / sizeof checker_numbers[0])

#define N_RUN_NUMBERS (sizeof run_numbers / sizeof run_numbers[0])

static const struct number result_numbers[] = {
    { "leased_wall_ms", offsetof(struct job_result, leased_wall_ms) },
    { "ended_wall_ms", offsetof(struct job_result, ended_wall_ms) },
    { "measured_ms", offsetof(struct job_result, measured_ms) },
    { "lease_us", offsetof(struct job_result, lease_us) },
    { "first_byte_us", offsetof(struct job_result, first_byte_us) },
};
#define N_RESULT_NUMBERS (sizeof result_numbers / sizeof result_numbers[0])

static const struct number tree_numbers[] = {
    { "nodes", offsetof(struct result_tree, nodes) },
    { "leaves", offsetof(struct result_tree, leaves) },
    { "accepted", offsetof(struct result_tree, accepted) },
    { "failed", offsetof(struct result_tree, failed) },
    { "skipped", offsetof(struct result_tree, skipped) },
    { "cancelled", offsetof(struct result_tree, cancelled) },
    { "score_micro", offsetof(struct result_tree, score_micro) },
    { "first_failed", offsetof(struct result_tree, first_failed) },
}; /* ints, unlike the others */
#define N_TREE_NUMBERS (sizeof tree_numbers / sizeof tree_numbers[0])

static const struct number artifact_numbers[] = {
    { "listed", offsetof(struct result_artifacts, listed) },
    { "stored", offsetof(struct result_artifacts, stored) },
    { "stored_bytes", offsetof(struct result_artifacts, stored_bytes) },
};
#define N_ARTIFACT_NUMBERS (sizeof artifact_numbers / sizeof artifact_numbers[0])

static const struct number limit_numbers[] = {
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    { json, offsetof(struct job_limits, field) },
#include "common/model/limits.def"
#undef JOB_LIMIT
};

void job_result_init(struct job_result *r)
{
    *r = (struct job_result){ .verdict = VERDICT_NONE,
                              .compare = COMPARE_TRIM,
                              .first_byte_us = -1,
                              .setup_failed = -1,
                              .tree = { .first_failed = -1 },
                              .setup = { .exit_code = -1 },
                              .run = { .exit_code = -1 } };
}

static void run_done(struct run_result *r)
{
    free(r->out.head.data);
    free(r->out.tail.data);
    free(r->err_out.head.data);
    free(r->err_out.tail.data);
}

void job_result_done(struct job_result *r)
{
    run_done(&r->setup);
    run_done(&r->run);
    for (int i = 0; i < r->n_warnings; i++) {
        free(r->warnings[i]);
    }
    free(r->warnings);
    job_result_init(r);
}

void job_result_warn(struct job_result *r, const char *fmt, ...)
{
    char text[RESULT_REASON_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < r->n_warnings; i++) {
        if (strcmp(r->warnings[i], text) == 0) {
            return;
        }
    }
    if (r->n_warnings == JOB_WARNINGS_MAX) {
        (void)snprintf(text, sizeof text, "there were more warnings than the %d that are kept",
                       JOB_WARNINGS_MAX);
        free(r->warnings[JOB_WARNINGS_MAX - 1]);
        r->warnings[JOB_WARNINGS_MAX - 1] = jr_dup(text, strlen(text));
        return;
    }
    if (!r->warnings) {
        r->warnings = calloc(JOB_WARNINGS_MAX, sizeof *r->warnings);
        if (!r->warnings) {
            abort();
        }
    }
    r->warnings[r->n_warnings++] = jr_dup(text, strlen(text));
}

bool job_result_billed(const struct job_result *r)
{
    return verdict_billed(r->verdict) ||
           (r->verdict == VERDICT_CANCELLED && r->measured_ms > 0 && r->vcpus > 0);
}

/* ---- writing ---- */

static void put(json_t *obj, const char *key, json_t *value)
{
    if (!value || json_object_set_new(obj, key, value) < 0) {
        abort(); /* memory; values are made valid before */
    }
}

static json_t *text(const char *s)
{
    json_t *v = json_string(s);
    if (v) {
        return v;
    }
    cleanup_free char *copy = jr_dup(s, strlen(s));
    for (char *p = copy; *p; p++) {
        if ((unsigned char)*p >= 0x80) {
            *p = '?';
        }
    }
    return json_string(copy);
}

static void put_numbers(json_t *obj, const void *base, const struct number *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put(obj, rows[i].name,
            json_integer(*(const int64_t *)(const void *)((const char *)base + rows[i].offset)));
    }
}

static json_t *stream_json(const struct stream_result *s)
{
    json_t *obj = json_object();
    put(obj, "total_bytes",
        json_integer(s->total_bytes > INT64_MAX ? INT64_MAX : (int64_t)s->total_bytes));
    put(obj, "truncated", json_boolean(s->truncated));
    if (s->cut_bytes) {
        put(obj, "cut_bytes", json_integer(s->cut_bytes));
    }
    return obj;
}

static json_t *run_json(const struct run_result *r)
{
    json_t *obj = json_object();
    put(obj, "exit_code", r->exit_code < 0 ? json_null() : json_integer(r->exit_code));
    put(obj, "signal", r->signal == 0 ? json_null() : json_integer(r->signal));
    put_numbers(obj, r, run_numbers, N_RUN_NUMBERS);
    put(obj, "warm", json_boolean(r->warm));
    if (r->exec_error[0]) {
        put(obj, "exec_error", text(r->exec_error));
    }
    put(obj, "stdout", stream_json(&r->out));
    put(obj, "stderr", stream_json(&r->err_out));
    return obj;
}

/* What only jobs with branches, several setup steps, artifacts or warnings have. */
static void put_extras(json_t *root, const struct job_result *r)
{
    if (r->setup_steps > 1) {
        put(root, "setup_steps", json_integer(r->setup_steps));
        put(root, "setup_failed",
            r->setup_failed < 0 ? json_null() : json_integer(r->setup_failed));
    }
    if (r->tree.nodes > 0) {
        json_t *tree = json_object();
        for (size_t i = 0; i < N_TREE_NUMBERS; i++) {
            put(tree, tree_numbers[i].name,
                json_integer(
                    *(const int *)(const void *)((const char *)&r->tree + tree_numbers[i].offset)));
        }
        put(root, "tree", tree);
    }
    if (r->checker.present) {
        json_t *c = json_object();
        put_numbers(c, &r->checker, checker_numbers, N_CHECKER_NUMBERS);
        put(c, "message", text(r->checker.message));
        put(root, "checker", c);
    }
    if (r->artifacts.listed > 0 || r->artifacts.truncated) {
        json_t *a = json_object();
        put_numbers(a, &r->artifacts, artifact_numbers, N_ARTIFACT_NUMBERS);
        if (r->artifacts.truncated) {
            put(a, "truncated", json_true());
        }
        put(root, "artifacts", a);
    }
    if (r->n_warnings > 0) {
        json_t *list = json_array();
        for (int i = 0; i < r->n_warnings; i++) {
            (void)json_array_append_new(list, text(r->warnings[i]));
        }
        put(root, "warnings", list);
    }
}

char *job_result_detail(const struct job_result *r)
{
    cleanup_json json_t *root = json_object();
    put(root, "verdict", json_string(verdict_word(r->verdict)));
    put(root, "reason", text(r->reason));
    if (r->limit_name[0]) {
        json_t *limit = json_object();
        put(limit, "name", text(r->limit_name));
        put(limit, "value", json_integer(r->limit_value));
        put(limit, "used", json_integer(r->limit_used));
        put(root, "limit", limit);
    }
    if (r->setup.present) {
        put(root, "setup", run_json(&r->setup));
    }
    if (r->run.present) {
        put(root, "run", run_json(&r->run));
    }
    json_t *limits = json_object();
    put_numbers(limits, &r->limits, limit_numbers, LIMIT_COUNT);
    put(root, "limits", limits);
    put(root, "compare", r->compared ? json_string(compare_word(r->compare)) : json_null());
    put(root, "engine", text(r->engine));
    put(root, "snapshot", text(r->snapshot));
    put(root, "worker", text(r->worker));
    put(root, "vcpus", json_integer(r->vcpus));
    put(root, "memory_mib", json_integer(r->memory_mib));
    put_numbers(root, r, result_numbers, N_RESULT_NUMBERS);
    put_extras(root, r);
    char *out = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!out) {
        abort();
    }
    return out;
}

int json_put_bytes(struct json_t *obj, const char *key, const char *data, size_t len)
{
    assert(data || len == 0);
    json_t *v = len && memchr(data, 0, len) ? NULL : json_stringn(len ? data : "", len);
    if (v) {
        return json_object_set_new(obj, key, v);
    }
    char name[128];
    int n = snprintf(name, sizeof name, "%s_base64", key);
    assert(n > 0 && (size_t)n < sizeof name);
    json_put_base64(obj, name, data, len);
    return 0;
}

void json_put_base64(struct json_t *obj, const char *key, const char *data, size_t len)
{
    size_t room = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    cleanup_free char *b64 = malloc(room);
    if (!b64) {
        abort();
    }
    (void)sodium_bin2base64(b64, room, (const unsigned char *)(data ? data : ""), len,
                            sodium_base64_VARIANT_ORIGINAL);
    put(obj, key, json_string(b64));
}

/* ---- reading ---- */

/* Missing names keep what is there; a name of another type is an error. */
static int get_int(const json_t *obj, const char *name, int64_t *ret_value, struct err *err)
{
    const json_t *v = json_object_get(obj, name);
    if (!v || json_is_null(v)) {
        return 0;
    }
    if (!json_is_integer(v)) {
        return err_set(err, ERR_INVALID, "result: %s: must be a whole number", name);
    }
    *ret_value = (int64_t)json_integer_value(v);
    return 0;
}

static int get_numbers(const json_t *obj, void *base, const struct number *rows, size_t n,
                       struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc =
            get_int(obj, rows[i].name, (int64_t *)(void *)((char *)base + rows[i].offset), err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int get_small(const json_t *obj, const char *name, int *ret_value, struct err *err)
{
    int64_t v = *ret_value;
    int rc = get_int(obj, name, &v, err);
    if (rc == 0 && (v < INT32_MIN || v > INT32_MAX)) {
        return err_set(err, ERR_INVALID, "result: %s: out of range", name);
    }
    *ret_value = rc == 0 ? (int)v : *ret_value;
    return rc;
}

static int get_text(const json_t *obj, const char *name, char *out, size_t room, struct err *err)
{
    const json_t *v = json_object_get(obj, name);
    if (!v || json_is_null(v)) {
        return 0;
    }
    const char *s = json_string_value(v);
    if (!s || json_string_length(v) >= room || strlen(s) != json_string_length(v)) {
        return err_set(err, ERR_INVALID, "result: %s: must be a string of at most %zu bytes", name,
                       room - 1);
    }
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int get_stream(const json_t *obj, const char *name, struct stream_result *s, struct err *err)
{
    const json_t *v = json_object_get(obj, name);
    int64_t total = 0;
    int rc = v ? get_int(v, "total_bytes", &total, err) : 0;
    if (rc == 0 && total < 0) {
        return err_set(err, ERR_INVALID, "result: %s.total_bytes: out of range", name);
    }
    s->total_bytes = (uint64_t)total;
    s->truncated = json_is_true(json_object_get(v, "truncated"));
    return rc < 0 || !v ? rc : get_int(v, "cut_bytes", &s->cut_bytes, err);
}

static int get_run(const json_t *root, const char *name, struct run_result *r, struct err *err)
{
    const json_t *v = json_object_get(root, name);
    if (!v || json_is_null(v)) {
        return 0;
    }
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "result: %s: must be an object", name);
    }
    r->present = true;
    r->warm = json_is_true(json_object_get(v, "warm"));
    int rc = get_small(v, "exit_code", &r->exit_code, err);
    rc = rc < 0 ? rc : get_small(v, "signal", &r->signal, err);
    rc = rc < 0 ? rc : get_numbers(v, r, run_numbers, N_RUN_NUMBERS, err);
    rc = rc < 0 ? rc : get_text(v, "exec_error", r->exec_error, sizeof r->exec_error, err);
    rc = rc < 0 ? rc : get_stream(v, "stdout", &r->out, err);
    return rc < 0 ? rc : get_stream(v, "stderr", &r->err_out, err);
}

static int get_compare(const json_t *root, struct job_result *r, struct err *err)
{
    const json_t *v = json_object_get(root, "compare");
    if (!v || json_is_null(v)) {
        return 0;
    }
    for (int m = COMPARE_EXACT; json_is_string(v) && m < COMPARE_COUNT; m++) {
        if (strcmp(json_string_value(v), compare_word((enum compare_mode)m)) == 0) {
            r->compare = (enum compare_mode)m;
            r->compared = true;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "result: compare: unknown word");
}

static int get_extras(const json_t *root, struct job_result *r, struct err *err)
{
    const json_t *tree = json_object_get(root, "tree"), *list = json_object_get(root, "warnings");
    int rc = get_small(root, "setup_steps", &r->setup_steps, err);
    rc = rc < 0 ? rc : get_small(root, "setup_failed", &r->setup_failed, err);
    for (size_t i = 0; rc == 0 && tree && i < N_TREE_NUMBERS; i++) {
        rc = get_small(tree, tree_numbers[i].name,
                       (int *)(void *)((char *)&r->tree + tree_numbers[i].offset), err);
    }
    const json_t *artifacts = json_object_get(root, "artifacts");
    r->artifacts.truncated = json_is_true(json_object_get(artifacts, "truncated"));
    if (rc == 0) {
        rc = get_numbers(artifacts, &r->artifacts, artifact_numbers, N_ARTIFACT_NUMBERS, err);
    }
    const json_t *checker = json_object_get(root, "checker");
    if (rc == 0 && json_is_object(checker)) {
        r->checker.present = true;
        rc = get_numbers(checker, &r->checker, checker_numbers, N_CHECKER_NUMBERS, err);
        rc = rc < 0
                 ? rc
                 : get_text(checker, "message", r->checker.message, sizeof r->checker.message, err);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(list) && i < JOB_WARNINGS_MAX; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (!s) {
            return err_set(err, ERR_INVALID, "result: warnings: must be strings");
        }
        job_result_warn(r, "%s", s);
    }
    return rc;
}

static int get_all(const json_t *root, struct job_result *r, struct err *err)
{
    char word[32] = "none";
    int rc = get_text(root, "verdict", word, sizeof word, err);
    int verdict = verdict_parse(word);
    if (rc == 0 && verdict < 0) {
        return err_set(err, ERR_INVALID, "result: verdict: unknown word");
    }
    r->verdict = verdict < 0 ? VERDICT_NONE : (enum verdict)verdict;
    const json_t *limit = json_object_get(root, "limit"), *limits = json_object_get(root, "limits");
    rc = rc < 0 ? rc : get_text(root, "reason", r->reason, sizeof r->reason, err);
    rc = rc < 0 ? rc : get_text(limit, "name", r->limit_name, sizeof r->limit_name, err);
    rc = rc < 0 ? rc : get_int(limit, "value", &r->limit_value, err);
    rc = rc < 0 ? rc : get_int(limit, "used", &r->limit_used, err);
    rc = rc < 0 ? rc : get_run(root, "setup", &r->setup, err);
    rc = rc < 0 ? rc : get_run(root, "run", &r->run, err);
    rc = rc < 0 ? rc : get_numbers(limits, &r->limits, limit_numbers, LIMIT_COUNT, err);
    rc = rc < 0 ? rc : get_compare(root, r, err);
    rc = rc < 0 ? rc : get_text(root, "engine", r->engine, sizeof r->engine, err);
    rc = rc < 0 ? rc : get_text(root, "snapshot", r->snapshot, sizeof r->snapshot, err);
    rc = rc < 0 ? rc : get_text(root, "worker", r->worker, sizeof r->worker, err);
    rc = rc < 0 ? rc : get_small(root, "vcpus", &r->vcpus, err);
    rc = rc < 0 ? rc : get_small(root, "memory_mib", &r->memory_mib, err);
    rc = rc < 0 ? rc : get_numbers(root, r, result_numbers, N_RESULT_NUMBERS, err);
    return rc < 0 ? rc : get_extras(root, r, err);
}

int job_result_parse_detail(const char *json, size_t len, struct job_result *ret_r, struct err *err)
{
    cleanup_json json_t *root = NULL;
    int rc = jr_load(json, len, &root, err);
    if (rc < 0) {
        return err_prefix(err, "result");
    }
    if (!json_is_object(root)) {
        return err_set(err, ERR_INVALID, "result: must be an object");
    }
    struct job_result r;
    job_result_init(&r);
    if ((rc = get_all(root, &r, err)) < 0) {
        job_result_done(&r);
        return rc;
    }
    *ret_r = r;
    return 0;
}
