/* One case of tests/e2e/cases: jobs and what must come out of them. The format is described in
 * cases/README.md. */
#pragma once
#include <jansson.h>
#include "common/base/buf.h"

/* Read a case file; lists of strings under "text", "stdin" and "stdout" become lines. Aborts on a
 * malformed file. The caller owns the result. */
json_t *case_load(const char *path);
/* The jobs of a case in order, "repeat" unrolled: [{"job":..., "expect":...}]. New reference. */
json_t *case_jobs(const json_t *case_);
/* Compare one result line of `brood results` with expect; adds one line per difference to out.
 * Returns how many. */
int case_check(const json_t *expect, const json_t *result, struct buf *out);
/* The case's "relation" over all its results ("distinct_stdout", "equal_stdout"); as above. */
int case_check_relation(const json_t *case_, const json_t *results, struct buf *out);
