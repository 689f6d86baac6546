#include "worker/claim_archive.h"

#include <poll.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define PATIENCE_MS 60000
#define AGAIN_MS 500

/* What the store says is for the log: it names paths and servers. */
static int fail(struct err *err)
{
    log_warn("archive not read", "error", err->text);
    return err_set(err, err->code, "archive: cannot be had now (%s)", err_word(err->code));
}

int claim_archive(struct slot *s, const struct job_spec *spec, struct err *err)
{
    const struct job_archive *a = &spec->archive;
    int64_t until_ms = mono_ms() + PATIENCE_MS;
    bool told = false;
    s->archive = (struct job_unpacked){ .n = 0 };
    if (!a->present) {
        return 0;
    }
    for (;;) {
        int rc = job_archive_files(a, s->shared->objects, &s->archive.files, &s->archive.n, err);
        if (rc < 0 && err_fault(-rc) == FAULT_USER) {
            (void)snprintf(s->archive.refused, sizeof s->archive.refused, "%.190s", err->text);
            return 0;
        }
        if (rc == 0) {
            return 0;
        }
        if (!err_retryable(-rc) || mono_ms() >= until_ms || atomic_load(&s->shared->stopping)) {
            return fail(err);
        }
        if (!told) {
            log_info("a job waits for its archive", "error", err->text);
        }
        told = true;
        struct pollfd p = { .fd = s->abort_fd, .events = POLLIN };
        if (poll(&p, 1, AGAIN_MS) > 0) {
            return err_set(err, ERR_STALE, "the job was given up");
        }
    }
}
