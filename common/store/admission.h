/* Inside common/store: a submission's way past the tenant's caps. */
#pragma once
#include "common/model/admit.h"
#include "common/store/pg_internal.h"

struct admission {
    int fits;       /* of the n jobs, how many new ones may come in */
    struct err why; /* when fewer than n: ERR_LIMIT with retry_after_ms, for the rest */
    struct admit_terms terms;
    struct admit_state state;
};
/* Within the submission's transaction, before anything is inserted; n is 1 or more. A tenant with a
 * cap on its rate is locked until the transaction ends. Two submissions of one tenant at once may
 * together exceed the queue's cap by the smaller of them; never the rate's. */
MUST_CHECK int admission_look(struct pg *pg, const char *tenant, int n, struct admission *ret_a,
                              struct err *err);
/* n jobs, 1 or more, came in. */
MUST_CHECK int admission_take(struct pg *pg, const char *tenant, const struct admission *a, int n,
                              struct err *err);
