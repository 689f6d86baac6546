/* When the database's clock may be believed with what cannot be taken back. Pure.
 *
 * A clock that jumps forward for a moment, or that is wrong until somebody sets it after a boot,
 * makes hours seem over that are not. Against a monotonic clock a step is seen; after one, and
 * after the first look, the clock has to go on without another for a while. A step back needs no
 * wait: what is not over yet comes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define CLOCK_STEP_MS 500      /* more than a clock is slewed between two looks */
#define CLOCK_SETTLE_MS 600000 /* without a step forward */

struct clock_settle { /* zeroed: nothing is known */
    bool known;
    int64_t ahead_ms; /* of the monotonic clock, at most, when it was last looked at */
    int64_t since_ms; /* monotonic: the last step forward, or the first look */
};

/* A look: the clock said db_ms at some moment between before_ms and after_ms of the monotonic one.
 * May db_ms be believed? A look that took too long to tell says no, and changes nothing. */
bool clock_settled(struct clock_settle *c, int64_t before_ms, int64_t db_ms, int64_t after_ms);
