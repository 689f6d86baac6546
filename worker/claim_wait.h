/* How long a claimed job waits, without a machine, for a server that has something of it. */
#pragma once
#include "worker/slot.h"

struct claim_wait {
    const char *job_id, *what; /* for the log, once: "a job waits for ..." */
    int64_t until_ms;
    bool told;
};
/* Before the first try. */
struct claim_wait claim_wait_begin(const char *job_id, const char *what);
/* After it could not be had (why): 1, it is to be tried again, some time has passed; 0, it was
 * waited for long enough, or the worker is to end; -ERR_STALE, the claim is lost. */
MUST_CHECK int claim_wait(const struct slot *s, struct claim_wait *w, struct err *why);
