/* The archive of a claimed job, unpacked before a machine is leased: a slow store is no time of the
 * job's, and holds no machine. */
#pragma once
#include "worker/slot.h"

/* Fills s->archive (empty: the job has none); job_unpacked_done. A store that is away, or has not
 * the object now, is waited for while the claim is held and renewed, unless the worker is to end or
 * the claim is lost (-ERR_STALE). What the user is to blame for is no error: s->archive.refused. */
MUST_CHECK int claim_archive(struct slot *s, const char *job_id, const struct job_spec *spec,
                             struct err *err);
