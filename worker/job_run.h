/* One claimed job, from top to bottom: parse, lease, session, judge, hand over. */
#pragma once
#include "worker/slot.h"

/* Run the claim in slot s (which holds a place in the committer's queue: it is used up). Takes over
 * what claim owns. Thread of the slot. */
void job_run(struct slot *s, struct claim *claim, struct inflight_ref ref, bool saturated);
