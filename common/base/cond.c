#include "common/base/cond.h"

#include <assert.h>
#include <time.h>

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    assert(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    assert(rc == 0);
    rc = pthread_cond_init(cond, &attr);
    assert(rc == 0);
    (void)rc;
    (void)pthread_condattr_destroy(&attr);
}

int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t at_us)
{
    struct timespec at = { .tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000 };
    return pthread_cond_timedwait(cond, lock, &at);
}
