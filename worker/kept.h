/* Kept states, the worker's side: from the tenant's snapshot to a state that vmpool can start, and
 * back.
 *
 * Theory: vmpool writes and reads HOME/kept/ID (its format is vmpool's own, kept.h there); the row
 * in Postgres says which objects a state needs, in the object store under their digests. ID is the
 * digest of the state's manifest, so the manifest's object is named ID too. The folder is a cache:
 * what is missing is fetched (kept_fetch), what was not used for longest is removed when it grows
 * beyond worker.kept_cache_mib_max (kept_trim), but for what the object store does not have yet and
 * what was used within the last minute; a state that vmpool has loaded needs its files no more.
 * Thread-safe: any slot or lane may call. */
#pragma once
#include "common/base/config.h"
#include "common/model/job.h"
#include "common/store/object.h"
#include "common/store/snapshots.h"
#include "worker/pool_client.h"

struct kept;

/* config and objects (may be NULL: no states then) outlive it. Does not connect yet. */
struct kept *kept_new(const struct config *config, struct object_store *objects);
void kept_free(struct kept *k);

/* Does a job's template name a kept state? */
bool kept_is(const char *template_name);
/* What "snapshot:NAME" stands for now; counts as used. -ERR_NOT_FOUND. */
MUST_CHECK int kept_resolve(struct kept *k, const char *tenant, const char *template_name,
                            struct snapshot_row *ret_row, struct err *err);
/* pool_lease for that state: fetched first when this host has not got it. Where another slot
 * fetches it, that is waited for; nobody waits for a state that is not theirs. abort_fd readable
 * ends both with -ERR_STALE; whoever waited begins anew. */
MUST_CHECK int kept_lease(struct kept *k, struct pool_client *pool, const struct snapshot_row *row,
                          bool saturated, int abort_fd, int64_t timeout_ms, struct lease *ret_lease,
                          struct err *err);

struct kept_ask {
    const char *tenant, *job_id;
    int attempt, node;
    const struct job_keep *keep;
    const struct snapshot_row *from; /* what the job started from; NULL: a template */
};
/* Keep the frozen lease's state: written by vmpool, copied to the object store; *ret_row is the row
 * to be committed with the job. Its id derives from job, attempt and node. */
MUST_CHECK int kept_store(struct kept *k, struct pool_client *pool, const struct lease *frozen,
                          int abort_fd, const struct kept_ask *ask, struct snapshot_row *ret_row,
                          struct err *err);

/* A state that other workers fetch while this job runs: as kept_store, but nobody names it, so only
 * digest and layers of the row are filled. */
MUST_CHECK int kept_lend(struct kept *k, struct pool_client *pool, const struct lease *frozen,
                         int abort_fd, const struct snapshot_row *from,
                         struct snapshot_row *ret_row, struct err *err);
/* Nobody fetches it any more: it leaves this disk and the object store. */
void kept_lend_end(struct kept *k, const struct snapshot_row *row);
