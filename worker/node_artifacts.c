#include "worker/node_artifacts.h"

#include <assert.h>
#include <string.h>

#include "common/base/log.h"

static_assert(ARTIFACT_FILES_DEFAULT == JOB_NODE_ARTIFACTS_MAX, "one maximum");
static_assert((JOB_ARTIFACT_GLOB_MAX + 1) * JOB_ARTIFACT_GLOBS_MAX >= GLOBS_BYTES_MAX, "globs");

/* Each ended by NUL, as Collect wants them. */
static int join(char *const *globs, int n, char out[GLOBS_BYTES_MAX], size_t *ret_len,
                struct err *err)
{
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        size_t part = strlen(globs[i]) + 1;
        if (part > GLOBS_BYTES_MAX - len) {
            return err_set(err, ERR_TOO_LARGE, "artifacts: patterns over %u bytes in all",
                           (unsigned)GLOBS_BYTES_MAX);
        }
        memcpy(out + len, globs[i], part);
        len += part;
    }
    *ret_len = len;
    return 0;
}

int node_artifacts_take(struct session *s, int channel_fd, int abort_fd, char *const *globs,
                        int n_globs, const char *spool_dir, struct artifact_set *ret_set,
                        struct err *err)
{
    artifacts_init(ret_set);
    if (n_globs == 0) {
        return 0;
    }
    char text[GLOBS_BYTES_MAX];
    size_t len = 0;
    int rc = join(globs, n_globs, text, &len, err);
    if (rc < 0) {
        return rc;
    }
    struct artifacts_job job = { .channel_fd = channel_fd,
                                 .abort_fd = abort_fd,
                                 .parser = &s->parser,
                                 .out = &s->out,
                                 .run = s->run,
                                 .globs = text,
                                 .globs_len = len,
                                 .limits = { .files_max = ARTIFACT_FILES_DEFAULT,
                                             .file_bytes_max = ARTIFACT_FILE_BYTES_DEFAULT,
                                             .total_bytes_max = ARTIFACT_TOTAL_BYTES_DEFAULT },
                                 .timeout_ms = ARTIFACT_TIMEOUT_MS_DEFAULT,
                                 .idle_ms = ARTIFACT_IDLE_MS_DEFAULT,
                                 .spool_dir = spool_dir };
    return artifacts_receive(&job, ret_set, err);
}

struct giver {
    struct object_store *objects;
    struct pending *pending;
};

static int put(void *arg, const struct artifact_object *object, struct err *err)
{
    const struct giver *g = arg;
    if (!g->objects) {
        return err_set(err, ERR_UNAVAILABLE, "artifacts: no object store is open");
    }
    if (g->pending && pending_away(g->pending)) {
        return err_set(err, ERR_UNAVAILABLE, "the object store is away; others wait for it");
    }
    struct object_id want;
    int rc = object_id_parse(&want, object->sha256, err);
    if (rc < 0) {
        return rc;
    }
    struct object_put p = { .fd = object->fd, .size_bytes = (int64_t)object->size, .want = &want };
    return object_put(g->objects, &p, err);
}

struct holder {
    struct pending *pending;
    const char *job_id;
};

static int hold(void *arg, const struct artifact_object *object, struct err *err)
{
    const struct holder *h = arg;
    return pending_keep(h->pending, h->job_id, object->sha256, object->fd, object->size, err);
}

int node_artifacts_store(struct artifact_set *set, struct object_store *objects,
                         struct pending *pending, const char *job_id, struct manifest *ret_manifest,
                         struct err *err)
{
    struct giver g = { .objects = objects, .pending = pending };
    int rc = artifacts_store(set, put, &g, err);
    struct holder h = { .pending = pending, .job_id = job_id };
    struct err why = { 0 };
    if (rc < 0 && pending) {
        if (artifacts_hold(set, hold, &h, &why) < 0) {
            log_warn("artifacts cannot wait for the object store", "job", job_id, "error",
                     why.text);
        } else if (rc == -ERR_TIMEOUT || rc == -ERR_UNAVAILABLE) {
            pending_say_away(pending);
        }
    }
    *ret_manifest = set->manifest;
    set->manifest = (struct manifest){ 0 };
    artifacts_done(set); /* the spool */
    return rc;
}
