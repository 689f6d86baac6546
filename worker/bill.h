/* Usage records of what a sandbox did, by the rates of the configuration. Pure. */
#pragma once
#include "common/base/config.h"
#include "common/model/result.h"
#include "common/model/usage.h"

/* branch: "" for the job's own sandbox, else tree_usage_branch. */
void bill_sandbox(const struct config *c, const char *job_id, int attempt, const char *branch,
                  const struct job_result *r, struct usage_record usage[METER_COUNT]);
