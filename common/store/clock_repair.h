/* When the clock of Postgres goes back.
 *
 * Times in rows (not_before, scheduled_at) are of the database's clock. Set back by an hour it
 * would keep jobs waiting for an hour that nobody asked to wait, and claims of lost entries unseen.
 * The scheduler compares that clock with its own monotonic one and calls this after a step back;
 * and once when it begins to lead. A wish of the job's own (not_before, deadline) is a time of day
 * and stays one. */
#pragma once
#include <stdint.h>
#include "common/store/pg.h"

/* Milliseconds of the database's clock, UTC. */
MUST_CHECK int store_clock_ms(struct pg *pg, int64_t *ret_ms, struct err *err);
/* by_ms: how far; 0: not known, or said before. What waits for no reason of its own becomes due;
 * back-offs longer than retry_max_ms from now are cut to it; jobs in flight count as dispatched
 * now, and as cancelled now; what is owed for submissions (submit_per_minute_max) ends no later
 * than it would have. Returns how many jobs changed. */
MUST_CHECK int store_clock_went_back(struct pg *pg, int64_t by_ms, int64_t retry_max_ms,
                                     struct err *err);
