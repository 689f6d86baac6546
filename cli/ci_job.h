/* From a plan to the one job that `brood ci` submits (docs/ci.md, "The job"). Pure.
 *
 * Several shards: archive and setup at the root, one branch a shard. One shard: a job without
 * branches, since nothing would share the frozen state.
 * A plan that starts from a kept state (ci_keep.h) has that as its template and no setup. */
#pragma once
#include "cli/brood_json.h"
#include "cli/ci_deal.h"
#include "common/model/job.h"

/* Defaults of a shard's command and of each line of setup: a test suite's, not a judged program's.
 */
#define CI_CPU_MS_DEFAULT 600000
#define CI_OUTPUT_BYTES_DEFAULT (1 << 20)
#define CI_LABEL_MAX 24

/* "2/4" for shard 1 of 4. */
void ci_shard_label(unsigned shard, unsigned shards, char out[CI_LABEL_MAX]);
/* object: the SHA-256 of the packed checkout, 64 hex digits. -ERR_INVALID, -ERR_TOO_LARGE: the
 * job's rules; the text names the job's field. */
MUST_CHECK int ci_job_make(const struct brood_json *plan, const char *object,
                           const struct ci_deal *deal, struct job_spec **ret_spec, struct err *err);
/* The finished object as a job; errors as ci_job_make's. */
MUST_CHECK int ci_job_parse(const json_t *job, struct job_spec **ret_spec, struct err *err);
/* The plan's setup as the job's. */
MUST_CHECK int ci_put_setup(const struct brood_json *plan, json_t *job, struct err *err);
/* Index of the shard that node is the leaf of, or -1. */
int ci_shard_of_node(const struct ci_deal *deal, int node);
