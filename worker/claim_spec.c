#include "worker/claim_spec.h"

#include <poll.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/jobs.h"

#define PATIENCE_MS 60000
#define AGAIN_MS 500

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
    int64_t until_ms = mono_ms() + PATIENCE_MS;
    bool told = false;
    if (claim->spec_len > 0) {
        return 0;
    }
    for (;;) {
        int rc = read_once(s, claim, err);
        if (rc != -ERR_UNAVAILABLE || mono_ms() >= until_ms || atomic_load(&s->shared->stopping)) {
            return rc;
        }
        if (!told) {
            log_info("a large job waits for Postgres", "job", claim->job_id, "error", err->text);
        }
        told = true;
        struct pollfd p = { .fd = s->abort_fd, .events = POLLIN };
        if (poll(&p, 1, AGAIN_MS) > 0) {
            return err_set(err, ERR_STALE, "the job was given up");
        }
    }
}
