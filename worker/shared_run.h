/* One job with isolation shared: in a container of a machine that its batch's jobs share. */
#pragma once
#include "common/store/snapshots.h"
#include "worker/hot.h"
#include "worker/slot.h"

/* A lease with the patience of a claim (job_run.c). */
typedef int lease_fn(struct slot *s, struct pool_client *pool, const char *template_name,
                     const struct snapshot_row *from, bool saturated, struct lease *ret_lease,
                     struct err *err);

/* Fills e's result as an ordinary run would. *ret_ready_us (mono): when the container was there,
 * from where the job is billed; *ret_end_us: to where; *ret_trace: the session's. 0, or the attempt
 * failed. */
MUST_CHECK int shared_run(struct slot *s, struct job_spec *spec, bool saturated, lease_fn *lease,
                          struct commit_entry *e, int64_t *ret_ready_us, int64_t *ret_end_us,
                          struct session_trace *ret_trace, struct err *err);
