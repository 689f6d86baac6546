/* A job's result as brood prints it (schemas/json/result.schema.json, docs/cli.md "results"). Pure.
 */
#pragma once
#include <jansson.h>
#include "common/store/jobs.h"

/* New reference. */
json_t *result_to_json(const struct result_row *row);
/* A node below it, an object of `branches`; new reference. */
json_t *branch_to_json(const struct branch_result *b);
/* The label `expected_verdict` of the job: true when there is one; value (alternatives divided by
 * '|') into out. */
bool result_expected(const struct result_row *row, char *out, size_t room);
/* Is verdict one of the alternatives? */
bool verdict_in(const char *alternatives, enum verdict verdict);
