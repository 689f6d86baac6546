/* The worker of a host: slots, a committer and a heartbeat, started and stopped together. */
#pragma once
#include "common/base/config.h"
#include "common/base/err.h"
#include "worker/slot.h"

struct worker;

/* Start all threads; they claim as soon as what they need is there. config must outlive the worker.
 * script NULL: jobs run in vmpool's sandboxes. Signals should be blocked by the caller before: the
 * threads inherit its mask. */
MUST_CHECK int worker_start(const struct config *config, job_script script,
                            struct worker **ret_worker, struct err *err);
/* Claim nothing more; what runs may go on. */
void worker_drain(struct worker *w);
/* Have all slots ended? */
bool worker_drained(struct worker *w);
/* Abort what still runs (those attempts count as failed and are retried), commit what there is
 * within commit_wait_ms, end all threads, free. Returns how many results were left uncommitted;
 * their claims expire. NULL is allowed. */
int worker_stop(struct worker *w, int64_t commit_wait_ms);
