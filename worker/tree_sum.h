/* What a job's tree comes to when all of its nodes have ended. Pure. */
#pragma once
#include "common/model/tree.h"
#include "worker/commit.h"

/* From the nodes' own results in e, and run, which has ended: the verdicts of all nodes, score and
 * reason of the job, the sums of its artifacts, and which branches are billed. */
void tree_sum(const struct tree_run *run, const struct job_spec *spec, struct commit_entry *e);
