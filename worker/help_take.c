#include "worker/help_take.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/checker.h"
#include "worker/claim_spec.h"
#include "worker/node_run.h"
#include "worker/spool_entry.h"

#define MARK_MS 1000
#define LEASE_WAIT_MS 60000
#define RESULT_BYTES_MAX (64u << 20)

/* Renews the mark beside the run. */
struct marker {
    struct slot *slot;
    const struct help_ticket *ticket;
    pthread_t thread;
    int stop_fd;
};

static void *marker_main(void *arg)
{
    struct marker *m = arg;
    struct queue q;
    struct err err = { 0 };
    struct pollfd p = { .fd = m->stop_fd, .events = POLLIN };
    int rc = queue_open(&q, m->slot->shared->config->redis_url, &err);
    bool on = rc == 0 || rc == -ERR_UNAVAILABLE;
    while (on && poll(&p, 1, MARK_MS) == 0) {
        rc = queue_help_mark(&q, m->ticket, m->slot->shared->name, &err);
        if (rc == 0) { /* wanted no more; a Redis that is away says nothing about that */
            slot_abort(m->slot);
            break;
        }
    }
    queue_close(&q);
    return NULL;
}

static int marker_start(struct marker *m, struct slot *s, const struct help_ticket *t,
                        struct err *err)
{
    *m = (struct marker){ .slot = s, .ticket = t, .stop_fd = eventfd(0, EFD_CLOEXEC) };
    if (m->stop_fd < 0) {
        return err_sys(err, "eventfd");
    }
    errno = pthread_create(&m->thread, NULL, marker_main, m);
    if (errno != 0) {
        int rc = err_sys(err, "help: thread");
        (void)close(m->stop_fd);
        return rc;
    }
    return 0;
}

static void marker_stop(struct marker *m)
{
    uint64_t one = 1;
    ssize_t n = write(m->stop_fd, &one, sizeof one);
    assert(n == sizeof one);
    (void)n;
    (void)pthread_join(m->thread, NULL);
    (void)close(m->stop_fd);
}

static int read_spec(struct slot *s, const struct help_ticket *t, struct job_spec **ret_spec,
                     struct err *err)
{
    struct claim claim;
    int rc = queue_claim_read(&s->queue, t->claim, &claim, err);
    if (rc <= 0) {
        return rc < 0 ? rc : err_set(err, ERR_NOT_FOUND, "the job's claim has gone");
    }
    rc = strcmp(claim.job_id, t->job_id) == 0 && claim.attempt == t->attempt
             ? claim_spec(s, &claim, err)
             : err_set(err, ERR_NOT_FOUND, "the job's claim is another's");
    rc = rc < 0 ? rc : job_parse(claim.spec, claim.spec_len, ret_spec, err);
    claim_done(&claim);
    if (rc == 0 && (t->node >= (*ret_spec)->tree->n || !(*ret_spec)->tree->nodes[t->node].leaf)) {
        rc = err_set(err, ERR_INVALID, "node %d is no leaf of the job", t->node);
    }
    return rc;
}

/* From the state to the verdict; the sandbox is gone afterwards. */
static int run_leaf(struct slot *s, const struct help_ticket *t, struct job_spec *spec,
                    struct job_result *r, struct manifest *artifacts, struct err *err)
{
    struct snapshot_row row = { .n_layers = t->n_layers };
    struct lease lease;
    int64_t asked_us = mono_us();
    (void)snprintf(row.digest, sizeof row.digest, "%.64s", t->layers[0]);
    for (int i = 0; i < t->n_layers; i++) {
        (void)snprintf(row.layers[i], sizeof row.layers[i], "%.64s", t->layers[i]);
    }
    int rc =
        kept_lease(s->shared->kept, &s->pool, &row, false, s->abort_fd, LEASE_WAIT_MS, &lease, err);
    if (rc < 0) {
        return rc;
    }
    int64_t leased_us = mono_us();
    r->leased_wall_ms = wall_ms();
    r->lease_us = leased_us - asked_us;
    struct template_info machine = { .memory_mib = lease.memory_mib, .vcpus = lease.vcpus };
    job_clamp_to_template(spec, &machine);
    struct node_job job = { .shared = s->shared,
                            .spec = spec,
                            .node = &spec->tree->nodes[t->node],
                            .session = &s->session,
                            .lease = &lease,
                            .abort_fd = s->abort_fd,
                            .lease_start_us = asked_us };
    struct live live;
    if (spec->stream) {
        live_start(&live, s->shared->publisher, t->job_id, t->node);
        job.live = &live;
    }
    struct artifact_set set;
    enum node_outcome outcome;
    rc = node_run(&job, r, &set, &outcome, err);
    node_sandbox(&job, leased_us, mono_us(), r);
    pool_release(&s->pool, &lease);
    if (job.live) {
        live_done(&live);
    }
    if (rc == 0 && checker_wanted(job.node, r)) {
        rc = checker_run(&job, &s->pool, r, err);
    }
    node_store(&job, t->job_id, &set, artifacts);
    return rc;
}

static void hand_in(struct slot *s, const struct help_ticket *t, struct job_result *r,
                    const struct manifest *artifacts, int rc, const struct err *why)
{
    struct err err = { 0 };
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, RESULT_BYTES_MAX);
    rc = rc < 0 ? buf_add_str(&b, why->text, &err) : branch_bytes_write(r, artifacts, &b, &err);
    if (rc < 0) {
        buf_reset(&b);
    }
    rc = queue_help_done(&s->queue, t, b.data ? b.data : "", b.len, &err);
    if (rc < 0) {
        log_info("a branch's result is lost, its job's worker will run it", "job", t->job_id,
                 "error", err.text);
    } else if (rc == 0) {
        log_debug("a branch's result is not wanted any more", "job", t->job_id);
    }
}

bool help_look(struct slot *s, struct help_ticket *ret_ticket)
{
    struct err err; /* a Redis that is away is the next claim's to tell */
    return queue_help_take(&s->queue, s->shared->name, ret_ticket, &err) == 1;
}

void help_run(struct slot *s, const struct help_ticket *t)
{
    struct marker marker;
    struct err err = { 0 };
    char node[16];
    (void)snprintf(node, sizeof node, "%d", t->node);
    log_debug("branch of another worker", "job", t->job_id, "node", node);
    cleanup_job_spec struct job_spec *spec = NULL;
    struct job_result r;
    struct manifest artifacts = { 0 };
    job_result_init(&r);
    int rc = marker_start(&marker, s, t, &err);
    if (rc == 0) {
        rc = read_spec(s, t, &spec, &err);
        rc = rc < 0 ? rc : run_leaf(s, t, spec, &r, &artifacts, &err);
        marker_stop(&marker);
    }
    hand_in(s, t, &r, &artifacts, rc, &err);
    job_result_done(&r);
    manifest_done(&artifacts);
}
