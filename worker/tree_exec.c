#include "worker/tree_exec.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/model/branch_result.h"
#include "worker/checker.h"
#include "worker/help_give.h"
#include "worker/node_run.h"
#include "worker/tree_sum.h"

#define FORK_WAIT_MS 60000
#define FREEZE_WAIT_MS 60000
#define PLACE_WAIT_MS 50 /* until it is looked again whether a place is free */
#define OUTPUT_HELD_MAX (2 * JOB_TREE_OUTPUT_BYTES_MAX) /* before it is cut */
#define OFFER_LOOK 64 /* ready leaves looked at for other workers */

struct tree_exec;

struct lane {
    struct tree_exec *x;
    pthread_t thread;
    bool made, busy, extra; /* extra: it uses a place beside the slot's */
    atomic_bool done;
    int abort_fd;
    struct pool_client pool;
    struct session session;
    struct lease lease; /* of the node in hand; after a freeze the state's */
    bool holds;         /* lease is valid */
    bool leased;        /* the node in hand got a sandbox */
    int node;
    enum node_outcome outcome;
    int rc;
    struct err err;
};

struct state { /* a frozen node */
    struct lease lease;
    struct lane *lane; /* whose connection holds it; NULL: none */
};

struct tree_exec {
    struct slot *slot;
    const struct job_spec *spec;
    const struct tree *tree;
    struct commit_entry *e;
    struct tree_run run;
    struct live live;                /* of the job as a whole: says when its output has ended */
    struct help *help;               /* branches that other workers run */
    int64_t leaf_us;                 /* what the leaves that have ended took, together */
    int n_leaves;                    /* how many have */
    int64_t output_bytes;            /* of the branches that have ended: at most so much is kept */
    struct state *states;            /* tree->n */
    const struct snapshot_row *from; /* what node 0 started from; NULL: a template */
    pthread_mutex_t kept_lock;       /* the entry's rows of kept states */
    struct lane lanes[JOB_PARALLEL_MAX];
    int n_busy;
    int done_fd; /* eventfd: a lane has ended */
    int64_t lease_start_us, leased_us;
    bool failed; /* the attempt: err says why */
    struct err err;
};

static struct job_result *result_of(struct tree_exec *x, int node)
{
    return node == 0 ? &x->e->result : &x->e->branches[node - 1].result;
}

static struct manifest *artifacts_of(struct tree_exec *x, int node)
{
    return node == 0 ? &x->e->artifacts : &x->e->branches[node - 1].artifacts;
}

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    assert(n == sizeof one);
    (void)n;
}

static void quiet(int fd)
{
    uint64_t n;
    while (read(fd, &n, sizeof n) > 0) {
    }
}

/* ---- in a lane ---- */

static int fork_patiently(struct lane *l, uint64_t from)
{
    struct pool_patience patience = { .since_ms = 0 };
    int rc;
    do {
        rc = pool_fork(&l->pool, from, l->abort_fd, FORK_WAIT_MS, &l->lease, &l->err);
        if (rc == -ERR_NO_CAPACITY) {
            hot_tidy(l->x->slot->shared->park, true); /* what is only kept in case makes room */
        }
    } while (rc < 0 && pool_again(&l->pool, rc, l->abort_fd, &patience));
    return rc;
}

/* The state of the lane's node, frozen: kept before anything starts from it or it ends. */
static void keep_state(struct lane *l, const struct node_job *job, struct job_result *r)
{
    struct tree_exec *x = l->x;
    struct snapshot_row row;
    if (node_keep(job, &l->pool, &x->e->claim, x->from, r, &row)) {
        (void)pthread_mutex_lock(&x->kept_lock);
        commit_entry_keep(x->e, &row);
        (void)pthread_mutex_unlock(&x->kept_lock);
    }
}

static int run_node(struct lane *l)
{
    struct tree_exec *x = l->x;
    const struct tree_node *n = &x->tree->nodes[l->node];
    struct job_result *r = result_of(x, l->node);
    int64_t asked_us = n->index == 0 ? x->lease_start_us : mono_us(), leased_us = x->leased_us;
    l->leased = n->index == 0;
    if (n->index > 0) {
        int rc = fork_patiently(l, x->states[n->parent].lease.id);
        if (rc < 0) {
            return rc;
        }
        l->holds = l->leased = true;
        leased_us = mono_us();
    }
    r->leased_wall_ms = wall_ms();
    r->lease_us = leased_us - asked_us;
    struct node_job job = { .shared = x->slot->shared,
                            .spec = x->spec,
                            .node = n,
                            .session = &l->session,
                            .lease = &l->lease,
                            .abort_fd = l->abort_fd,
                            .lease_start_us = asked_us,
                            .archive = n->index == 0 ? &x->slot->archive : NULL };
    struct live live;
    if (x->spec->stream && n->leaf) {
        live_start(&live, x->slot->shared->publisher, x->e->claim.job_id, n->index);
        job.live = &live;
    }
    struct artifact_set set;
    int rc = node_run(&job, r, &set, &l->outcome, &l->err);
    if (job.live) {
        live_done(&live);
    }
    if (rc == 0 && l->outcome == NODE_SETTLED) {
        rc = pool_freeze(&l->pool, &l->lease, l->abort_fd, FREEZE_WAIT_MS, &l->err);
    }
    node_sandbox(&job, leased_us, mono_us(), r);
    if (rc == 0 && l->outcome == NODE_SETTLED && n->keep) {
        keep_state(l, &job, r);
    } else if (rc == 0 && l->outcome == NODE_TO_KEEP) {
        struct err err = { 0 };
        if (pool_freeze(&l->pool, &l->lease, l->abort_fd, FREEZE_WAIT_MS, &err) == 0) {
            keep_state(l, &job, r);
        } else {
            job_result_warn(r, "keep: %.64s is not kept: %.150s", n->keep->name, err.text);
        }
    }
    if (l->holds && (rc < 0 || l->outcome != NODE_SETTLED)) {
        l->holds = false;
        pool_release(&l->pool, &l->lease);
    }
    if (rc == 0 && checker_wanted(n, r)) {
        rc = checker_run(&job, &l->pool, r, &l->err);
    }
    node_store(&job, x->e->claim.job_id, &set, artifacts_of(x, l->node));
    return rc;
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    l->rc = run_node(l);
    atomic_store(&l->done, true);
    ring(l->x->done_fd);
    return NULL;
}

/* ---- the coordinator ---- */

static int lane_make(struct lane *l, struct tree_exec *x, struct err *err)
{
    int rc = pool_client_init(&l->pool, x->slot->shared->config->vmpool_socket, err);
    l->abort_fd = rc < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rc == 0 && l->abort_fd < 0) {
        rc = err_sys(err, "eventfd");
    }
    if (rc == 0) {
        l->x = x;
        session_init(&l->session);
        l->made = true;
    }
    return rc;
}

static void lane_free(struct lane *l)
{
    if (l->made) {
        session_done(&l->session);
        pool_client_done(&l->pool); /* every sandbox that it still holds ends */
        (void)close(l->abort_fd);
    }
}

/* A place on the host for one more lane: the slot's own, or one that no slot needs now. */
static bool place(struct tree_exec *x, bool *ret_extra)
{
    struct slot_shared *shared = x->slot->shared;
    *ret_extra = x->n_busy > 0;
    if (!*ret_extra) {
        return true;
    }
    int extra = atomic_load(&shared->extra);
    while (atomic_load(&shared->busy) + extra < shared->slots) {
        if (atomic_compare_exchange_weak(&shared->extra, &extra, extra + 1)) {
            return true;
        }
    }
    return false;
}

static void give_up(struct tree_exec *x, const struct err *why)
{
    if (!x->failed) {
        x->failed = true;
        x->err = *why;
    }
    for (int i = 0; i < JOB_PARALLEL_MAX; i++) {
        if (x->lanes[i].busy) {
            ring(x->lanes[i].abort_fd);
        }
    }
}

static void start_node(struct tree_exec *x, int node, bool extra)
{
    struct err err = { 0 };
    struct lane *l = x->lanes;
    while (l->busy) {
        l++;
        assert(l < x->lanes + JOB_PARALLEL_MAX);
    }
    bool ok = tree_apply(&x->run, node, NODE_ON_START, VERDICT_NONE);
    assert(ok);
    (void)ok;
    if (node > 0) {
        x->e->branches[node - 1].tries++;
    }
    int rc = l->made ? 0 : lane_make(l, x, &err);
    if (rc == 0) {
        quiet(l->abort_fd);
        l->node = node;
        l->extra = extra;
        l->holds = l->holds && node == 0; /* node 0's lease was put there */
        atomic_store(&l->done, false);
        errno = pthread_create(&l->thread, NULL, lane_main, l);
        rc = errno == 0 ? 0 : err_sys(&err, "branch: thread");
    }
    if (rc < 0) {
        if (extra) {
            (void)atomic_fetch_sub(&x->slot->shared->extra, 1);
        }
        give_up(x, &err);
        return;
    }
    l->busy = true;
    x->n_busy++;
}

/* Start what may start; true when something waits for a place on the host. */
static bool start_ready(struct tree_exec *x)
{
    int node;
    while (!x->failed && x->n_busy + help_away(x->help) < x->spec->parallel &&
           tree_ready(&x->run, 1, &node) == 1) {
        bool extra;
        if (!place(x, &extra)) {
            return true;
        }
        start_node(x, node, extra);
    }
    return false;
}

/* Ready leaves that find no place here, the last ones first, for workers that have places free. */
static void offer_ready(struct tree_exec *x)
{
    int ready[OFFER_LOOK], n = tree_ready(&x->run, OFFER_LOOK, ready);
    if (x->failed || x->spec->n_secrets > 0) { /* secrets are opened where the job is */
        return;
    }
    int room = x->spec->parallel - x->n_busy - help_away(x->help);
    int more = help_wanted(x->help, n, x->n_leaves > 0 ? x->leaf_us / x->n_leaves : 0);
    more = more < room ? more : room;
    for (int i = n - 1; i >= 0 && more > 0; i--) {
        const struct tree_node *node = &x->tree->nodes[ready[i]];
        if (node->leaf && !node->keep && node->index > 0 &&
            help_offer(x->help, node->index, x->e->branches[node->index - 1].tries + 1,
                       &x->states[node->parent].lease)) {
            bool ok = tree_apply(&x->run, node->index, NODE_ON_START, VERDICT_NONE);
            assert(ok);
            (void)ok;
            x->e->branches[node->index - 1].tries++;
            more--;
        }
    }
}

/* A place is free here and nothing is ready: what nobody else has begun comes back. */
static void take_back(struct tree_exec *x)
{
    int node;
    struct slot_shared *shared = x->slot->shared;
    bool free_here =
        x->n_busy == 0 || atomic_load(&shared->busy) + atomic_load(&shared->extra) < shared->slots;
    if (help_away(x->help) > 0 && free_here && !x->failed && tree_ready(&x->run, 1, &node) == 0 &&
        (node = help_take_back(x->help)) > 0) {
        bool ok = tree_apply(&x->run, node, NODE_ON_RETRY, VERDICT_NONE);
        assert(ok);
        (void)ok;
        x->e->branches[node - 1].tries--;
    }
}

static void kill_stopped(struct tree_exec *x)
{
    for (int i = 0; i < JOB_PARALLEL_MAX; i++) {
        struct lane *l = &x->lanes[i];
        if (l->busy && x->run.states[l->node] == NODE_KILLING) {
            ring(l->abort_fd);
        }
    }
    int node;
    for (int from = 0;
         help_away(x->help) > 0 && tree_each_in(&x->run, NODE_KILLING, from, 1, &node) == 1;
         from = node + 1) {
        if (help_is_away(x->help, node)) {
            help_drop(x->help, node);
            bool ok = tree_apply(&x->run, node, NODE_ON_KILLED, VERDICT_NONE);
            assert(ok);
            (void)ok;
        }
    }
}

/* States whose last branch has ended are let go. */
static void release_states(struct tree_exec *x)
{
    for (int i = 0; i < x->tree->n; i++) {
        if (x->states[i].lane && node_state_terminal(x->run.states[i])) {
            pool_release(&x->states[i].lane->pool, &x->states[i].lease);
            x->states[i].lane = NULL;
        }
    }
}

static void fresh_result(struct tree_exec *x, int node)
{
    struct job_result *r = result_of(x, node);
    job_result_done(r);
    job_result_init(r);
    manifest_done(artifacts_of(x, node));
}

/* What a node's end means for the tree. */
static void note_end(struct tree_exec *x, struct lane *l)
{
    const struct tree_node *n = &x->tree->nodes[l->node];
    struct job_result *r = result_of(x, l->node);
    bool killing = x->run.states[l->node] == NODE_KILLING, ok = true;
    if (l->rc == 0 && l->outcome == NODE_SETTLED) {
        (void)pthread_mutex_lock(&x->kept_lock);
        for (int i = 0; i < x->e->n_snapshots; i++) {
            if (x->e->snapshots[i].node == l->node) {
                help_has_state(x->help, l->node, &x->e->snapshots[i]);
            }
        }
        (void)pthread_mutex_unlock(&x->kept_lock);
        x->states[l->node] = (struct state){ l->lease, l };
        l->holds = false;
        ok = tree_apply(&x->run, l->node, NODE_ON_FREEZE, VERDICT_NONE);
    } else if (l->rc == 0) {
        x->n_leaves += n->leaf;
        x->leaf_us += n->leaf ? r->measured_ms * 1000 : 0;
        ok = tree_apply(&x->run, l->node, n->leaf ? NODE_ON_END : NODE_ON_FAIL, r->verdict);
    } else if (killing) {
        ok = tree_apply(&x->run, l->node, NODE_ON_KILLED, VERDICT_NONE);
    } else if (x->failed) {
        return; /* given up: no more is said about it */
    } else if (l->node == 0 || !l->leased || l->rc == -ERR_NOT_FOUND || l->rc == -ERR_UNSUPPORTED ||
               (l->rc == -ERR_UNAVAILABLE && !l->pool.refused)) {
        give_up(x, &l->err); /* no state to start again from, or no sandbox, which says nothing of
                                the branch; without vmpool there is none at all */
    } else if (x->e->branches[l->node - 1].tries <
               x->slot->shared->config->sched_infra_attempts_max) {
        log_info("branch is tried again", "job", x->e->claim.job_id, "node", n->path, "error",
                 l->err.text);
        fresh_result(x, l->node);
        ok = tree_apply(&x->run, l->node, NODE_ON_RETRY, VERDICT_NONE);
    } else {
        fresh_result(x, l->node);
        r->verdict = VERDICT_INFRA_ERROR;
        (void)snprintf(r->reason, sizeof r->reason, "%.250s", l->err.text);
        ok = tree_apply(&x->run, l->node, n->leaf ? NODE_ON_END : NODE_ON_FAIL, r->verdict);
    }
    assert(ok);
    (void)ok;
}

static bool in_lane(const struct tree_exec *x, int node)
{
    for (int i = 0; i < JOB_PARALLEL_MAX; i++) {
        if (x->lanes[i].busy && x->lanes[i].node == node) {
            return true;
        }
    }
    return false;
}

/* Of all branches but those in hand, which are their lanes'. */
static void cap_outputs(struct tree_exec *x)
{
    int n = 0;
    struct branch_result **ended = calloc((size_t)x->tree->n, sizeof(struct branch_result *));
    if (!ended) {
        abort();
    }
    for (int i = 1; i < x->tree->n; i++) {
        if (!in_lane(x, i)) {
            ended[n++] = &x->e->branches[i - 1];
        }
    }
    (void)branch_results_cap(ended, n, JOB_TREE_OUTPUT_BYTES_MAX);
    x->output_bytes = JOB_TREE_OUTPUT_BYTES_MAX;
    free(ended);
}

/* A tree may have thousands of outputs: they do not all wait for its end. */
static void count_output(struct tree_exec *x, int node)
{
    x->output_bytes += node > 0 ? branch_result_bytes(&x->e->branches[node - 1]) : 0;
    if (x->output_bytes > OUTPUT_HELD_MAX) {
        cap_outputs(x);
    }
}

static void help_room_of(void *user, int node, struct job_result **ret_r,
                         struct manifest **ret_artifacts)
{
    struct tree_exec *x = user;
    fresh_result(x, node);
    *ret_r = result_of(x, node);
    *ret_artifacts = artifacts_of(x, node);
}

static void collect_help(struct tree_exec *x)
{
    int node;
    enum help_end end;
    while ((end = help_turn(x->help, help_room_of, x, &node)) != HELP_NONE) {
        struct branch_result *b = &x->e->branches[node - 1];
        bool ok = true;
        if (end == HELP_RESULT) {
            count_output(x, node);
            ok = tree_apply(&x->run, node, NODE_ON_END, b->result.verdict);
        } else {
            fresh_result(x, node);
            ok = tree_apply(&x->run, node, NODE_ON_RETRY, VERDICT_NONE);
            b->tries--; /* it has not been tried here */
        }
        assert(ok);
        (void)ok;
    }
}

static void collect_ends(struct tree_exec *x)
{
    quiet(x->done_fd);
    for (int i = 0; i < JOB_PARALLEL_MAX; i++) {
        struct lane *l = &x->lanes[i];
        if (!l->busy || !atomic_load(&l->done)) {
            continue;
        }
        (void)pthread_join(l->thread, NULL);
        l->busy = false;
        x->n_busy--;
        if (l->extra) {
            (void)atomic_fetch_sub(&x->slot->shared->extra, 1);
        }
        note_end(x, l);
        count_output(x, l->node);
    }
    kill_stopped(x);
    release_states(x);
}

/* One turn: wait for an end, for the order to give up, or for a place. */
static void turn(struct tree_exec *x, bool waits)
{
    struct pollfd p[2] = { { .fd = x->done_fd, .events = POLLIN },
                           { .fd = x->failed ? -1 : x->slot->abort_fd, .events = POLLIN } };
    (void)poll(p, 2, waits || help_away(x->help) > 0 ? PLACE_WAIT_MS : -1);
    if (p[1].revents) {
        struct err err = { 0 };
        (void)err_set(&err, ERR_STALE, "the job was given up");
        give_up(x, &err);
    }
    collect_help(x);
    collect_ends(x);
}

static void run_tree(struct tree_exec *x)
{
    while (x->n_busy > 0 || (!x->failed && !tree_ended(&x->run))) {
        bool waits = start_ready(x);
        if (waits) {
            offer_ready(x);
        }
        take_back(x);
        if (x->n_busy + help_away(x->help) > 0) {
            turn(x, waits);
        }
    }
}

/* isolation shared: one after the other in node 0's sandbox, which no one freezes. */
static void run_shared(struct tree_exec *x)
{
    struct lane *l = &x->lanes[0];
    for (int node = 0; !x->failed && node < x->tree->n; node++) {
        if (x->run.states[node] != NODE_READY) {
            continue;
        }
        const struct tree_node *n = &x->tree->nodes[node];
        struct job_result *r = result_of(x, node);
        struct artifact_set set;
        bool ok = tree_apply(&x->run, node, NODE_ON_START, VERDICT_NONE);
        int64_t start_us = node == 0 ? x->leased_us : mono_us();
        r->leased_wall_ms = wall_ms();
        struct node_job job = { .shared = x->slot->shared,
                                .spec = x->spec,
                                .node = n,
                                .session = &l->session,
                                .lease = &l->lease,
                                .abort_fd = x->slot->abort_fd,
                                .lease_start_us = node == 0 ? x->lease_start_us : start_us,
                                .archive = node == 0 ? &x->slot->archive : NULL,
                                .resume = node > 0 };
        if (node > 0) {
            x->e->branches[node - 1].tries = 1;
        }
        int rc = node_run(&job, r, &set, &l->outcome, &l->err);
        node_sandbox(&job, start_us, mono_us(), r);
        if (rc == 0 && checker_wanted(n, r)) {
            rc = checker_run(&job, &l->pool, r, &l->err);
        }
        node_store(&job, x->e->claim.job_id, &set, artifacts_of(x, node));
        count_output(x, node);
        if (rc < 0) {
            give_up(x, &l->err);
        } else if (l->outcome == NODE_SETTLED) {
            ok = tree_apply(&x->run, node, NODE_ON_FREEZE, VERDICT_NONE);
        } else {
            ok = tree_apply(&x->run, node, n->leaf ? NODE_ON_END : NODE_ON_FAIL, r->verdict);
        }
        assert(ok);
        (void)ok;
    }
    l->holds = false;
    pool_release(&l->pool, &l->lease);
}

int tree_exec(struct slot *s, const struct job_spec *spec, const struct snapshot_row *from,
              struct lease *first, int64_t lease_start_us, int64_t leased_us,
              struct commit_entry *e, struct err *err)
{
    struct tree_exec *x = calloc(1, sizeof *x);
    if (!x) {
        abort();
    }
    *x = (struct tree_exec){ .slot = s,
                             .spec = spec,
                             .tree = spec->tree,
                             .e = e,
                             .from = from,
                             .done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                             .lease_start_us = lease_start_us,
                             .leased_us = leased_us };
    (void)pthread_mutex_init(&x->kept_lock, NULL);
    live_start(&x->live, spec->stream ? s->shared->publisher : NULL, e->claim.job_id, 0);
    e->branches = branch_results_new(x->tree);
    e->n_branches = x->tree->n - 1;
    x->states = calloc((size_t)x->tree->n, sizeof *x->states);
    tree_run_init(&x->run, x->tree, spec->stop);
    x->help = help_new(s, &e->claim, x->tree, from);
    struct lane *l = &x->lanes[0];
    int rc = x->done_fd < 0 ? err_sys(err, "eventfd") : lane_make(l, x, err);
    if (!x->states) {
        abort();
    }
    if (rc == 0) {
        /* The slot's connection with its lease goes to the first lane, and comes back at the end.
         */
        struct pool_client own = l->pool;
        l->pool = s->pool;
        l->lease = *first;
        l->holds = true;
        if (spec->isolation == ISOLATION_SHARED) {
            run_shared(x);
        } else {
            run_tree(x);
        }
        if (l->holds) { /* no thread could be had for node 0 */
            l->holds = false;
            pool_release(&l->pool, &l->lease);
        }
        help_free(x->help); /* before the states that it may be writing go */
        x->help = NULL;
        for (int i = 0; i < x->tree->n; i++) { /* what a given-up tree still holds */
            if (x->states[i].lane) {
                pool_release(&x->states[i].lane->pool, &x->states[i].lease);
            }
        }
        s->pool = l->pool;
        l->pool = own;
        rc = x->failed ? -(int)x->err.code : 0;
        *err = x->failed ? x->err : *err;
    } else {
        pool_release(&s->pool, first);
    }
    live_end(&x->live);
    cap_outputs(x); /* also of what was given up: a cancelled job's is committed */
    if (rc == 0) {
        tree_sum(&x->run, spec, e);
    }
    for (int i = 0; i < JOB_PARALLEL_MAX; i++) {
        lane_free(&x->lanes[i]);
    }
    help_free(x->help);
    tree_run_done(&x->run);
    (void)pthread_mutex_destroy(&x->kept_lock);
    free(x->states);
    if (x->done_fd >= 0) {
        (void)close(x->done_fd);
    }
    free(x);
    return rc;
}
