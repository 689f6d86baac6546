/* Conditions that are waited for by the clock of mono_us(). */
#pragma once
#include <pthread.h>
#include <stdint.h>

void cond_init(pthread_cond_t *cond);
/* As pthread_cond_timedwait(): 0, or ETIMEDOUT once mono_us() is at_us. cond was made by
 * cond_init(). */
int cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t at_us);
