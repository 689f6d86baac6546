/* brood report JOB: one line a branch. */
#pragma once
#include "cli/cli.h"
#include "common/store/jobs.h"

/* To stdout, as a table or (--json) one object. */
MUST_CHECK int branch_report(const struct cli *cli, struct pg *pg, const struct result_row *row,
                             struct err *err);
