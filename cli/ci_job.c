#include "cli/ci_job.h"

#include <stdlib.h>
#include <string.h>

#include "common/report/shard.h"

/* In the sandbox. No XML_OUTPUT_FILE: programs that run one after the other in a shard would write
 * over each other's. */
#define STATUS_FILE "/tmp/brood-shard-status"
#define TMP_DIR "/tmp"

void ci_shard_label(unsigned shard, unsigned shards, char out[CI_LABEL_MAX])
{
    (void)snprintf(out, CI_LABEL_MAX, "%u/%u", shard + 1, shards);
}

int ci_shard_of_node(const struct ci_deal *deal, int node)
{
    int shard = deal->shards == 1 ? node : node - 1;
    return shard >= 0 && shard < (int)deal->shards ? shard : -1;
}

/* A JSON string, or an error that says what is not UTF-8. */
static int put_string(json_t *list, const char *text, const char *what, struct err *err)
{
    return json_array_append_new(list, json_string(text)) == 0
               ? 0
               : err_set(err, ERR_INVALID, "%s: must be UTF-8", what);
}

static json_t *limits_of(const json_t *given)
{
    json_t *limits = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    json_t *defaults = json_pack("{s:i, s:i}", "cpu_ms", CI_CPU_MS_DEFAULT, "output_bytes",
                                 CI_OUTPUT_BYTES_DEFAULT);
    (void)json_object_update_missing(limits, defaults);
    json_decref(defaults);
    return limits;
}

int ci_put_setup(const struct brood_json *plan, json_t *job, struct err *err)
{
    if (plan->setup.n == 0) {
        return 0;
    }
    json_t *steps = json_array();
    (void)json_object_set_new(job, "setup", steps);
    for (int i = 0; i < plan->setup.n; i++) {
        json_t *line = json_string(plan->setup.items[i]);
        if (!line) {
            return err_set(err, ERR_INVALID, "setup[%d]: must be UTF-8", i);
        }
        (void)json_array_append_new(steps, json_pack("{s:o, s:o}", "command", line, "limits",
                                                     limits_of(plan->setup_limits)));
    }
    return 0;
}

/* Report globs and artifact globs, each once. */
static int put_artifacts(const struct brood_json *plan, json_t *job, struct err *err)
{
    const struct string_list *const lists[] = { &plan->reports, &plan->artifacts };
    json_t *globs = json_array(), *seen = json_object();
    int rc = 0;
    for (size_t l = 0; l < 2; l++) {
        for (int i = 0; rc == 0 && i < lists[l]->n; i++) {
            const char *glob = lists[l]->items[i];
            if (json_object_get(seen, glob)) {
                continue;
            }
            (void)json_object_set_new(seen, glob, json_true());
            rc = put_string(globs, glob, l ? "artifacts" : "reports", err);
        }
    }
    json_decref(seen);
    if (json_array_size(globs) > 0) {
        (void)json_object_set(job, "artifacts", globs);
    }
    json_decref(globs);
    return rc;
}

/* command, args and env of one shard into o. */
static int put_shard(const struct brood_json *plan, const struct ci_deal *deal, unsigned shard,
                     json_t *o, struct err *err)
{
    struct shard_where where = {
        .index = shard, .total = deal->shards, .status_file = STATUS_FILE, .tmp_dir = TMP_DIR
    };
    struct shard_var vars[SHARD_VARS_MAX];
    int n = shard_env(&where, vars, err), rc = 0;
    if (n < 0) {
        return n;
    }
    /* Branches inherit the root's. */
    json_t *env = plan->env && deal->shards == 1 ? json_copy(plan->env) : json_object();
    for (int i = 0; i < n; i++) {
        (void)json_object_set_new(env, vars[i].name, json_string(vars[i].value));
    }
    (void)json_object_set_new(o, "env", env);

    json_t *command = json_array(), *args = json_array();
    (void)json_object_set_new(o, "args", args);
    for (int i = 0; rc >= 0 && i < plan->test.n; i++) {
        cleanup_buf struct buf word = { 0 };
        buf_init(&word, 4 * BROOD_JSON_LINE_BYTES_MAX);
        rc = shard_expand(&where, plan->test.items[i], &word, err);
        rc = rc < 0 ? rc : put_string(command, word.data ? word.data : "", "test", err);
    }
    for (size_t i = 0; rc >= 0 && i < deal->n; i++) {
        rc = deal->shard[i] != shard ? rc : put_string(args, deal->files[i], "test_files", err);
    }
    (void)json_object_set(o, "command", plan->test_is_shell ? json_array_get(command, 0) : command);
    json_decref(command);
    return rc < 0 ? rc : 0;
}

static int put_shards(const struct brood_json *plan, const struct ci_deal *deal, json_t *job,
                      struct err *err)
{
    if (deal->shards == 1) {
        return put_shard(plan, deal, 0, job, err);
    }
    json_t *branches = json_array();
    (void)json_object_set_new(job, "branches", branches);
    (void)json_object_set_new(job, "stop", json_string("all"));
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < deal->shards; i++) {
        char name[CI_LABEL_MAX + 8];
        json_t *branch = json_object();
        /* Names of branches hold no slash. */
        (void)snprintf(name, sizeof name, "%u-of-%u", i + 1, deal->shards);
        (void)json_object_set_new(branch, "name", json_string(name));
        (void)json_array_append_new(branches, branch);
        rc = put_shard(plan, deal, i, branch, err);
    }
    return rc;
}

int ci_job_parse(const json_t *job, struct job_spec **ret_spec, struct err *err)
{
    cleanup_free char *text = json_dumps(job, JSON_COMPACT);
    return text ? job_parse(text, strlen(text), ret_spec, err)
                : err_set(err, ERR_INVALID, "the job is not UTF-8");
}

int ci_job_make(const struct brood_json *plan, const char *object, const struct ci_deal *deal,
                struct job_spec **ret_spec, struct err *err)
{
    json_t *job = json_object(), *template = json_string(plan->template_name);
    int rc = template ? 0 : err_set(err, ERR_INVALID, "template: must be UTF-8");
    (void)json_object_set_new(job, "template", template);
    (void)json_object_set_new(job, "name", json_string("ci"));
    (void)json_object_set_new(job, "archive",
                              json_pack("{s:s, s:s}", "format", "tar.zst", "object", object));
    (void)json_object_set_new(job, "limits", limits_of(plan->limits));
    (void)json_object_set_new(job, "stream", json_true());
    if (plan->env && deal->shards > 1) { /* of one shard: with its own, below */
        (void)json_object_set(job, "env", plan->env);
    }
    rc = rc < 0 ? rc : ci_put_setup(plan, job, err);
    rc = rc < 0 ? rc : put_artifacts(plan, job, err);
    rc = rc < 0 ? rc : put_shards(plan, deal, job, err);
    if (rc == 0) {
        rc = ci_job_parse(job, ret_spec, err);
    }
    json_decref(job);
    return rc;
}
