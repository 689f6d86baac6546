/* Content of artifacts that waits on this host for the object store.
 *
 * Theory: a store that is away costs neither a verdict nor a file. What it does not take is linked
 * into HOME/spool/objects under the job's id and its digest, durable before the result commits with
 * the artifact marked `pending`. One thread offers what is there to the store; when it has it, and
 * the job's rows say so, the file is removed. A result that is not in Postgres yet keeps its files:
 * they are offered again until the job has ended. One that fails is passed over for a while, which
 * doubles each time; one that is not what its digest says any more is given up after some tries
 * (until the next start). When several fail one after the other the store is away: then it is asked
 * for one file at a time, and nobody else asks it: what slots have is kept at once (pending_away),
 * until the thread has stored something again. Files outlive the worker: the next one of this home
 * goes on. Thread-safe. */
#pragma once
#include "common/base/config.h"
#include "common/store/object.h"

struct pending;

/* config and objects must outlive it. The folder is made when there is something to keep. */
MUST_CHECK int pending_start(const struct config *config, struct object_store *objects,
                             struct pending **ret_pending, struct err *err);
/* Ends the thread; what waits stays. NULL allowed. */
void pending_stop(struct pending *p);
/* Keep size bytes of the regular file fd from its offset on. -ERR_NO_CAPACITY: worker.spool_mib
 * would be passed; -ERR_SYS. */
MUST_CHECK int pending_keep(struct pending *p, const char *job_id, const char *sha256, int fd,
                            uint64_t size, struct err *err);
/* The store did not answer a slot whose files are kept now: it is away until one of them is stored.
 */
void pending_say_away(struct pending *p);
bool pending_away(struct pending *p);
