#include "worker/slot.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/help_take.h"
#include "worker/job_run.h"

#define CLAIM_WAIT_MS 1000 /* also the longest time until a stop is seen */
#define HELP_LOOK_MS 250   /* without a job: how often it is asked for other workers' branches */
#define LENT_WAIT_MS 20
#define TROUBLE_WAIT_MS 500 /* Redis or vmpool away: how long until it is tried again */

/* Said by the first slot that meets it, for all of them. */
static void trouble(struct slot_shared *shared, const char *what, const struct err *err)
{
    if (!atomic_exchange(&shared->told, true)) {
        log_warn(what, "error", err->text);
    }
    sleep_ms(TROUBLE_WAIT_MS);
}

/* All that must hold before a job may be claimed. */
static bool prepare(struct slot *s)
{
    struct slot_shared *shared = s->shared;
    if (atomic_load(&shared->busy) + atomic_load(&shared->extra) >= shared->slots) {
        sleep_ms(LENT_WAIT_MS); /* this slot's place is lent to a branch */
        return false;
    }
    if (!s->holds_place) {
        s->holds_place = commit_reserve(s->shared->committer, CLAIM_WAIT_MS);
        if (!s->holds_place) {
            return false;
        }
    }
    struct err err = { 0 };
    if (!shared->script && pool_client_connect(&s->pool, &err) < 0) {
        trouble(shared, "slots wait for vmpool", &err);
        return false;
    }
    return true;
}

static void drain_abort(struct slot *s)
{
    uint64_t n;
    while (read(s->abort_fd, &n, sizeof n) > 0) {
    }
    if (atomic_load(&s->shared->giving_up)) {
        slot_abort(s); /* it was meant for whatever comes next, too */
    }
}

/* To where the job's state is warm. true: it is not ours any more. It is out of flight meanwhile,
 * so that the heartbeat does not take it for lost. */
static bool pass_on(struct slot *s, struct claim *claim, struct inflight_ref *ref)
{
    struct err err;
    if (!warm_elsewhere(s->shared->warm, &s->queue, claim)) {
        return false;
    }
    inflight_remove(s->shared->inflight, *ref);
    int rc = queue_claim_pass(&s->queue, s->shared->name, claim, &err);
    if (rc >= 0) {
        log_debug(rc > 0 ? "passed on to where its state is warm" : "the claim was lost", "job",
                  claim->job_id);
        claim_done(claim);
        return true;
    }
    /* Should it have been passed all the same, the next renewal says that it is not ours. */
    log_debug("a claim is not passed on", "job", claim->job_id, "error", err.text);
    *ref = inflight_add(s->shared->inflight, claim->stream_id, claim->job_id, claim->attempt,
                        s->abort_fd);
    return false;
}

static void *slot_main(void *arg)
{
    struct slot *s = arg;
    bool had_job = false;
    while (!atomic_load(&s->shared->stopping)) {
        hot_tidy(s->shared->park, false); /* also beside a stream of other jobs */
        if (!prepare(s)) {
            continue;
        }
        struct claim claim = { 0 };
        struct inflight_ref ref;
        struct err err = { 0 };
        /* A job that is there as soon as the last one has ended means a backlog. */
        bool saturated = had_job;
        int64_t wait_ms = had_job ? 0 : HELP_LOOK_MS;
        had_job = false;
        drain_abort(s); /* before a claim, whose news may come at once */
        int rc = claims_take(s->shared->claims, &s->queue, s->shared->name, wait_ms, s->abort_fd,
                             &claim, &ref, &err);
        if (rc < 0) {
            trouble(s->shared, "slots wait for Redis", &err);
            continue;
        }
        atomic_store(&s->shared->told, false);
        struct help_ticket ticket;
        if (rc == 0) {
            if (s->shared->script || !help_look(s, &ticket)) {
                continue;
            }
        }
        if (rc > 0 && pass_on(s, &claim, &ref)) {
            continue;
        }
        (void)atomic_fetch_add(&s->shared->busy, 1);
        if (rc == 0) {
            help_run(s, &ticket);
            had_job = true;
            (void)atomic_fetch_sub(&s->shared->busy, 1);
            continue;
        }
        job_run(s, &claim, ref, saturated); /* takes the claim and the place */
        s->holds_place = false;
        had_job = true;
        (void)atomic_fetch_sub(&s->shared->busy, 1);
    }
    if (s->holds_place) {
        commit_unreserve(s->shared->committer);
    }
    (void)atomic_fetch_sub(&s->shared->alive, 1);
    return NULL;
}

int slot_start(struct slot *s, struct slot_shared *shared, int number, struct err *err)
{
    *s = (struct slot){ .shared = shared, .number = number, .abort_fd = -1 };
    int rc = pool_client_init(&s->pool, shared->config->vmpool_socket, err);
    rc = rc < 0 ? rc : queue_open(&s->queue, shared->config->redis_url, err);
    if (rc < 0 && rc != -ERR_UNAVAILABLE) { /* the first claim finds it when it is there */
        return rc;
    }
    rc = 0;
    s->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->abort_fd < 0) {
        rc = err_sys(err, "eventfd");
        queue_close(&s->queue);
        return rc;
    }
    session_init(&s->session);
    (void)atomic_fetch_add(&shared->alive, 1);
    errno = pthread_create(&s->thread, NULL, slot_main, s);
    if (errno != 0) {
        rc = err_sys(err, "slot: thread");
        (void)atomic_fetch_sub(&shared->alive, 1);
        session_done(&s->session);
        (void)close(s->abort_fd);
        queue_close(&s->queue);
    }
    return rc;
}

void slot_abort(struct slot *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->abort_fd, &one, sizeof one);
    assert(n == sizeof one);
    (void)n;
}

void slot_join(struct slot *s)
{
    (void)pthread_join(s->thread, NULL);
    session_done(&s->session);
    pool_client_done(&s->pool);
    queue_close(&s->queue);
    (void)close(s->abort_fd);
}
