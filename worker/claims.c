#include "worker/claims.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cond.h"

struct waiting_claim {
    struct claim claim;
    struct inflight_ref ref;
};

struct claims {
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool reading;
    int waiting; /* slots in claims_take */
    struct inflight *inflight;
    struct waiting_claim ready[CLAIMS_READ_MAX];
    int first, n;
};

struct claims *claims_new(struct inflight *inflight)
{
    struct claims *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    c->inflight = inflight;
    int rc = pthread_mutex_init(&c->lock, NULL);
    assert(rc == 0);
    (void)rc;
    cond_init(&c->news);
    return c;
}

void claims_free(struct claims *c)
{
    if (c) {
        assert(c->n == 0 && c->waiting == 0);
        (void)pthread_mutex_destroy(&c->lock);
        (void)pthread_cond_destroy(&c->news);
        free(c);
    }
}

/* With the lock held. */
static bool pop(struct claims *c, struct claim *ret_claim, struct inflight_ref *ret_ref)
{
    while (c->n > 0) {
        struct waiting_claim *w = &c->ready[c->first++];
        c->n--;
        if (!inflight_lost(c->inflight, w->ref)) {
            *ret_claim = w->claim;
            *ret_ref = w->ref;
            return true;
        }
        inflight_remove(c->inflight, w->ref);
        claim_done(&w->claim);
    }
    return false;
}

bool claims_left(struct claims *c, struct claim *ret_claim, struct inflight_ref *ret_ref)
{
    (void)pthread_mutex_lock(&c->lock);
    bool had = pop(c, ret_claim, ret_ref);
    (void)pthread_mutex_unlock(&c->lock);
    return had;
}

static struct inflight_ref hold(struct claims *c, const struct claim *claim, int abort_fd)
{
    return inflight_add(c->inflight, claim->stream_id, claim->job_id, claim->attempt, abort_fd);
}

/* With the lock held. */
static void keep(struct claims *c, const struct claim *claims, int n)
{
    memmove(c->ready, c->ready + c->first, (size_t)c->n * sizeof *c->ready);
    c->first = 0;
    assert(n >= 0 && c->n + n <= CLAIMS_READ_MAX);
    for (int i = 0; i < n; i++) {
        c->ready[c->n++] =
            (struct waiting_claim){ .claim = claims[i], .ref = hold(c, &claims[i], -1) };
    }
}

void claims_keep(struct claims *c, const struct claim *claims, int n)
{
    (void)pthread_mutex_lock(&c->lock);
    keep(c, claims, n);
    (void)pthread_cond_broadcast(&c->news);
    (void)pthread_mutex_unlock(&c->lock);
}

/* With the lock held, let go while reading. *ret_wake: how many others have something to do now. */
static int read_some(struct claims *c, struct queue *q, const char *consumer, int64_t wait_ms,
                     struct claim *ret_claim, int *ret_wake, struct err *err)
{
    struct claim got[CLAIMS_READ_MAX];
    int want = c->waiting < CLAIMS_READ_MAX ? c->waiting : CLAIMS_READ_MAX;
    assert(c->n == 0 && !c->reading);
    c->reading = true;
    (void)pthread_mutex_unlock(&c->lock);
    int rc = queue_claims(q, consumer, wait_ms, got, want, err);
    (void)pthread_mutex_lock(&c->lock);
    c->reading = false;
    if (rc > 0) {
        *ret_claim = got[0];
        keep(c, got + 1, rc - 1);
    }
    *ret_wake = c->n + 1; /* one for each claim, and one that reads on */
    return rc > 0 ? 1 : rc;
}

int claims_take(struct claims *c, struct queue *q, const char *consumer, int64_t wait_ms,
                int abort_fd, struct claim *ret_claim, struct inflight_ref *ret_ref,
                struct err *err)
{
    int64_t until_us = mono_us() + wait_ms * 1000;
    int rc = 0, late = 0, wake = 0;
    (void)pthread_mutex_lock(&c->lock);
    c->waiting++;
    for (;;) {
        if (pop(c, ret_claim, ret_ref)) {
            inflight_enter_slot(c->inflight, *ret_ref, abort_fd);
            rc = 1;
            break;
        }
        if (!c->reading) {
            int64_t left_ms = (until_us - mono_us()) / 1000;
            rc = read_some(c, q, consumer, left_ms > 0 ? left_ms : 0, ret_claim, &wake, err);
            if (rc > 0) {
                *ret_ref = hold(c, ret_claim, abort_fd);
            }
            break;
        }
        if (late || wait_ms == 0) {
            break;
        }
        late = cond_wait_until(&c->news, &c->lock, until_us);
    }
    c->waiting--;
    wake = wake < c->waiting ? wake : c->waiting;
    (void)pthread_mutex_unlock(&c->lock);
    while (wake-- > 0) { /* without the lock: they would only wait for it */
        (void)pthread_cond_signal(&c->news);
    }
    return rc;
}
