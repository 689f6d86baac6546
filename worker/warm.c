#include "worker/warm.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/kept.h"

#define KEY_CHARS 16 /* of a state in a heartbeat: a hash in hexadecimal digits */

struct state {
    uint64_t key;
    int64_t used_ms; /* mono; 0: a free place */
};

struct warm {
    const char *worker;
    pthread_mutex_t lock;
    struct state states[WARM_STATES_MAX];
    struct worker_info others[WARM_WORKERS_MAX]; /* as of heard_ms (mono; 0: never), us included */
    int n_others;
    int64_t heard_ms;
};

static_assert(WORKER_WARM_MAX > WARM_STATES_MAX * (KEY_CHARS + 1), "all of them");

struct warm *warm_new(const char *worker)
{
    struct warm *w = calloc(1, sizeof *w);
    if (!w) {
        abort();
    }
    w->worker = worker;
    (void)pthread_mutex_init(&w->lock, NULL);
    return w;
}

void warm_free(struct warm *w)
{
    if (w) {
        (void)pthread_mutex_destroy(&w->lock);
        free(w);
    }
}

static uint64_t add(uint64_t h, const char *s)
{
    for (;; s++) { /* FNV-1a, the end included */
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
        if (!*s) {
            return h;
        }
    }
}

static uint64_t key_of(const char *tenant, const char *base)
{
    return add(add(UINT64_C(14695981039346656037), tenant), base);
}

/* With the lock held: its place, or NULL. */
static struct state *find(struct warm *w, uint64_t key)
{
    int64_t now = mono_ms();
    for (int i = 0; i < WARM_STATES_MAX; i++) {
        struct state *s = &w->states[i];
        if (s->used_ms > 0 && s->key == key && now - s->used_ms < WARM_AGE_MS) {
            return s;
        }
    }
    return NULL;
}

void warm_used(struct warm *w, const char *tenant, const char *base)
{
    uint64_t key = key_of(tenant, base);
    (void)pthread_mutex_lock(&w->lock);
    struct state *s = find(w, key);
    for (int i = 0; i < WARM_STATES_MAX && !s; i++) { /* an old one of that key */
        s = w->states[i].used_ms > 0 && w->states[i].key == key ? &w->states[i] : NULL;
    }
    if (!s) {
        s = &w->states[0];
        for (int i = 1; i < WARM_STATES_MAX; i++) {
            s = w->states[i].used_ms < s->used_ms ? &w->states[i] : s;
        }
    }
    *s = (struct state){ .key = key, .used_ms = mono_ms() };
    (void)pthread_mutex_unlock(&w->lock);
}

void warm_text(struct warm *w, char out[WORKER_WARM_MAX])
{
    size_t len = 0;
    int64_t now = mono_ms();
    out[0] = 0;
    (void)pthread_mutex_lock(&w->lock);
    for (int i = 0; i < WARM_STATES_MAX; i++) {
        const struct state *s = &w->states[i];
        if (s->used_ms > 0 && now - s->used_ms < WARM_AGE_MS) {
            len += (size_t)snprintf(out + len, WORKER_WARM_MAX - len, "%016" PRIx64 " ", s->key);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
}

/* With the lock held: one slot asks, the others wait for what it hears. */
static void listen(struct warm *w, struct queue *q)
{
    struct err err;
    if (w->heard_ms > 0 && mono_ms() - w->heard_ms < WARM_LOOK_MS) {
        return;
    }
    int n = queue_workers(q, w->others, WARM_WORKERS_MAX, &err);
    w->n_others = n > 0 ? n : 0; /* Redis away: nobody */
    w->heard_ms = mono_ms();
}

static bool elsewhere(struct warm *w, struct queue *q, uint64_t key)
{
    char text[KEY_CHARS + 1];
    bool yes = false;
    (void)snprintf(text, sizeof text, "%016" PRIx64, key);
    (void)pthread_mutex_lock(&w->lock);
    if (!find(w, key)) {
        listen(w, q);
        for (int i = 0; i < w->n_others && !yes; i++) {
            const struct worker_info *o = &w->others[i];
            yes = o->busy < o->slots && strcmp(o->name, w->worker) != 0 && strstr(o->warm, text);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    return yes;
}

bool warm_elsewhere(struct warm *w, struct queue *q, const struct claim *claim)
{
    struct err err;
    cleanup_job_spec struct job_spec *spec = NULL;
    return claim->passed < WARM_PASSES_MAX && strstr(claim->spec, SNAPSHOT_TEMPLATE_PREFIX) &&
           job_parse(claim->spec, claim->spec_len, &spec, &err) == 0 &&
           kept_is(spec->template_name) &&
           elsewhere(w, q, key_of(claim->tenant, spec->template_name));
}
