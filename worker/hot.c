#include "worker/hot.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

struct hot_park {
    const struct config *config;
    int max, n;
    pthread_mutex_t lock;
    struct hot *first; /* the one parked last */
};

struct hot_park *hot_park_new(const struct config *config, int max)
{
    assert(max > 0);
    struct hot_park *p = calloc(1, sizeof *p);
    if (!p) {
        abort();
    }
    p->config = config;
    p->max = max;
    int rc = pthread_mutex_init(&p->lock, NULL);
    assert(rc == 0);
    (void)rc;
    return p;
}

void hot_park_free(struct hot_park *p)
{
    if (p) {
        hot_tidy(p, true);
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
    }
}

static bool same_key(const struct hot_key *a, const struct hot_key *b)
{
    return strcmp(a->tenant, b->tenant) == 0 && strcmp(a->batch, b->batch) == 0 &&
           strcmp(a->template_name, b->template_name) == 0;
}

struct hot *hot_take(struct hot_park *p, const struct hot_key *key)
{
    struct hot *h = NULL;
    (void)pthread_mutex_lock(&p->lock);
    for (struct hot **at = &p->first; *at && !h; at = h ? at : &(*at)->next) {
        if (same_key(&(*at)->key, key)) {
            h = *at;
            *at = h->next;
            p->n--;
        }
    }
    (void)pthread_mutex_unlock(&p->lock);
    return h;
}

int hot_new(const struct config *config, const struct hot_key *key, struct hot **ret_hot,
            struct err *err)
{
    struct hot *h = calloc(1, sizeof *h);
    if (!h) {
        abort();
    }
    h->key = *key;
    h->born_us = mono_us();
    session_init(&h->session);
    int rc = pool_client_init(&h->pool, config->vmpool_socket, err);
    if (rc < 0) {
        hot_drop(h);
        return rc;
    }
    *ret_hot = h;
    return 0;
}

void hot_drop(struct hot *h)
{
    if (!h) {
        return;
    }
    if (h->leased) {
        pool_release(&h->pool, &h->lease);
    }
    pool_client_done(&h->pool);
    session_done(&h->session);
    free(h);
}

/* Takes those off the list that have to go: beyond max, or parked before limit_us. Lock is held. */
static struct hot *take_old(struct hot_park *p, int max, int64_t limit_us)
{
    struct hot *old = NULL;
    int kept = 0;
    for (struct hot **at = &p->first; *at;) {
        struct hot *h = *at;
        if (kept < max && h->parked_us >= limit_us) {
            kept++;
            at = &h->next;
            continue;
        }
        *at = h->next;
        h->next = old;
        old = h;
        p->n--;
    }
    return old;
}

static void drop_all(struct hot *list)
{
    while (list) {
        struct hot *next = list->next;
        hot_drop(list);
        list = next;
    }
}

void hot_put(struct hot_park *p, struct hot *h)
{
    h->parked_us = mono_us();
    (void)pthread_mutex_lock(&p->lock);
    h->next = p->first;
    p->first = h;
    p->n++;
    struct hot *old = take_old(p, p->max, h->parked_us - HOT_IDLE_MS * 1000);
    (void)pthread_mutex_unlock(&p->lock);
    drop_all(old);
}

void hot_tidy(struct hot_park *p, bool all)
{
    (void)pthread_mutex_lock(&p->lock);
    struct hot *old = take_old(p, all ? 0 : p->max, mono_us() - HOT_IDLE_MS * 1000);
    (void)pthread_mutex_unlock(&p->lock);
    drop_all(old);
}

static bool clean(const struct run_result *run)
{
    return !run->present ||
           (run->oom_kills == 0 && run->process_refusals == 0 && run->leftover_processes == 0);
}

bool hot_may_stay(const struct config *config, const struct hot *h, const struct job_result *r,
                  int64_t now_us)
{
    bool judged = r->verdict == VERDICT_ACCEPTED || r->verdict == VERDICT_WRONG_ANSWER ||
                  r->verdict == VERDICT_RUNTIME_ERROR || r->verdict == VERDICT_COMPILE_ERROR;
    return judged && !r->limit_name[0] && h->session.stop == STOP_NONE &&
           h->session.state == SESSION_EXITED && clean(&r->setup) && clean(&r->run) &&
           h->runs < (unsigned)config->worker_shared_runs_max &&
           now_us - h->born_us < config->worker_shared_age_ms * 1000 && h->key.batch[0];
}
