#include "worker/shared_run.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/checker.h"
#include "worker/node_run.h"

static struct hot_key key_of(const struct job_spec *spec, const struct claim *claim)
{
    struct hot_key k = { .tenant = "" };
    (void)snprintf(k.tenant, sizeof k.tenant, "%s", claim->tenant);
    (void)snprintf(k.batch, sizeof k.batch, "%s", claim->batch);
    (void)snprintf(k.template_name, sizeof k.template_name, "%s", spec->template_name);
    return k;
}

/* Whether the next job's container should have a warm interpreter in it. */
static bool wants_spare(const struct job_spec *spec)
{
    return spec->tree->nodes[0].n_setup == 0 && spec->command.argc > 0 &&
           strncmp(spec->command.argv[0], "python", 6) == 0;
}

static struct session_job cell_job(const struct slot *s, const struct hot *h)
{
    return (struct session_job){ .channel_fd = h->lease.channel_fd,
                                 .cpu_fd = -1, /* nothing is measured */
                                 .abort_fd = s->abort_fd,
                                 .vcpus = h->lease.vcpus,
                                 .resume = h->ready,
                                 .cell = true,
                                 .times = &session_times_default };
}

/* A container in h, which may have been asked for when the job before had ended. */
static int make_ready(struct slot *s, struct hot *h, struct err *err)
{
    struct session_job job = cell_job(s, h);
    int rc = session_cell(&h->session, &job, h->spare, err);
    h->ready = true;
    if (rc == 0 && h->session.trouble[0]) {
        rc = err_set(err, ERR_PROTOCOL, "%s", h->session.trouble);
    }
    return rc;
}

/* A machine with a container for the job. One that was parked and is no more what it was (it died,
 * or found traces of the job before) is not this job's fault: another is leased. */
static int machine(struct slot *s, struct job_spec *spec, bool saturated, lease_fn *lease,
                   struct commit_entry *e, struct hot **ret_hot, struct err *err)
{
    struct hot_key key = key_of(spec, &e->claim);
    struct hot *h = key.batch[0] ? hot_take(s->shared->park, &key) : NULL;
    if (h) {
        struct err why = { 0 };
        int rc = make_ready(s, h, &why);
        if (rc == 0) {
            *ret_hot = h;
            return 0;
        }
        hot_drop(h);
        if (rc == -ERR_STALE) {
            *err = why;
            return rc;
        }
        log_warn("a shared machine is replaced", "reason", why.text);
    }
    int rc = hot_new(s->shared->config, &key, &h, err);
    if (rc < 0) {
        return rc;
    }
    h->spare = wants_spare(spec);
    rc = lease(s, &h->pool, spec->template_name, NULL, saturated, &h->lease, err);
    if (rc < 0) {
        e->cause = err_retryable(-rc) || rc == -ERR_STALE ? RETRY_NO_SANDBOX : RETRY_BROKEN;
    }
    h->leased = rc == 0;
    rc = rc < 0 ? rc : make_ready(s, h, err);
    if (rc < 0) {
        hot_drop(h);
        return rc;
    }
    *ret_hot = h;
    return 0;
}

/* Back to the park, or its end. */
static void leave(struct slot *s, struct hot *h, const struct job_result *r)
{
    struct err err = { 0 };
    h->runs++;
    if (!r || !hot_may_stay(s->shared->config, h, r, mono_us()) ||
        atomic_load(&s->shared->stopping)) {
        hot_drop(h);
        return;
    }
    h->spare = r->run.present && r->run.warm;
    struct session_job job = cell_job(s, h);
    if (session_cell_ask(&h->session, &job, h->spare, &err) < 0) {
        hot_drop(h);
        return;
    }
    hot_put(s->shared->park, h);
}

int shared_run(struct slot *s, struct job_spec *spec, bool saturated, lease_fn *lease,
               struct commit_entry *e, int64_t *ret_ready_us, int64_t *ret_end_us,
               struct session_trace *ret_trace, struct err *err)
{
    assert(spec->isolation == ISOLATION_SHARED && spec->tree->n == 1);
    struct job_result *r = &e->result;
    struct hot *h = NULL;
    int64_t start_us = mono_us();
    int rc = machine(s, spec, saturated, lease, e, &h, err);
    if (rc < 0) {
        return rc;
    }
    *ret_ready_us = mono_us();
    r->leased_wall_ms = wall_ms();
    r->lease_us = *ret_ready_us - start_us;
    struct template_info info = { .memory_mib = h->lease.memory_mib, .vcpus = h->lease.vcpus };
    job_clamp_to_template(spec, &info);
    struct live live;
    live_start(&live, spec->stream ? s->shared->publisher : NULL, e->claim.job_id, 0);
    struct node_job job = { .shared = s->shared,
                            .spec = spec,
                            .node = &spec->tree->nodes[0],
                            .session = &h->session,
                            .lease = &h->lease,
                            .abort_fd = s->abort_fd,
                            .lease_start_us = start_us,
                            .live = spec->stream ? &live : NULL,
                            .archive = &s->archive,
                            .resume = true,
                            .cell = true };
    struct artifact_set set;
    enum node_outcome outcome;
    rc = node_run(&job, r, &set, &outcome, err);
    *ret_end_us = mono_us();
    *ret_trace = h->session.trace;
    node_sandbox(&job, *ret_ready_us, *ret_end_us, r);
    leave(s, h, rc == 0 ? r : NULL);
    live_end(&live);
    if (rc == 0 && checker_wanted(job.node, r)) {
        job.session = &s->session; /* a machine of its own; the shared one may be another slot's */
        job.lease = NULL;
        rc = checker_run(&job, &s->pool, r, err);
    }
    node_store(&job, e->claim.job_id, &set, &e->artifacts);
    job_result_take_manifest(r, &e->artifacts);
    return rc;
}
