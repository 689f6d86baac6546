#include "worker/cancel.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/queue.h"

#define WAIT_MS 500    /* of one read; also how long a stop may go unnoticed */
#define TROUBLE_MS 500 /* Redis away: until the next try */
#define REASON "taken back while it ran"

struct cancels {
    struct inflight *inflight;
    struct queue queue; /* of the thread */
    pthread_t thread;
    atomic_bool stopping;
};

static void *cancels_main(void *arg)
{
    struct cancels *c = arg;
    char cursor[QUEUE_STREAM_ID_MAX] = "$", job[ID_TEXT_BYTES];
    while (!atomic_load(&c->stopping)) {
        struct err err = { 0 };
        int rc = queue_cancel_next(&c->queue, cursor, WAIT_MS, job, &err);
        if (rc < 0) { /* others say that Redis is away; what is missed is said again */
            memcpy(cursor, "$", 2);
            sleep_ms(TROUBLE_MS);
        } else if (rc > 0 && inflight_cancel(c->inflight, job)) {
            log_info("job is cancelled while it runs", "job", job);
        }
    }
    return NULL;
}

int cancels_start(const struct config *config, struct inflight *inflight,
                  struct cancels **ret_cancels, struct err *err)
{
    struct cancels *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    c->inflight = inflight;
    int rc = queue_open(&c->queue, config->redis_url, err);
    rc = rc == -ERR_UNAVAILABLE ? 0 : rc; /* found when it is there */
    if (rc == 0 && (errno = pthread_create(&c->thread, NULL, cancels_main, c)) != 0) {
        rc = err_sys(err, "cancels: thread");
    }
    if (rc < 0) {
        queue_close(&c->queue);
        free(c);
        return rc;
    }
    *ret_cancels = c;
    return 0;
}

void cancels_stop(struct cancels *c)
{
    if (c) {
        atomic_store(&c->stopping, true);
        (void)pthread_join(c->thread, NULL);
        queue_close(&c->queue);
        free(c);
    }
}

void cancel_settle(struct commit_entry *e)
{
    struct job_result *r = &e->result;
    e->failed = false;
    r->verdict = VERDICT_CANCELLED;
    (void)snprintf(r->reason, sizeof r->reason, REASON);
    e->billed = job_result_billed(r);
    for (int i = 0; i < e->n_branches; i++) {
        struct branch_result *b = &e->branches[i];
        if (b->result.verdict == VERDICT_NONE || b->result.verdict == VERDICT_INFRA_ERROR) {
            b->result.verdict = VERDICT_CANCELLED;
            (void)snprintf(b->result.reason, sizeof b->result.reason, REASON);
        }
        b->billed = branch_result_billed(b, r);
    }
}
