/* The heartbeat: one thread that tells Redis which claims are still held and that the worker lives.
 *
 * Every worker.heartbeat_ms it renews all claims in flight; one that belongs to another consumer by
 * now is marked lost, which aborts its job. Redis away: it tries again at the next beat; the claims
 * may expire meanwhile, and the store's guard decides. */
#pragma once
#include <stdatomic.h>
#include "common/base/config.h"
#include "common/base/err.h"
#include "worker/commit.h"
#include "worker/inflight.h"
#include "worker/warm.h"

struct heartbeat;

/* config, name, inflight, busy (slots with a job now), extra (places of further branches), spool
 * and warm must outlive it. */
MUST_CHECK int heartbeat_start(const struct config *config, const char *name,
                               struct inflight *inflight, const atomic_int *busy,
                               const atomic_int *extra, const struct spool_view *spool,
                               struct warm *warm, struct heartbeat **ret_heartbeat,
                               struct err *err);
/* Take the worker off the list of the living, end the thread, free. */
void heartbeat_stop(struct heartbeat *h);
