/* The log of job.finished, replayed from a position.
 *
 * Every end of a job writes one row in results, in the transaction of the end, with the next number
 * of a sequence: these rows are the log. It is complete by construction, and as durable as the
 * results; the stream in Redis is only the quick way to hear of it. Numbers are given out before
 * their transactions commit, so a reader that takes the rows it sees could pass over one that
 * comes later. store_events therefore first notes the last number given out, waits until every
 * transaction of that moment has ended, and then reads up to it. */
#pragma once
#include "common/base/id.h"
#include "common/model/job.h"
#include "common/store/pg.h"

#define STORE_EVENTS_MAX 1000

struct event_row {
    int64_t position; /* 1 or more; grows; numbers of transactions that failed are missing */
    char job_id[ID_TEXT_BYTES], batch_id[ID_TEXT_BYTES]; /* batch "": none */
    char tenant[JOB_TENANT_MAX + 1], state[16], verdict[32];
    int64_t finished_ms; /* UTC */
};
/* Up to max (STORE_EVENTS_MAX) events behind position after, in order; tenant NULL: of all. Returns
 * how many; 0: no more now. *ret_next is the position to go on from: that of the last row, or
 * behind numbers that nothing will come of. -ERR_TIMEOUT: a transaction of before does not end
 * within wait_ms. */
MUST_CHECK int store_events(struct pg *pg, const char *tenant, int64_t after, int max,
                            int64_t wait_ms, struct event_row *ret_rows, int64_t *ret_next,
                            struct err *err);
