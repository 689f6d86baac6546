#include "worker/inflight.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

struct entry {
    bool used, lost, cancelled, marked;
    uint64_t serial;
    int abort_fd; /* -1: not in a slot */
    int64_t since_us;
    char stream_id[INFLIGHT_STREAM_ID_MAX];
    char job_id[ID_TEXT_BYTES];
    int attempt;
};

struct inflight {
    pthread_mutex_t lock;
    int max, count;
    int next; /* where to look for a free entry first */
    uint64_t last_serial;
    struct entry *entries;
};

struct inflight *inflight_new(int max)
{
    assert(max > 0);
    struct inflight *f = calloc(1, sizeof *f);
    struct entry *entries = calloc((size_t)max, sizeof *entries);
    if (!f || !entries) {
        abort();
    }
    *f = (struct inflight){ .max = max, .entries = entries };
    int rc = pthread_mutex_init(&f->lock, NULL);
    assert(rc == 0);
    (void)rc;
    return f;
}

void inflight_free(struct inflight *f)
{
    if (f) {
        (void)pthread_mutex_destroy(&f->lock);
        free(f->entries);
        free(f);
    }
}

/* With the lock held: the entry of ref, or NULL when that claim has ended. */
static struct entry *find(struct inflight *f, struct inflight_ref ref)
{
    assert(ref.index >= 0 && ref.index < f->max);
    struct entry *e = &f->entries[ref.index];
    return e->used && e->serial == ref.serial ? e : NULL;
}

struct inflight_ref inflight_add(struct inflight *f, const char *stream_id, const char *job_id,
                                 int attempt, int abort_fd)
{
    (void)pthread_mutex_lock(&f->lock);
    assert(f->count < f->max);
    int i = f->next;
    while (f->entries[i].used) {
        i = (i + 1) % f->max;
    }
    f->next = (i + 1) % f->max;
    struct entry *e = &f->entries[i];
    *e = (struct entry){ .used = true,
                         .serial = ++f->last_serial,
                         .abort_fd = abort_fd,
                         .since_us = mono_us(),
                         .attempt = attempt };
    (void)snprintf(e->stream_id, sizeof e->stream_id, "%s", stream_id);
    (void)snprintf(e->job_id, sizeof e->job_id, "%s", job_id);
    f->count++;
    struct inflight_ref ref = { i, e->serial };
    (void)pthread_mutex_unlock(&f->lock);
    return ref;
}

/* With the lock held. */
static void wake(const struct entry *e)
{
    if (e->abort_fd >= 0) {
        uint64_t one = 1;
        ssize_t n = write(e->abort_fd, &one, sizeof one);
        assert(n == sizeof one);
        (void)n;
    }
}

void inflight_enter_slot(struct inflight *f, struct inflight_ref ref, int abort_fd)
{
    (void)pthread_mutex_lock(&f->lock);
    struct entry *e = find(f, ref);
    if (e) {
        e->abort_fd = abort_fd;
        e->since_us = mono_us();
        if (e->lost || e->cancelled) {
            wake(e);
        }
    }
    (void)pthread_mutex_unlock(&f->lock);
}

void inflight_leave_slot(struct inflight *f, struct inflight_ref ref)
{
    (void)pthread_mutex_lock(&f->lock);
    struct entry *e = find(f, ref);
    if (e) {
        e->abort_fd = -1;
    }
    (void)pthread_mutex_unlock(&f->lock);
}

void inflight_remove(struct inflight *f, struct inflight_ref ref)
{
    (void)pthread_mutex_lock(&f->lock);
    struct entry *e = find(f, ref);
    if (e) {
        e->used = false;
        f->count--;
    }
    (void)pthread_mutex_unlock(&f->lock);
}

bool inflight_cancel(struct inflight *f, const char *job_id)
{
    bool held = false;
    (void)pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->max; i++) {
        struct entry *e = &f->entries[i];
        if (e->used && !e->lost && !e->cancelled && strcmp(e->job_id, job_id) == 0) {
            e->cancelled = held = true;
            wake(e);
        }
    }
    (void)pthread_mutex_unlock(&f->lock);
    return held;
}

bool inflight_cancelled(struct inflight *f, struct inflight_ref ref)
{
    (void)pthread_mutex_lock(&f->lock);
    struct entry *e = find(f, ref);
    bool cancelled = e && e->cancelled && !e->lost;
    (void)pthread_mutex_unlock(&f->lock);
    return cancelled;
}

bool inflight_mark_lost(struct inflight *f, struct inflight_ref ref)
{
    (void)pthread_mutex_lock(&f->lock);
    struct entry *e = find(f, ref);
    if (e && !e->lost) {
        e->lost = true;
        wake(e);
    }
    (void)pthread_mutex_unlock(&f->lock);
    return e != NULL;
}

bool inflight_lost(struct inflight *f, struct inflight_ref ref)
{
    (void)pthread_mutex_lock(&f->lock);
    struct entry *e = find(f, ref);
    bool lost = !e || e->lost;
    (void)pthread_mutex_unlock(&f->lock);
    return lost;
}

static void copy(const struct entry *e, int index, struct inflight_claim *c)
{
    c->ref = (struct inflight_ref){ index, e->serial };
    memcpy(c->stream_id, e->stream_id, sizeof c->stream_id);
    memcpy(c->job_id, e->job_id, sizeof c->job_id);
    c->attempt = e->attempt;
}

int inflight_list(struct inflight *f, struct inflight_claim *ret_claims, int max)
{
    int n = 0;
    (void)pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->max && n < max; i++) {
        if (f->entries[i].used && !f->entries[i].lost) {
            copy(&f->entries[i], i, &ret_claims[n++]);
        }
    }
    (void)pthread_mutex_unlock(&f->lock);
    return n;
}

int inflight_take_unmarked(struct inflight *f, int64_t before_us, struct inflight_claim *ret_claims,
                           int max)
{
    int n = 0;
    (void)pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->max && n < max; i++) {
        struct entry *e = &f->entries[i];
        if (e->used && !e->lost && !e->marked && e->abort_fd >= 0 && e->since_us <= before_us) {
            e->marked = true;
            copy(e, i, &ret_claims[n++]);
        }
    }
    (void)pthread_mutex_unlock(&f->lock);
    return n;
}

int inflight_count(struct inflight *f)
{
    (void)pthread_mutex_lock(&f->lock);
    int n = f->count;
    (void)pthread_mutex_unlock(&f->lock);
    return n;
}
