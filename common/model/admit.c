#include "common/model/admit.h"

#include <assert.h>

#define MINUTE_US ((int64_t)60 * 1000000)

static int64_t bounded_ms(int64_t ms)
{
    return ms < ADMIT_WAIT_MS_MIN   ? ADMIT_WAIT_MS_MIN
           : ms > ADMIT_WAIT_MS_MAX ? ADMIT_WAIT_MS_MAX
                                    : ms;
}

static int64_t owed_us(const struct admit_state *s)
{
    return s->ahead_us > 0 ? s->ahead_us : 0;
}

/* MINUTE_US * n / rate without overflow, rounded up. */
static int64_t cost_us(int64_t n, int64_t rate)
{
    return (int64_t)(((__int128)MINUTE_US * n + rate - 1) / rate);
}

static int64_t queue_wait_ms(const struct admit_state *s, int64_t over)
{
    if (s->done_per_minute <= 0) {
        return ADMIT_WAIT_MS_UNKNOWN;
    }
    __int128 ms = ((__int128)over * 60000 + s->done_per_minute - 1) / s->done_per_minute;
    return bounded_ms(ms > ADMIT_WAIT_MS_MAX ? ADMIT_WAIT_MS_MAX : (int64_t)ms);
}

struct admit admit(const struct admit_terms *t, const struct admit_state *s, int64_t n)
{
    assert(n > 0 && t->queued_max >= 0 && t->per_minute_max >= 0 && s->waiting >= 0);
    struct admit a = { .n = n };
    if (t->queued_max > 0 && s->waiting + n > t->queued_max) {
        int64_t room = t->queued_max - s->waiting;
        a.n = room > 0 ? room : 0;
        a.cap = ADMIT_QUEUED;
        /* more than the queue ever holds can only come in pieces: when it is empty, as a guide */
        int64_t over = s->waiting + n - t->queued_max;
        a.wait_ms = queue_wait_ms(s, over < s->waiting ? over : s->waiting);
    }
    int64_t rate = t->per_minute_max, owed = owed_us(s);
    if (rate > 0 && owed + cost_us(a.n, rate) > MINUTE_US && !(a.n > rate && owed == 0)) {
        int64_t fits =
            (int64_t)((__int128)(MINUTE_US > owed ? MINUTE_US - owed : 0) * rate / MINUTE_US);
        int64_t need = a.n > rate ? owed : owed + cost_us(a.n, rate) - MINUTE_US;
        a.cap = ADMIT_RATE;
        a.n = fits < a.n ? fits : a.n;
        a.wait_ms = bounded_ms((need + 999) / 1000);
    }
    return a;
}

int64_t admit_ahead_us(const struct admit_terms *t, const struct admit_state *s, int64_t n)
{
    return t->per_minute_max > 0 ? owed_us(s) + cost_us(n, t->per_minute_max) : 0;
}
