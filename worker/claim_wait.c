#include "worker/claim_wait.h"

#include <poll.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define PATIENCE_MS 60000
#define AGAIN_MS 500

struct claim_wait claim_wait_begin(const char *job_id, const char *what)
{
    return (
        struct claim_wait){ .job_id = job_id, .what = what, .until_ms = mono_ms() + PATIENCE_MS };
}

int claim_wait(const struct slot *s, struct claim_wait *w, struct err *why)
{
    if (mono_ms() >= w->until_ms || atomic_load(&s->shared->stopping)) {
        return 0;
    }
    if (!w->told) {
        log_info(w->what, "job", w->job_id, "error", why->text);
    }
    w->told = true;
    struct pollfd p = { .fd = s->abort_fd, .events = POLLIN };
    return poll(&p, 1, AGAIN_MS) > 0 ? err_set(why, ERR_STALE, "the job was given up") : 1;
}
