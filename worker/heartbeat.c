#include "worker/heartbeat.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cond.h"
#include "common/base/log.h"
#include "common/base/outage.h"
#include "common/store/queue.h"
#include "worker/claims.h"
#include "worker/commit.h"

#define CLAIMS_MAX (1024 + CLAIMS_READ_MAX + COMMIT_CLAIMS_MAX) /* of slots, waiting, committer */
#define BEATS_TO_LIVE 3

struct heartbeat {
    const struct config *config;
    const char *name;
    struct inflight *inflight;
    const atomic_int *busy, *extra;
    const struct spool_view *spool;
    struct warm *warm;
    struct queue queue; /* of the thread */
    struct outage outage;
    struct inflight_claim claims[CLAIMS_MAX];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;
};

static int renew(struct heartbeat *h, struct err *err)
{
    static_assert(CLAIMS_MAX >= 1024 + CLAIMS_READ_MAX + COMMIT_CLAIMS_MAX,
                  "every claim is renewed");
    int n = inflight_list(h->inflight, h->claims, CLAIMS_MAX);
    static const char *ids[CLAIMS_MAX]; /* one heartbeat a process */
    static bool owned[CLAIMS_MAX];
    for (int i = 0; i < n; i++) {
        ids[i] = h->claims[i].stream_id;
    }
    int rc = n > 0 ? queue_claim_renew(&h->queue, h->name, ids, n, owned, err) : 0;
    for (int i = 0; i < n && rc >= 0; i++) {
        if (!owned[i] && inflight_mark_lost(h->inflight, h->claims[i].ref)) {
            log_warn("claim lost: another worker has it, or the job was cancelled", "job",
                     h->claims[i].job_id);
        }
    }
    return rc;
}

static void beat(struct heartbeat *h)
{
    struct err err = { 0 };
    struct worker_info info = { .slots = (int)h->config->worker_slots,
                                .busy = atomic_load(h->busy) + atomic_load(h->extra),
                                .pid = getpid() };
    (void)snprintf(info.name, sizeof info.name, "%s", h->name);
    info.spooled = atomic_load(&h->spool->records);
    info.spool_bytes = atomic_load(&h->spool->bytes);
    warm_text(h->warm, info.warm);
    int64_t ttl_ms = BEATS_TO_LIVE * h->config->worker_heartbeat_ms + 1000;
    if (renew(h, &err) < 0 || queue_worker_beat(&h->queue, &info, ttl_ms, &err) < 0) {
        (void)outage_failed(&h->outage, mono_ms(), &err);
    } else {
        outage_over(&h->outage, mono_ms());
    }
}

static void *heartbeat_main(void *arg)
{
    struct heartbeat *h = arg;
    bool on = true;
    while (on) {
        beat(h);
        int64_t at_us = mono_us() + h->config->worker_heartbeat_ms * 1000;
        (void)pthread_mutex_lock(&h->lock);
        int rc = 0;
        while (!h->stopping && rc == 0) {
            rc = cond_wait_until(&h->wake, &h->lock, at_us);
        }
        on = !h->stopping;
        (void)pthread_mutex_unlock(&h->lock);
    }
    return NULL;
}

int heartbeat_start(const struct config *config, const char *name, struct inflight *inflight,
                    const atomic_int *busy, const atomic_int *extra, const struct spool_view *spool,
                    struct warm *warm, struct heartbeat **ret_heartbeat, struct err *err)
{
    struct heartbeat *h = calloc(1, sizeof *h);
    if (!h) {
        abort();
    }
    h->config = config;
    h->name = name;
    h->inflight = inflight;
    h->busy = busy;
    h->spool = spool;
    h->warm = warm;
    h->extra = extra;
    int rc = pthread_mutex_init(&h->lock, NULL);
    assert(rc == 0);
    cond_init(&h->wake);
    rc = queue_open(&h->queue, config->redis_url, err);
    rc = rc == -ERR_UNAVAILABLE ? 0 : rc; /* the beats find it when it is there */
    if (rc == 0 && (errno = pthread_create(&h->thread, NULL, heartbeat_main, h)) != 0) {
        rc = err_sys(err, "heartbeat: thread");
    }
    if (rc < 0) {
        queue_close(&h->queue);
        free(h);
        return rc;
    }
    *ret_heartbeat = h;
    return 0;
}

void heartbeat_stop(struct heartbeat *h)
{
    if (!h) {
        return;
    }
    (void)pthread_mutex_lock(&h->lock);
    h->stopping = true;
    (void)pthread_cond_signal(&h->wake);
    (void)pthread_mutex_unlock(&h->lock);
    (void)pthread_join(h->thread, NULL);
    struct err err = { 0 };
    if (queue_worker_gone(&h->queue, h->name, &err) < 0) {
        log_debug("worker's entry is left to expire", "error", err.text);
    }
    queue_close(&h->queue);
    (void)pthread_mutex_destroy(&h->lock);
    (void)pthread_cond_destroy(&h->wake);
    free(h);
}
