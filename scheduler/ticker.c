#include "scheduler/ticker.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/base/cond.h"

bool ticker_stopping(struct ticker *t)
{
    (void)pthread_mutex_lock(&t->lock);
    bool s = t->stopping;
    (void)pthread_mutex_unlock(&t->lock);
    return s;
}

/* false: it is to stop. */
static bool pause_ms(struct ticker *t, int64_t ms)
{
    int64_t at_us = mono_us() + ms * 1000;
    (void)pthread_mutex_lock(&t->lock);
    int rc = 0;
    while (!t->stopping && rc == 0) {
        rc = cond_wait_until(&t->wake, &t->lock, at_us);
    }
    bool on = !t->stopping;
    (void)pthread_mutex_unlock(&t->lock);
    return on;
}

static void *run(void *arg)
{
    struct ticker *t = arg;
    while (!ticker_stopping(t) && pause_ms(t, t->turn(t->arg))) {
    }
    return NULL;
}

int ticker_start(struct ticker *t, ticker_fn turn, void *arg, struct err *err)
{
    t->turn = turn;
    t->arg = arg;
    t->stopping = false;
    (void)pthread_mutex_init(&t->lock, NULL);
    cond_init(&t->wake);
    int rc = pthread_create(&t->thread, NULL, run, t);
    if (rc != 0) {
        (void)pthread_cond_destroy(&t->wake);
        (void)pthread_mutex_destroy(&t->lock);
        errno = rc;
        return err_sys(err, "a thread beside the scheduler's loop");
    }
    return 0;
}

void ticker_stop(struct ticker *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->stopping = true;
    (void)pthread_cond_signal(&t->wake);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->lock);
}
