/* The check of the ledger: against its chain, against jobs, attempts and snapshots, against closed
 * months and against its own reports. docs/billing.md says what is compared with what. It only
 * reads, in one snapshot of the database. */
#pragma once
#include "common/base/id.h"
#include "common/model/chain.h"
#include "common/model/job.h"
#include "common/store/pg.h"

struct ledger_finding {
    const char *what; /* one word of docs/billing.md: "changed", "missing", "inserted", "chain",
                         "disagrees", ... */
    char line[ID_TEXT_BYTES]; /* the usage line; "" when it is about none */
    char text[320];
};
typedef void (*finding_fn)(void *ctx, const struct ledger_finding *f);

#define CHECK_HEADS_MAX 1000
struct ledger_head { /* the end of a tenant's chain: to be kept elsewhere by whoever wants proof */
    char tenant[JOB_TENANT_MAX + 1];
    int64_t seal, lines;
    char hash[2 * CHAIN_HASH + 1];
};
struct ledger_check {
    int64_t lines, unsealed, seals, jobs, branches, hours, months;
    int64_t cost_nanousd;
    int64_t findings;
    struct ledger_head *heads; /* n_heads, at most CHECK_HEADS_MAX; free */
    int n_heads;
};
/* Calls fn for each disagreement. 0 when the check was done, whatever it found. */
MUST_CHECK int store_ledger_check(struct pg *pg, finding_fn fn, void *ctx, struct ledger_check *ret,
                                  struct err *err);
