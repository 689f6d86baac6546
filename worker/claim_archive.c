#include "worker/claim_archive.h"

#include <stdio.h>

#include "common/base/log.h"
#include "worker/claim_wait.h"

/* What the store says is for the log: it names paths and servers. */
static int fail(struct err *err)
{
    log_warn("archive not read", "error", err->text);
    return err_set(err, err->code, "archive: cannot be had now (%s)", err_word(err->code));
}

int claim_archive(struct slot *s, const char *job_id, const struct job_spec *spec, struct err *err)
{
    struct claim_wait w = claim_wait_begin(job_id, "a job waits for its archive");
    int rc = 0, again = spec->archive.present;
    s->archive = (struct job_unpacked){ .n = 0 };
    while (again > 0) {
        rc = job_archive_files(&spec->archive, s->shared->objects, &s->archive.files, &s->archive.n,
                               err);
        bool may_pass = rc < 0 && err_retryable(-rc);
        again = may_pass ? claim_wait(s, &w, err) : 0;
    }
    if (rc < 0 && err_fault(-rc) == FAULT_USER) {
        (void)snprintf(s->archive.refused, sizeof s->archive.refused, "%.190s", err->text);
        return 0;
    }
    return again < 0 ? again : rc < 0 ? fail(err) : 0;
}
