/* What brood usage prints. */
#pragma once
#include "cli/cli.h"
#include "common/store/usage.h"

enum usage_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON, FORMAT_FOCUS };

/* Sums by group. Returns an exit code. */
int usage_report(struct cli *cli, struct pg *pg, const struct usage_query *q, enum usage_format f);
/* Every line in the FOCUS layout. */
int usage_focus(struct cli *cli, struct pg *pg, const struct usage_query *q);
/* What was not billed. */
int usage_overhead(struct cli *cli, struct pg *pg, const struct usage_query *q,
                   enum usage_format f);
/* The check: CLI_OK, or CLI_NOT_AS_WANTED when something disagrees. */
int usage_check(struct cli *cli, struct pg *pg);
