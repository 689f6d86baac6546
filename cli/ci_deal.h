/* Which shard gets which test files, when brood deals them out (`test_files`). Pure. */
#pragma once
#include "cli/brood_json.h"
#include "cli/checkout.h"
#include "common/report/report.h"

struct ci_deal {
    unsigned shards; /* as asked for, but never more than there are files: a shard without any would
                        run its command without arguments, which often means the whole suite */
    const char *
        *files;      /* n paths in path_order, borrowed from the checkout; n 0: nothing is dealt */
    unsigned *shard; /* n */
    size_t n, timed; /* timed: how many the past report knows */
};
/* globs n 0: only the number of shards. past: NULL or a report of an earlier run. -ERR_INVALID: no
 * file matches, or one's name is not UTF-8; -ERR_TOO_LARGE: SHARD_FILES_MAX. */
MUST_CHECK int ci_deal_make(const struct checkout *c, const struct string_list *globs,
                            unsigned shards, const struct report *past, struct ci_deal *ret_deal,
                            struct err *err);
void ci_deal_done(struct ci_deal *d);
