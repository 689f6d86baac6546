/* Jobs that are taken back while they run.
 *
 * One thread reads brood:cancel, its position its own: every worker reads every entry and looks
 * whether the job is one of its claims. The slot is woken as for a lost claim, but the claim is
 * still held, and what the job has cost until then is committed with the verdict cancelled. An
 * entry that is missed is written again by the scheduler until the job has ended. */
#pragma once
#include "common/base/config.h"
#include "worker/commit.h"
#include "worker/inflight.h"

struct cancels;

/* config and inflight must outlive it. */
MUST_CHECK int cancels_start(const struct config *config, struct inflight *inflight,
                             struct cancels **ret_cancels, struct err *err);
void cancels_stop(struct cancels *c);
/* The attempt in e was broken off since its job was cancelled: make it an end. Branches that had
 * ended keep their verdicts; every sandbox that ran is billed to that moment. */
void cancel_settle(struct commit_entry *e);
