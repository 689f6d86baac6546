/* May a tenant submit more now, and if not, when? Pure.
 *
 * Two caps. The queue's length: what waits may not grow beyond it. The rate: a generic cell rate
 * algorithm with a burst of one minute: each job moves the tenant's theoretical arrival time on by
 * 60 s / rate, and it may not be further ahead than one minute; a submission larger than the cap
 * itself is let in when nothing is owed, and pays afterwards. The answer to what does not fit says
 * when it will, as far as that can be known. */
#pragma once
#include <stdint.h>

#define ADMIT_WAIT_MS_MIN 1000
#define ADMIT_WAIT_MS_MAX 300000
#define ADMIT_WAIT_MS_UNKNOWN 30000 /* the queue is full and nothing is known of its pace */

struct admit_terms {
    int64_t queued_max;     /* jobs that may wait; 0: no cap */
    int64_t per_minute_max; /* jobs submitted in a minute; 0: no cap */
};

struct admit_state {
    int64_t waiting;         /* now */
    int64_t ahead_us;        /* theoretical arrival time less now; 0 or less: nothing is owed */
    int64_t done_per_minute; /* how fast the queue was emptied lately; 0: unknown */
};

enum admit_cap { ADMIT_ALL, ADMIT_QUEUED, ADMIT_RATE };

struct admit {
    enum admit_cap cap; /* which one stands in the way of the rest */
    int64_t n;          /* of the jobs asked for, how many may come in */
    int64_t wait_ms;    /* until the rest fits, ADMIT_WAIT_MS_MIN to _MAX; 0 with ADMIT_ALL */
};
/* n jobs, 1 or more. */
struct admit admit(const struct admit_terms *t, const struct admit_state *s, int64_t n);
/* What ahead_us becomes by n jobs that came in. */
int64_t admit_ahead_us(const struct admit_terms *t, const struct admit_state *s, int64_t n);
