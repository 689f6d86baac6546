/* A claimed job with branches, in one slot: its tree of states run with forks, in parallel.
 *
 * Theory: the slot's thread is the coordinator. It alone owns the tree's states (tree_run) and the
 * frozen sandboxes; a node runs in a lane, a thread with a session and a vmpool connection of its
 * own, which touches nothing but that node's result. A lane ends its node with a verdict, or frozen
 * (the lease is then the coordinator's, held by the lane's connection), or with a fault of ours:
 * the node is tried again from its parent's state. The first lane uses the slot's own place on the
 * host; every further one needs a place that no slot uses (slot_shared.extra). When the coordinator
 * is told to give up, every lane is, and with the lanes' connections all sandboxes end. */
#pragma once
#include "worker/commit.h"
#include "worker/slot.h"

/* Fills e's result, branches, artifacts and usage. first: node 0's sandbox, leased by the slot at
 * leased_us (mono) after a request at lease_start_us; used up. from: the kept state it was started
 * from, or NULL. 0, or the attempt failed. */
MUST_CHECK int tree_exec(struct slot *s, const struct job_spec *spec,
                         const struct snapshot_row *from, struct lease *first,
                         int64_t lease_start_us, int64_t leased_us, struct commit_entry *e,
                         struct err *err);
