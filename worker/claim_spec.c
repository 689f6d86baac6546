#include "worker/claim_spec.h"

#include <stdlib.h>

#include "common/store/jobs.h"
#include "worker/claim_wait.h"

static int read_once(const struct slot *s, struct claim *claim, struct err *err)
{
    struct pg pg;
    char *spec = NULL;
    size_t len = 0;
    int rc = pg_open(&pg, s->shared->config->postgres_url, err);
    rc = rc < 0 ? rc : store_spec(&pg, claim->job_id, &spec, &len, err);
    pg_close(&pg);
    if (rc == 0) {
        free(claim->spec);
        claim->spec = spec;
        claim->spec_len = len;
    }
    return rc;
}

int claim_spec(struct slot *s, struct claim *claim, struct err *err)
{
    struct claim_wait w = claim_wait_begin(claim->job_id, "a large job waits for Postgres");
    int rc = 0, again = 1;
    while (claim->spec_len == 0 && again > 0) {
        rc = read_once(s, claim, err);
        again = rc == -ERR_UNAVAILABLE ? claim_wait(s, &w, err) : 0;
    }
    return again < 0 ? again : rc;
}
