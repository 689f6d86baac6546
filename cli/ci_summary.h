/* What `brood ci` says at the end, and the report files that it writes. */
#pragma once
#include <jansson.h>

#include "cli/ci_collect.h"
#include "common/store/jobs.h"

#define CI_FAILURES_SHOWN_MAX 50 /* in the table */
#define CI_FAILURES_JSON_MAX 1000

/* The table, for people. row: the job's; exit_code: from ci_collect_exit. */
void ci_summary_print(FILE *to, const struct ci_collect *c, const struct result_row *row,
                      int exit_code);
/* The same as one object; new reference. */
json_t *ci_summary_json(const struct ci_collect *c, const struct result_row *row, int exit_code);
/* Write the merged report as JUnit XML and CTRF (NULL: not wanted), each whole or not at all.
 * -ERR_TOO_LARGE, -ERR_SYS. */
MUST_CHECK int ci_summary_write(const struct ci_collect *c, const char *junit, const char *ctrf,
                                struct err *err);
