/* The time that a session was not there: stopped, without a processor, or its whole host standing
 * still. What a program does with its time is its own affair; this was not its time.
 *
 * A session that is there is always in poll, or comes back to it within a few milliseconds, and is
 * awake when it asked to be. Longer than ABSENCE_MIN_US is an absence, and counts whole; less is
 * what any host's scheduling does, which the processor's own meter accounts for (cpu_meter.h). */
#pragma once
#include <stdint.h>

#define ABSENCE_MIN_US 250000
#define ABSENCE_AFTER_US 100000 /* counts too: to read what has come meanwhile */

struct absence {
    int64_t seen_us;  /* mono: last there; 0: not yet */
    int64_t total_us; /* since absence_begin */
};

void absence_begin(struct absence *a);
/* About to wait. */
void absence_waits(struct absence *a, int64_t now_us);
/* Back from waiting, which was to end at due_us (INT64_MAX: at an event). */
void absence_back(struct absence *a, int64_t due_us, int64_t now_us);
