#include "worker/node_run.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/judge.h"
#include "worker/node_artifacts.h"

#define STEPS_MAX (JOB_SETUP_STEPS_MAX + 1)

/* The job as this node has it: what it inherits and what is its own, in the fields that session and
 * judge read. Borrows everything. */
static struct job_spec view_of(const struct node_job *j)
{
    const struct tree_node *n = j->node;
    struct job_spec v = *j->spec;
    v.files = (struct job_file *)(uintptr_t)n->files;
    v.n_files = n->n_files;
    v.command = n->command;
    v.env = n->env;
    v.n_env = n->n_env;
    v.stdin_data = n->stdin_data ? *n->stdin_data : (struct bytes){ 0 };
    v.expect = n->expect ? *n->expect : (struct job_expect){ 0 };
    v.has_expect = n->has_expect;
    return v;
}

static bool runs_on_fork(const struct node_job *j)
{
    return j->node->index > 0 && j->spec->on_fork.argc > 0 && !j->resume;
}

static int steps_of(const struct node_job *j, const struct job_command *steps[STEPS_MAX])
{
    const struct tree_node *n = j->node;
    int count = 0;
    assert(n->n_setup <= JOB_SETUP_STEPS_MAX);
    if (runs_on_fork(j)) {
        steps[count++] = &j->spec->on_fork;
    }
    for (int i = 0; i < n->n_setup; i++) {
        steps[count++] = &n->setup[i];
    }
    return count;
}

static void take_artifacts(const struct node_job *j, struct artifact_set *set, struct job_result *r)
{
    struct err err = { 0 };
    const struct tree_node *n = j->node;
    if (!n->leaf || j->session->state != SESSION_EXITED) {
        return; /* nothing ran to its end here: there is no one to ask */
    }
    if (node_artifacts_take(j->session, j->lease->channel_fd, j->abort_fd, n->artifacts,
                            n->n_artifacts, j->shared->config->home, set, &err) < 0) {
        log_warn("artifacts not taken", "node", n->path, "error", err.text);
        job_result_warn(r, "artifacts: not all were taken: %.180s", err.text);
    }
}

/* A leaf whose state is to be kept. */
static enum node_outcome settle_leaf(const struct node_job *j, const struct session_job *job,
                                     struct job_result *r)
{
    struct err err = { 0 };
    const char *name = j->node->keep->name;
    if (r->verdict != VERDICT_ACCEPTED) {
        job_result_warn(r, "keep: %.64s is not kept: the verdict is %s", name,
                        verdict_word(r->verdict));
        return NODE_JUDGED;
    }
    if (j->session->state == SESSION_EXITED && session_settle(j->session, job, &err) < 0) {
        job_result_warn(r, "keep: %.64s is not kept: %.150s", name, err.text);
        return NODE_JUDGED;
    }
    return NODE_TO_KEEP;
}

int node_run(const struct node_job *j, struct job_result *r, struct artifact_set *ret_artifacts,
             enum node_outcome *ret_outcome, struct err *err)
{
    const struct job_command *steps[STEPS_MAX];
    struct job_spec view = view_of(j);
    struct run_facts setup = { .stop = STOP_NONE }, main_run = { .stop = STOP_NONE };
    struct run_result before = { .present = false };
    bool asked = !j->archive || !j->archive->refused[0];
    artifacts_init(ret_artifacts);
    r->limits = view.command.limits;
    struct session_job job = { .channel_fd = j->lease->channel_fd,
                               .cpu_fd = j->lease->cpu_fd,
                               .abort_fd = j->abort_fd,
                               .vcpus = j->lease->vcpus,
                               .memory_mib = j->lease->memory_mib,
                               .spec = &view,
                               .steps = steps,
                               .n_steps = steps_of(j, steps),
                               .n_first = runs_on_fork(j),
                               .keep = j->spec->tree->n > 1 || j->node->keep != NULL,
                               .last = !j->cell && j->node->leaf && !j->node->keep,
                               .settle = view.command.argc == 0 || !j->node->leaf,
                               .cell = j->cell,
                               .resume = j->resume,
                               .lease_start_us = j->lease_start_us,
                               .live = j->live,
                               .times = &session_times_default };
    int rc = 0;
    if (!asked) { /* session is as an earlier job left it */
        memcpy(main_run.refused, j->archive->refused, sizeof main_run.refused);
    } else {
        job.more_files = j->archive ? j->archive->files : NULL;
        job.n_more_files = j->archive ? j->archive->n : 0;
        rc = session_run(j->session, &job, r, &before, &setup, &main_run, err);
        if (rc == 0) {
            take_artifacts(j, ret_artifacts, r);
        }
    }
    if (j->archive) {
        job_unpacked_done(j->archive);
    }
    if (rc == 0) {
        int last =
            asked && j->session->failed_step >= 0 ? j->session->failed_step : job.n_steps - 1;
        if (last >= 0) {
            view.setup = *steps[last];
        }
        judge(&view, &setup, &main_run, r);
        bool settled = r->verdict == VERDICT_NONE;
        if (settled && j->node->leaf) {
            r->verdict = VERDICT_ACCEPTED; /* a leaf that only sets up */
        }
        *ret_outcome = settled && !j->node->leaf ? NODE_SETTLED : NODE_JUDGED;
        if (j->node->leaf && j->node->keep) {
            *ret_outcome = settle_leaf(j, &job, r);
        }
    }
    run_result_join(&before, &r->setup);
    r->setup = before;
    return rc;
}

void node_store(const struct node_job *j, const char *job_id, struct artifact_set *set,
                struct manifest *ret_artifacts)
{
    struct err err = { 0 };
    if (node_artifacts_store(set, j->shared->puts, j->shared->pending, job_id, ret_artifacts,
                             &err) < 0) {
        log_warn("artifacts not stored", "job", job_id, "error", err.text);
    }
    artifacts_done(set);
}

bool node_keep(const struct node_job *j, struct pool_client *pool, const struct claim *claim,
               const struct snapshot_row *from, struct job_result *r, struct snapshot_row *ret_row)
{
    struct err err = { 0 };
    struct kept_ask ask = { .tenant = claim->tenant,
                            .job_id = claim->job_id,
                            .attempt = claim->attempt,
                            .node = j->node->index,
                            .keep = j->node->keep,
                            .from = from };
    int rc = kept_store(j->shared->kept, pool, j->lease, j->abort_fd, &ask, ret_row, &err);
    if (rc < 0) {
        job_result_warn(r, "keep: %.64s is not kept: %.150s", j->node->keep->name, err.text);
        log_warn("state not kept", "job", claim->job_id, "name", j->node->keep->name, "error",
                 err.text);
    }
    return rc == 0;
}

void node_sandbox(const struct node_job *j, int64_t leased_us, int64_t end_us, struct job_result *r)
{
    const struct lease *lease = j->lease;
    (void)snprintf(r->engine, sizeof r->engine, "%s", lease->engine);
    (void)snprintf(r->snapshot, sizeof r->snapshot, "%s", lease->snapshot);
    (void)snprintf(r->worker, sizeof r->worker, "%s", j->shared->name);
    r->vcpus = lease->vcpus;
    r->memory_mib = lease->memory_mib;
    r->measured_ms = (end_us - leased_us + 999) / 1000;
    r->ended_wall_ms =
        r->leased_wall_ms + r->measured_ms; /* the interval's length is the monotonic clock's */
}
