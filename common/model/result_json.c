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

#include "common/base/buf.h"
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

/* Written as it goes, not built as a tree and dumped: that took 16 us a result, more than all else
 * that a worker does for a short job. The bytes are those that jansson would write
 * (JSON_COMPACT | JSON_ENSURE_ASCII); a test compares. */
#define DETAIL_MAX (16u << 20)
#define DETAIL_USUAL_BYTES 1000 /* what a plain job's takes, and some room */

static void raw(struct buf *b, const char *s, size_t n)
{
    if (buf_add(b, s, n, NULL) < 0) {
        abort(); /* every text in a result has a maximum, and there are JOB_WARNINGS_MAX at most */
    }
}

/* Of an object's member, or of an array's element (name NULL): what comes before its value. */
static void begin(struct buf *b, const char *name)
{
    char last = b->len > 0 ? b->data[b->len - 1] : '{';
    if (last != '{' && last != '[') {
        raw(b, ",", 1);
    }
    if (name) { /* our own: nothing in it to escape */
        raw(b, "\"", 1);
        raw(b, name, strlen(name));
        raw(b, "\":", 2);
    }
}

static void put_word(struct buf *b, const char *name, const char *word)
{
    begin(b, name);
    raw(b, word, strlen(word));
}

static void put_bool(struct buf *b, const char *name, bool value)
{
    put_word(b, name, value ? "true" : "false");
}

static void put_int(struct buf *b, const char *name, int64_t value)
{
    begin(b, name);
    if (buf_add_int(b, value, NULL) < 0) {
        abort(); /* as in raw() */
    }
}

static void put_int_or_null(struct buf *b, const char *name, bool is_null, int64_t value)
{
    if (is_null) {
        put_word(b, name, "null");
    } else {
        put_int(b, name, value);
    }
}

static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] < 0x20 || s[i] > 0x7e || s[i] == '"' || s[i] == '\\') {
            return false;
        }
    }
    return true;
}

/* What is no UTF-8 becomes question marks. */
static char *escaped(const char *s)
{
    cleanup_json json_t *v = json_string(s);
    if (!v) {
        cleanup_free char *copy = jr_dup(s, strlen(s));
        for (char *p = copy; *p; p++) {
            if ((unsigned char)*p >= 0x80) {
                *p = '?';
            }
        }
        v = json_string(copy);
    }
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    if (!text) {
        abort(); /* memory */
    }
    return text;
}

static void put_text(struct buf *b, const char *name, const char *s)
{
    size_t n = strlen(s);
    begin(b, name);
    if (is_plain(s, n)) {
        raw(b, "\"", 1);
        raw(b, s, n);
        raw(b, "\"", 1);
        return;
    }
    cleanup_free char *text = escaped(s);
    raw(b, text, strlen(text));
}

static void open_object(struct buf *b, const char *name)
{
    begin(b, name);
    raw(b, "{", 1);
}

static void close_object(struct buf *b)
{
    raw(b, "}", 1);
}

static void put_numbers(struct buf *b, const void *base, const struct number *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_int(b, rows[i].name,
                *(const int64_t *)(const void *)((const char *)base + rows[i].offset));
    }
}

static void put_stream(struct buf *b, const char *name, const struct stream_result *s)
{
    open_object(b, name);
    put_int(b, "total_bytes", s->total_bytes > INT64_MAX ? INT64_MAX : (int64_t)s->total_bytes);
    put_bool(b, "truncated", s->truncated);
    if (s->cut_bytes) {
        put_int(b, "cut_bytes", s->cut_bytes);
    }
    close_object(b);
}

static void put_run(struct buf *b, const char *name, const struct run_result *r)
{
    open_object(b, name);
    put_int_or_null(b, "exit_code", r->exit_code < 0, r->exit_code);
    put_int_or_null(b, "signal", r->signal == 0, r->signal);
    put_numbers(b, r, run_numbers, N_RUN_NUMBERS);
    put_bool(b, "warm", r->warm);
    if (r->exec_error[0]) {
        put_text(b, "exec_error", r->exec_error);
    }
    put_stream(b, "stdout", &r->out);
    put_stream(b, "stderr", &r->err_out);
    close_object(b);
}

/* What only jobs with branches, several setup steps, artifacts or warnings have. */
static void put_extras(struct buf *b, const struct job_result *r)
{
    if (r->setup_steps > 1) {
        put_int(b, "setup_steps", r->setup_steps);
        put_int_or_null(b, "setup_failed", r->setup_failed < 0, r->setup_failed);
    }
    if (r->tree.nodes > 0) {
        open_object(b, "tree");
        for (size_t i = 0; i < N_TREE_NUMBERS; i++) {
            put_int(b, tree_numbers[i].name,
                    *(const int *)(const void *)((const char *)&r->tree + tree_numbers[i].offset));
        }
        close_object(b);
    }
    if (r->checker.present) {
        open_object(b, "checker");
        put_numbers(b, &r->checker, checker_numbers, N_CHECKER_NUMBERS);
        put_text(b, "message", r->checker.message);
        close_object(b);
    }
    if (r->artifacts.listed > 0 || r->artifacts.truncated) {
        open_object(b, "artifacts");
        put_numbers(b, &r->artifacts, artifact_numbers, N_ARTIFACT_NUMBERS);
        if (r->artifacts.truncated) {
            put_bool(b, "truncated", true);
        }
        close_object(b);
    }
    if (r->n_warnings > 0) {
        begin(b, "warnings");
        raw(b, "[", 1);
        for (int i = 0; i < r->n_warnings; i++) {
            put_text(b, NULL, r->warnings[i]);
        }
        raw(b, "]", 1);
    }
}

char *job_result_detail(const struct job_result *r)
{
    struct buf out, *b = &out;
    buf_init(b, DETAIL_MAX);
    if (!buf_reserve(b, DETAIL_USUAL_BYTES, NULL)) {
        abort();
    }
    raw(b, "{", 1);
    put_text(b, "verdict", verdict_word(r->verdict));
    put_text(b, "reason", r->reason);
    if (r->limit_name[0]) {
        open_object(b, "limit");
        put_text(b, "name", r->limit_name);
        put_int(b, "value", r->limit_value);
        put_int(b, "used", r->limit_used);
        close_object(b);
    }
    if (r->setup.present) {
        put_run(b, "setup", &r->setup);
    }
    if (r->run.present) {
        put_run(b, "run", &r->run);
    }
    open_object(b, "limits");
    put_numbers(b, &r->limits, limit_numbers, LIMIT_COUNT);
    close_object(b);
    if (r->compared) {
        put_text(b, "compare", compare_word(r->compare));
    } else {
        put_word(b, "compare", "null");
    }
    put_text(b, "engine", r->engine);
    put_text(b, "snapshot", r->snapshot);
    put_text(b, "worker", r->worker);
    put_int(b, "vcpus", r->vcpus);
    put_int(b, "memory_mib", r->memory_mib);
    put_numbers(b, r, result_numbers, N_RESULT_NUMBERS);
    put_extras(b, r);
    close_object(b);
    return buf_take(b, NULL);
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
    if (json_object_set_new(obj, key, json_string(b64)) < 0) {
        abort(); /* memory */
    }
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
