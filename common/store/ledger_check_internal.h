/* Inside common/store: the parts of the check. */
#pragma once
#include "common/store/ledger_check.h"
#include "common/store/ledger_internal.h"

struct check {
    struct pg *pg;
    struct rate_book book;
    finding_fn fn;
    void *ctx;
    struct ledger_check *sums;
};
/* line may be NULL. */
void check_found(struct check *c, const char *what, const char *line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Chain, roll-ups by day, closed months: one pass over seals and lines (ledger_check_chain.c). */
MUST_CHECK int check_chain(struct check *c, struct err *err);
/* Every job that ended: what its sandboxes cost by the price book (ledger_check_jobs.c). */
MUST_CHECK int check_jobs(struct check *c, struct err *err);
/* Storage, corrections, and what the reports add up to (ledger_check.c). */
