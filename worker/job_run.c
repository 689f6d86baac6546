#include "worker/job_run.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret_key.h"
#include "common/model/secrets.h"
#include "worker/cancel.h"
#include "worker/checker.h"
#include "worker/claim_archive.h"
#include "worker/claim_spec.h"
#include "worker/node_run.h"
#include "worker/shared_run.h"
#include "worker/tree_exec.h"

#define LEASE_WAIT_MS 60000 /* vmpool answers sooner: with a sandbox or with why not */

#define AWAY_PATIENCE_MS 30000 /* ... or whose vmpool starts anew */
#define LEASE_AGAIN_MS 200

/* Moments on the monotonic clock, microseconds. */
struct moments {
    int64_t claimed_us, leased_us, released_us;
    const struct session_trace *trace; /* the session's, or the next */
    struct session_trace shared_trace;
};

static void log_done(const struct commit_entry *e, const struct moments *m)
{
    if (!log_wanted(LOG_DEBUG)) {
        return;
    }
    const struct session_trace *t = m->trace;
    const struct {
        const char *name;
        int64_t us;
    } steps[] = {
        { "lease", m->leased_us },          { "sent", t->sent_us },
        { "ready", t->ready_us },           { "started", t->started_us },
        { "first_byte", t->first_byte_us }, { "exit", t->exit_us },
        { "released", m->released_us },
    };
    char text[256];
    size_t n = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int64_t at = steps[i].us > 0 ? steps[i].us - m->claimed_us : -1;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s=%" PRId64, i ? " " : "",
                              steps[i].name, at);
        assert(n < sizeof text);
    }
    log_debug("job done", "job", e->claim.job_id, "verdict", verdict_word(e->result.verdict),
              "us_since_claim", text);
}

static void fail(struct commit_entry *e, const struct err *why)
{
    e->failed = true;
    (void)snprintf(e->reason, sizeof e->reason, "%s", why->text);
    if (why->code == ERR_STALE) {
        return; /* given up on purpose: whoever did it has told why */
    }
    log_warn("attempt failed", "job", e->claim.job_id, "reason", e->reason, "error",
             err_word(why->code));
}

/* Lease a sandbox. While the host is full, or vmpool does not answer at all, the claim is kept (and
 * renewed) for a while, unless the worker is to end or the claim is lost: no other job would fare
 * better. When vmpool answers that this template's sandboxes do not start, the slot is for the jobs
 * of other templates, and this one comes again later (retry.h). */
static int lease_patiently(struct slot *s, struct pool_client *pool, const char *template_name,
                           const struct snapshot_row *from, bool saturated, struct lease *ret_lease,
                           struct err *err)
{
    int64_t start_ms = mono_ms();
    bool told = false;
    for (;;) {
        int rc = from ? kept_lease(s->shared->kept, pool, from, saturated, s->abort_fd,
                                   LEASE_WAIT_MS, ret_lease, err)
                      : pool_lease(pool, template_name, saturated, s->abort_fd, LEASE_WAIT_MS,
                                   ret_lease, err);
        bool away =
            !pool->refused && (rc == -ERR_UNAVAILABLE || rc == -ERR_CLOSED || rc == -ERR_TIMEOUT);
        int64_t patience_ms = rc == -ERR_NO_CAPACITY ? POOL_FULL_PATIENCE_MS
                              : away                 ? AWAY_PATIENCE_MS
                                                     : 0;
        if (rc == 0 || mono_ms() - start_ms >= patience_ms || atomic_load(&s->shared->stopping)) {
            return rc;
        }
        hot_tidy(s->shared->park, true); /* what is only kept in case makes room */
        if (!told) {
            log_info("no sandbox now: the claim waits", "error", err->text);
        }
        told = true;
        struct pollfd p = { .fd = s->abort_fd, .events = POLLIN };
        (void)poll(&p, 1, LEASE_AGAIN_MS); /* when it is set, the next pool_lease says so */
    }
}

/* A plain job's machine, kept when the job says so. */
static void keep_leaf(struct slot *s, const struct node_job *job, enum node_outcome outcome,
                      const struct snapshot_row *from, struct commit_entry *e)
{
    struct snapshot_row row;
    struct err err = { 0 };
    if (outcome != NODE_TO_KEEP) {
        return;
    }
    if (pool_freeze(&s->pool, job->lease, s->abort_fd, LEASE_WAIT_MS, &err) < 0) {
        job_result_warn(&e->result, "keep: %.64s is not kept: %.150s", job->node->keep->name,
                        err.text);
    } else if (node_keep(job, &s->pool, &e->claim, from, &e->result, &row)) {
        commit_entry_keep(e, &row);
    }
}

/* The attempt failed, and none of the job's code has run. */
static int no_machine(const struct slot *s, struct commit_entry *e, int rc)
{
    bool may_pass = err_retryable(-rc) || rc == -ERR_STALE;
    e->cause = atomic_load(&s->shared->stopping) ? RETRY_GIVEN_BACK
               : may_pass                        ? RETRY_NO_SANDBOX
                                                 : RETRY_BROKEN;
    return rc;
}

/* From the lease to the verdict. */
static int run_leased(struct slot *s, struct job_spec *spec, bool saturated, struct commit_entry *e,
                      struct moments *m, struct err *err)
{
    struct job_result *r = &e->result;
    if (spec->isolation == ISOLATION_SHARED && spec->tree->n == 1) {
        m->trace = &m->shared_trace;
        return shared_run(s, spec, saturated, lease_patiently, e, &m->leased_us, &m->released_us,
                          &m->shared_trace, err);
    }
    struct lease lease;
    struct snapshot_row row;
    const struct snapshot_row *from = kept_is(spec->template_name) ? &row : NULL;
    int64_t lease_start_us = mono_us();
    int rc =
        from ? kept_resolve(s->shared->kept, e->claim.tenant, spec->template_name, &row, err) : 0;
    rc = rc < 0 ? rc
                : lease_patiently(s, &s->pool, spec->template_name, from, saturated, &lease, err);
    if (rc < 0) {
        return no_machine(s, e, rc);
    }
    if (from) {
        warm_used(s->shared->warm, e->claim.tenant, spec->template_name);
    }
    m->leased_us = mono_us();
    r->leased_wall_ms = wall_ms();
    r->lease_us = m->leased_us - lease_start_us;
    struct template_info machine = { .memory_mib = lease.memory_mib, .vcpus = lease.vcpus };
    job_clamp_to_template(spec, &machine);

    if (lease.cpu_fd < 0) {
        log_warn("no CPU meter for the sandbox: the guest's own figure is used", "job",
                 e->claim.job_id);
    }
    if (spec->tree->n > 1) {
        rc = tree_exec(s, spec, from, &lease, lease_start_us, m->leased_us, e, err);
        m->released_us = mono_us();
        return rc;
    }
    struct live live;
    live_start(&live, spec->stream ? s->shared->publisher : NULL, e->claim.job_id, 0);
    struct node_job job = { .shared = s->shared,
                            .spec = spec,
                            .node = &spec->tree->nodes[0],
                            .session = &s->session,
                            .lease = &lease,
                            .abort_fd = s->abort_fd,
                            .lease_start_us = lease_start_us,
                            .archive = &s->archive,
                            .live = spec->stream ? &live : NULL };
    struct artifact_set set;
    enum node_outcome outcome;
    rc = node_run(&job, r, &set, &outcome, err);
    node_sandbox(&job, m->leased_us, mono_us(), r);
    if (rc == 0) {
        keep_leaf(s, &job, outcome, from, e);
    }
    pool_release(
        &s->pool,
        &lease); /* what follows costs the customer nothing; vmpool kills the VM off our path */
    m->released_us = mono_us();
    live_end(&live);
    if (rc == 0 && checker_wanted(job.node, r)) {
        rc = checker_run(&job, &s->pool, r, err);
    }
    node_store(&job, e->claim.job_id, &set, &e->artifacts);
    job_result_take_manifest(r, &e->artifacts);
    return rc;
}

/* Everything between claim and verdict. 0: e->result is complete; else the attempt failed. */
static int run(struct slot *s, struct job_spec *spec, bool saturated, struct commit_entry *e,
               struct moments *m, struct err *err)
{
    int rc = claim_archive(s, e->claim.job_id, spec, err);
    rc = rc < 0 ? no_machine(s, e, rc) : run_leased(s, spec, saturated, e, m, err);
    job_unpacked_done(&s->archive);
    return rc;
}

/* Only here and in the Run message are they plain. */
static int open_secrets(const struct slot *s, const char *tenant, struct job_spec *spec,
                        struct err *err)
{
    uint8_t key[SECRET_KEY_BYTES];
    if (spec->n_secrets == 0) {
        return 0;
    }
    int rc = secret_key_load(s->shared->config, false, key, err);
    rc = rc < 0 ? rc : secrets_open(spec, key, tenant, err);
    sodium_memzero(key, sizeof key);
    return rc;
}

/* The slot was held from the claim on; branches that ran beside had slots of their own. */
static int64_t slot_us(const struct commit_entry *e, const struct moments *m)
{
    int64_t us = (m->released_us > 0 ? m->released_us : mono_us()) - m->claimed_us;
    for (int i = 0; i < e->n_branches; i++) {
        us += e->branches[i].result.measured_ms * 1000;
    }
    return us;
}

void job_run(struct slot *s, struct claim *claim, struct inflight_ref ref, bool saturated)
{
    struct moments m = { .claimed_us = mono_us(), .trace = &s->session.trace };
    struct commit_entry *e = commit_entry_new();
    e->cause = RETRY_BROKEN;
    e->claim = *claim;
    *claim = (struct claim){ 0 };
    e->ref = ref;

    struct err err = { 0 };
    cleanup_job_spec struct job_spec *spec = NULL;
    int rc = claim_spec(s, &e->claim, &err);
    if (rc < 0) {
        e->cause = rc == -ERR_UNAVAILABLE ? RETRY_NO_SANDBOX : RETRY_BROKEN;
    } else if ((rc = job_parse(e->claim.spec, e->claim.spec_len, &spec, &err)) < 0) {
        (void)err_prefix(&err, "the claimed job is not valid");
    } else {
        (void)snprintf(e->template_name, sizeof e->template_name, "%s", spec->template_name);
        e->priority = spec->priority;
        rc = open_secrets(s, e->claim.tenant, spec, &err);
        if (rc >= 0) {
            rc = s->shared->script ? s->shared->script(s, spec, e, &err)
                                   : run(s, spec, saturated, e, &m, &err);
        }
        e->slot_us = slot_us(e, &m);
    }
    free(e->claim.spec);
    e->claim.spec = NULL;
    e->claim.spec_len = 0;

    if (rc == -ERR_NO_CAPACITY) { /* for the job's own machine, or another that it needs */
        e->cause = RETRY_NO_SANDBOX;
    }
    if (rc == -ERR_STALE && atomic_load(&s->shared->giving_up)) {
        e->cause = RETRY_GIVEN_BACK;
    }
    if (rc == -ERR_STALE && spec && inflight_cancelled(s->shared->inflight, ref)) {
        cancel_settle(e);
    } else if (rc < 0) {
        fail(e, &err);
    } else {
        e->billed = job_result_billed(&e->result);
        log_done(e, &m);
    }
    inflight_leave_slot(s->shared->inflight, ref);
    commit_push(s->shared->committer, e);
}
