#include "worker/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "worker/cancel.h"
#include "worker/pending.h"
#include "worker/commit.h"
#include "worker/heartbeat.h"
#include "worker/inflight.h"
#include "worker/publisher.h"
#include "worker/slot.h"

#define PUT_STALL_S 10 /* a slot waits no longer for an object store that says nothing */

struct worker {
    char name[QUEUE_WORKER_MAX];
    struct slot_shared shared;
    struct heartbeat *heartbeat;
    struct cancels *cancels;
    struct slot *slots;
    int n_slots; /* started */
};

/* objects; and puts, which does not try again what does not go: the thread of pending.h does. */
static int open_objects(const struct config *config, struct slot_shared *shared, struct err *err)
{
    struct object_options options;
    int rc = object_options_from(&options, config, err);
    rc = rc < 0 ? rc : object_store_open(&shared->objects, &options, err);
    shared->puts = shared->objects;
    if (rc < 0 || options.driver != OBJECT_S3) {
        return rc;
    }
    struct object_s3_options *s3 = &options.s3;
    s3->attempts_max = 1;
    s3->stall_timeout_s = s3->stall_timeout_s < PUT_STALL_S ? s3->stall_timeout_s : PUT_STALL_S;
    shared->puts = NULL;
    return object_store_open(&shared->puts, &options, err);
}

int worker_start(const struct config *config, job_script script, struct worker **ret_worker,
                 struct err *err)
{
    int slots = (int)config->worker_slots;
    struct worker *w = calloc(1, sizeof *w);
    if (!w || !(w->slots = calloc((size_t)slots, sizeof *w->slots))) {
        abort();
    }
    queue_worker_name(config->worker_name, getpid(), w->name);
    w->shared.config = config;
    w->shared.name = w->name;
    w->shared.slots = slots;
    w->shared.script = script;
    w->shared.park = hot_park_new(config, slots);
    w->shared.inflight = inflight_new(slots + CLAIMS_READ_MAX + COMMIT_CLAIMS_MAX);
    w->shared.claims = claims_new(w->shared.inflight);
    w->shared.warm = warm_new(w->name);
    int rc = open_objects(config, &w->shared, err);
    w->shared.kept = kept_new(config, w->shared.objects);
    if (rc == 0 && w->shared.objects) {
        rc = pending_start(config, w->shared.objects, &w->shared.pending, err);
    }
    if (rc == 0) {
        rc = committer_start(config, w->name, w->shared.inflight, &w->shared.spool,
                             &w->shared.committer, err);
    }
    if (rc == 0) {
        rc = heartbeat_start(config, w->name, w->shared.inflight, &w->shared.busy, &w->shared.extra,
                             &w->shared.spool, w->shared.warm, &w->heartbeat, err);
    }
    if (rc == 0) {
        rc = publisher_start(config, &w->shared.publisher, err);
    }
    if (rc == 0) {
        rc = cancels_start(config, w->shared.inflight, &w->cancels, err);
    }
    while (rc == 0 && w->n_slots < slots) {
        rc = slot_start(&w->slots[w->n_slots], &w->shared, w->n_slots, err);
        w->n_slots += rc == 0;
    }
    if (rc < 0) {
        (void)worker_stop(w, 0);
        return rc;
    }
    char count[16];
    (void)snprintf(count, sizeof count, "%d", slots);
    log_info("worker started", "name", w->name, "slots", count);
    *ret_worker = w;
    return 0;
}

void worker_drain(struct worker *w)
{
    atomic_store(&w->shared.stopping, true);
}

bool worker_drained(struct worker *w)
{
    return atomic_load(&w->shared.alive) == 0;
}

/* Claims that came when no slot wanted one any more. */
static void give_back_claims(struct worker *w)
{
    struct claim claim;
    struct inflight_ref ref;
    while (claims_left(w->shared.claims, &claim, &ref)) {
        if (!w->shared.committer || !commit_reserve(w->shared.committer, 0)) {
            inflight_remove(w->shared.inflight, ref);
            claim_done(&claim); /* it expires */
            continue;
        }
        struct commit_entry *e = commit_entry_new();
        e->ref = ref;
        e->claim = claim;
        e->failed = true;
        e->cause = RETRY_GIVEN_BACK;
        (void)snprintf(e->reason, sizeof e->reason, "the worker ended before it had begun");
        commit_push(w->shared.committer, e);
    }
}

int worker_stop(struct worker *w, int64_t commit_wait_ms)
{
    if (!w) {
        return 0;
    }
    worker_drain(w);
    atomic_store(&w->shared.giving_up, true);
    for (int i = 0; i < w->n_slots; i++) {
        slot_abort(&w->slots[i]);
    }
    for (int i = 0; i < w->n_slots; i++) {
        slot_join(&w->slots[i]);
    }
    publisher_stop(w->shared.publisher);
    cancels_stop(w->cancels);
    hot_park_free(w->shared.park);
    give_back_claims(w);
    int left = committer_stop(w->shared.committer, commit_wait_ms);
    heartbeat_stop(w->heartbeat); /* last: claims are renewed until their results are committed */
    if (w->shared.objects) {
        object_store_give_up(w->shared.objects); /* what waits stays on the disk */
    }
    pending_stop(w->shared.pending);
    claims_free(w->shared.claims);
    warm_free(w->shared.warm);
    inflight_free(w->shared.inflight);
    kept_free(w->shared.kept);
    if (w->shared.puts != w->shared.objects) {
        object_store_free(w->shared.puts);
    }
    object_store_free(w->shared.objects);
    free(w->slots);
    free(w);
    return left;
}
