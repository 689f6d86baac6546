#include "worker/publisher.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/base/id.h"
#include "common/base/log.h"

struct piece {
    STAILQ_ENTRY(piece) link;
    uint64_t era;
    char job_id[ID_TEXT_BYTES];
    struct log_piece what;
    size_t len;
    char data[];
};
STAILQ_HEAD(pieces, piece);

struct publisher {
    const struct config *config;
    struct queue queue; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct pieces waiting;
    size_t bytes; /* of them */
    uint64_t era;
    bool stopping;
};

static size_t cost(const struct piece *e)
{
    return sizeof *e + e->len;
}

static int publish(struct queue *q, const struct piece *e, struct err *err)
{
    return e->what.stream == 0 ? queue_log_end(q, e->job_id, err)
                               : queue_log_add(q, e->job_id, &e->what, e->data, e->len, err);
}

/* All that is shown now ends. With the lock held. */
static void end_views(struct publisher *p)
{
    struct piece *e;
    p->era++;
    while ((e = STAILQ_FIRST(&p->waiting))) {
        STAILQ_REMOVE_HEAD(&p->waiting, link);
        free(e);
    }
    p->bytes = 0;
}

/* The next piece, waited for; NULL: the end. */
static struct piece *next(struct publisher *p)
{
    (void)pthread_mutex_lock(&p->lock);
    while (STAILQ_EMPTY(&p->waiting) && !p->stopping) {
        (void)pthread_cond_wait(&p->news, &p->lock);
    }
    struct piece *e = STAILQ_FIRST(&p->waiting);
    if (e) {
        STAILQ_REMOVE_HEAD(&p->waiting, link);
        p->bytes -= cost(e);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return e;
}

static void *publisher_main(void *arg)
{
    struct publisher *p = arg;
    struct piece *e;
    while ((e = next(p))) {
        struct err err = { 0 };
        if (publish(&p->queue, e, &err) < 0) {
            log_debug("live output ends", "job", e->job_id, "error", err.text);
            (void)pthread_mutex_lock(&p->lock);
            if (e->era == p->era) { /* else of a view that has ended meanwhile */
                end_views(p);
            }
            (void)pthread_mutex_unlock(&p->lock);
        }
        free(e);
    }
    queue_close(&p->queue);
    return NULL;
}

int publisher_start(const struct config *config, struct publisher **ret_publisher, struct err *err)
{
    struct publisher *p = calloc(1, sizeof *p);
    if (!p) {
        abort();
    }
    p->config = config;
    STAILQ_INIT(&p->waiting);
    (void)snprintf(p->queue.url, sizeof p->queue.url, "%s", config->redis_url);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->news, NULL);
    int rc = pthread_create(&p->thread, NULL, publisher_main, p);
    if (rc != 0) {
        free(p);
        return err_set(err, ERR_INTERNAL, "live output: thread: %s", strerror(rc));
    }
    *ret_publisher = p;
    return 0;
}

void publisher_stop(struct publisher *p)
{
    if (!p) {
        return;
    }
    (void)pthread_mutex_lock(&p->lock);
    p->stopping = true;
    (void)pthread_cond_signal(&p->news);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    assert(STAILQ_EMPTY(&p->waiting));
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->news);
    free(p);
}

uint64_t publisher_era(struct publisher *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t era = p->era;
    (void)pthread_mutex_unlock(&p->lock);
    return era;
}

bool publisher_put(struct publisher *p, uint64_t era, const char *job_id,
                   const struct log_piece *piece, const void *data, size_t len)
{
    assert(id_valid(job_id) && (len == 0) == (piece->stream == 0) && len < PUBLISHER_BYTES_MAX / 4);
    struct piece *e = malloc(sizeof *e + len);
    if (!e) {
        abort();
    }
    *e = (struct piece){ .era = era, .what = *piece, .len = len };
    (void)snprintf(e->job_id, sizeof e->job_id, "%s", job_id);
    memcpy(e->data, data, len);
    (void)pthread_mutex_lock(&p->lock);
    if (p->bytes + cost(e) > PUBLISHER_BYTES_MAX) {
        end_views(p);
    }
    bool goes_on = era == p->era;
    if (goes_on) {
        STAILQ_INSERT_TAIL(&p->waiting, e, link);
        p->bytes += cost(e);
        (void)pthread_cond_signal(&p->news);
    } else {
        free(e);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return goes_on;
}
