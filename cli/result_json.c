#include "cli/result_json.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

static void put_stream(json_t *obj, const char *name, const struct stream_result *s)
{
    char key[64];
    (void)json_put_bytes(obj, name, s->head.data ? s->head.data : "", s->head.len);
    (void)snprintf(key, sizeof key, "%s_bytes", name);
    (void)json_object_set_new(obj, key, json_integer((json_int_t)s->total_bytes));
    (void)snprintf(key, sizeof key, "%s_truncated", name);
    (void)json_object_set_new(obj, key, json_boolean(s->truncated));
    if (s->cut_bytes) {
        (void)snprintf(key, sizeof key, "%s_cut_bytes", name);
        (void)json_object_set_new(obj, key, json_integer(s->cut_bytes));
    }
    if (s->truncated || s->cut_bytes) {
        (void)snprintf(key, sizeof key, "%s_tail", name);
        (void)json_put_bytes(obj, key, s->tail.data ? s->tail.data : "", s->tail.len);
    }
}

static void put_run(json_t *obj, const struct run_result *r)
{
    (void)json_object_set_new(obj, "exit_code",
                              r->exit_code >= 0 ? json_integer(r->exit_code) : json_null());
    (void)json_object_set_new(obj, "signal", r->signal ? json_integer(r->signal) : json_null());
    (void)json_object_set_new(obj, "cpu_us", json_integer(r->cpu_us));
    (void)json_object_set_new(obj, "wall_us", json_integer(r->wall_us));
    (void)json_object_set_new(obj, "host_wait_us", json_integer(r->host_wait_us));
    (void)json_object_set_new(obj, "memory_peak_bytes", json_integer(r->memory_peak_bytes));
    (void)json_object_set_new(obj, "disk_used_bytes", json_integer(r->disk_used_bytes));
    (void)json_object_set_new(obj, "oom_kills", json_integer(r->oom_kills));
    (void)json_object_set_new(obj, "process_refusals", json_integer(r->process_refusals));
    (void)json_object_set_new(obj, "disk_refusals", json_integer(r->disk_refusals));
    (void)json_object_set_new(obj, "open_file_refusals", json_integer(r->open_file_refusals));
    (void)json_object_set_new(obj, "leftover_processes", json_integer(r->leftover_processes));
    if (r->exec_error[0]) {
        (void)json_object_set_new(obj, "exec_error", json_string(r->exec_error));
    }
    put_stream(obj, "stdout", &r->out);
    put_stream(obj, "stderr", &r->err_out);
}

static json_t *time_text(int64_t ms)
{
    char text[CLOCK_TEXT_MAX];
    if (ms < 0) {
        return json_null();
    }
    clock_format_ms(ms, text);
    return json_string(text);
}

static json_t *limits_json(const struct job_limits *l)
{
    json_t *obj = json_object();
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    (void)json_object_set_new(obj, json, json_integer(l->field));
#include "common/model/limits.def"
#undef JOB_LIMIT
    return obj;
}

static json_t *warnings_json(const struct job_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_warnings; i++) {
        (void)json_array_append_new(list, json_string(r->warnings[i]));
    }
    return list;
}

/* What only some jobs have. */
static void put_extras(json_t *obj, const struct job_result *r)
{
    if (r->setup_steps > 1) {
        (void)json_object_set_new(obj, "setup_steps", json_integer(r->setup_steps));
        (void)json_object_set_new(
            obj, "setup_failed", r->setup_failed < 0 ? json_null() : json_integer(r->setup_failed));
    }
    if (r->tree.nodes > 0) {
        const struct result_tree *t = &r->tree;
        (void)json_object_set_new(
            obj, "tree",
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "nodes", t->nodes, "leaves",
                      t->leaves, "accepted", t->accepted, "failed", t->failed, "skipped",
                      t->skipped, "cancelled", t->cancelled, "score_micro", t->score_micro,
                      "first_failed",
                      t->first_failed < 0 ? json_null() : json_integer(t->first_failed)));
    }
    if (r->n_warnings > 0) {
        (void)json_object_set_new(obj, "warnings", warnings_json(r));
    }
}

static void put_result(json_t *obj, const struct job_result *r)
{
    (void)json_object_set_new(obj, "reason", json_string(r->reason));
    json_t *limit = r->limit_name[0]
                        ? json_pack("{s:s, s:I, s:I}", "name", r->limit_name, "value",
                                    (json_int_t)r->limit_value, "used", (json_int_t)r->limit_used)
                        : json_null();
    (void)json_object_set_new(obj, "limit", limit);
    (void)json_object_set_new(obj, "compare",
                              r->compared ? json_string(compare_word(r->compare)) : json_null());
    if (r->checker.present) {
        const struct result_checker *c = &r->checker;
        (void)json_object_set_new(
            obj, "checker",
            json_pack("{s:o, s:o, s:I, s:I, s:s}", "exit_code",
                      c->exit_code >= 0 ? json_integer(c->exit_code) : json_null(), "signal",
                      c->signal ? json_integer(c->signal) : json_null(), "cpu_us",
                      (json_int_t)c->cpu_us, "wall_us", (json_int_t)c->wall_us, "message",
                      c->message));
    }
    put_run(obj, &r->run);
    json_t *setup = json_null();
    if (r->setup.present) {
        setup = json_object();
        put_run(setup, &r->setup);
    }
    (void)json_object_set_new(obj, "setup", setup);
    (void)json_object_set_new(obj, "limits", limits_json(&r->limits));
    (void)json_object_set_new(obj, "engine", json_string(r->engine));
    (void)json_object_set_new(obj, "snapshot", json_string(r->snapshot));
    (void)json_object_set_new(obj, "worker", json_string(r->worker));
    (void)json_object_set_new(obj, "vcpus", json_integer(r->vcpus));
    (void)json_object_set_new(obj, "memory_mib", json_integer(r->memory_mib));
    put_extras(obj, r);
}

json_t *result_to_json(const struct result_row *row)
{
    json_t *obj = json_object();
    (void)json_object_set_new(obj, "job", json_string(row->job_id));
    (void)json_object_set_new(obj, "name", row->name ? json_string(row->name) : json_null());
    (void)json_object_set_new(obj, "seq", json_integer(row->seq));
    (void)json_object_set_new(obj, "template", json_string(row->template_name));
    (void)json_object_set_new(obj, "state", json_string(job_state_word(row->state)));
    (void)json_object_set_new(obj, "verdict",
                              row->has_result ? json_string(verdict_word(row->result.verdict))
                                              : json_null());
    (void)json_object_set_new(obj, "attempt", json_integer(row->attempt));
    if (row->has_result) {
        put_result(obj, &row->result);
    }
    json_t *labels = row->labels ? json_loads(row->labels, 0, NULL) : NULL;
    (void)json_object_set_new(obj, "labels", labels ? labels : json_object());
    (void)json_object_set_new(obj, "submitted_at", time_text(row->submitted_ms));
    (void)json_object_set_new(obj, "finished_at", time_text(row->finished_ms));
    (void)json_object_set_new(obj, "cost_nanousd", json_integer(row->cost_nanousd));
    (void)json_object_set_new(obj, "measured_ms", json_integer(row->measured_ms));
    (void)json_object_set_new(obj, "charged_ms", json_integer(row->charged_ms));
    json_t *tries = row->tries ? json_loads(row->tries, 0, NULL) : NULL;
    if (tries) {
        (void)json_object_set_new(obj, "tries", tries);
    }
    if (row->last_error) {
        (void)json_object_set_new(obj, "last_error", json_string(row->last_error));
    }
    return obj;
}

json_t *branch_to_json(const struct branch_result *b)
{
    const struct job_result *r = &b->result;
    json_t *obj = json_object();
    (void)json_object_set_new(obj, "node", json_integer(b->node));
    (void)json_object_set_new(obj, "parent", json_integer(b->parent));
    (void)json_object_set_new(obj, "path", json_string(b->path));
    (void)json_object_set_new(obj, "name", json_string(b->name_path));
    (void)json_object_set_new(obj, "leaf", json_boolean(b->leaf));
    (void)json_object_set_new(obj, "verdict", json_string(verdict_word(r->verdict)));
    (void)json_object_set_new(obj, "score_micro", json_integer(b->score_micro));
    (void)json_object_set_new(obj, "weight", json_integer(b->weight));
    (void)json_object_set_new(obj, "tries", json_integer(b->tries));
    put_result(obj, r);
    (void)json_object_set_new(obj, "measured_ms", json_integer(r->measured_ms));
    return obj;
}

bool result_expected(const struct result_row *row, char *out, size_t room)
{
    json_t *labels = row->labels ? json_loads(row->labels, 0, NULL) : NULL;
    const char *want = json_string_value(json_object_get(labels, "expected_verdict"));
    if (want) {
        (void)snprintf(out, room, "%s", want);
    }
    json_decref(labels);
    return want != NULL;
}

bool verdict_in(const char *alternatives, enum verdict verdict)
{
    const char *word = verdict_word(verdict);
    size_t n = strlen(word);
    for (const char *p = alternatives; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, word, n) == 0 && (p[n] == 0 || p[n] == '|')) {
            return true;
        }
        if (!*p) {
            break;
        }
    }
    return false;
}
