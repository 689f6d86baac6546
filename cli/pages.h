/* Branches and artifacts of a job, page by page, whatever their number. */
#pragma once
#include "common/store/jobs.h"

/* fn returns <0 to stop. */
typedef int (*branch_fn)(void *ctx, const struct branch_result *b, struct err *err);
typedef int (*artifact_fn)(void *ctx, const struct artifact_row *row, struct err *err);
/* Each node below the job, in order; with_output: with the bytes of its streams. Returns the count.
 */
MUST_CHECK int pages_branches(struct pg *pg, const char *job_id, bool with_output, branch_fn fn,
                              void *ctx, struct err *err);
/* Each artifact of the node, or of all (node -1), in order. Returns the count. */
MUST_CHECK int pages_artifacts(struct pg *pg, const char *job_id, int node, artifact_fn fn,
                               void *ctx, struct err *err);
