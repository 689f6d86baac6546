/* The spec of a claimed job, where the queue did not carry it (store_spec): read from Postgres,
 * while the claim is held and renewed. */
#pragma once
#include "worker/slot.h"

/* Fills claim->spec, if it is not there. A Postgres that is away is waited for, unless the worker
 * is to end or the claim is lost (-ERR_STALE). Connects and closes: large jobs are few. */
MUST_CHECK int claim_spec(struct slot *s, struct claim *claim, struct err *err);
