/* A node's artifacts, from its patterns to the manifest that its result carries.
 *
 * Theory: glue between a session whose run has ended, artifacts.h and the object store, with the
 * defaults of docs/artifacts.md. Take while the sandbox is there, store when it is gone. Nothing
 * here can cost a verdict: whatever goes wrong, the set and the manifest are whole and say what is
 * missing. Thread: the session's. */
#pragma once
#include "common/model/manifest.h"
#include "common/store/object.h"
#include "worker/artifacts.h"
#include "worker/pending.h"
#include "worker/session.h"

/* Ask the guest for what globs[0..n_globs) match (0: nothing is asked) and receive it. Of the run
 * s->run, whose Exit has come. abort_fd as in artifacts_job; spool_dir: see there. *ret_set is
 * initialised here in every case, also after an error; artifacts_done releases it. Errors are
 * those of artifacts_receive: the channel is of no further use then, but the verdict stands
 * (-ERR_STALE: the attempt was given up). */
MUST_CHECK int node_artifacts_take(struct session *s, int channel_fd, int abort_fd,
                                   char *const *globs, int n_globs, const char *spool_dir,
                                   struct artifact_set *ret_set, struct err *err);

/* Put the set's content into objects (NULL: there is no store) and move its manifest into
 * *ret_manifest (manifest_done), in every case. What is not in the store is listed as not stored,
 * reason ARTIFACT_STORE; or ARTIFACT_PENDING, when pending (NULL: none) keeps it for job_id. The
 * error, if any, is for the log: which store said no to what. */
MUST_CHECK int node_artifacts_store(struct artifact_set *set, struct object_store *objects,
                                    struct pending *pending, const char *job_id,
                                    struct manifest *ret_manifest, struct err *err);
