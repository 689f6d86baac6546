/* One node of a job's tree in one sandbox: files, set-up, command, verdict, artifacts.
 *
 * A plain job is a tree of one leaf, so every run goes through here. Pure of leases: the caller has
 * the sandbox and does with it afterwards what the outcome says. Thread: the caller's. */
#pragma once
#include "common/model/tree.h"
#include "worker/artifacts.h"
#include "worker/pool_client.h"
#include "worker/session.h"
#include "worker/slot.h"

enum node_outcome {
    NODE_JUDGED,  /* r has a verdict: of a leaf, or why an inner node's set-up failed */
    NODE_SETTLED, /* inner: set-up is done, the sandbox may be frozen; r has no verdict */
    NODE_TO_KEEP, /* as judged: a leaf that is accepted, whose sandbox may be frozen and kept */
};

struct node_job {
    const struct slot_shared *shared;
    const struct job_spec *spec;
    const struct tree_node *node;
    struct session *session;
    const struct lease *lease;
    int abort_fd;
    int64_t lease_start_us;       /* mono */
    struct live *live;            /* or NULL */
    struct job_unpacked *archive; /* goes before the node's files; used up. NULL: none */
    bool cell;                    /* in the container of a shared machine that is ready for it */
    bool resume;                  /* in the sandbox that an earlier node of the job has left */
};

/* Fills r and *ret_artifacts (initialised in every case; to be stored when the sandbox is gone). An
 * error is an attempt that failed, as session_run's. */
MUST_CHECK int node_run(const struct node_job *j, struct job_result *r,
                        struct artifact_set *ret_artifacts, enum node_outcome *ret_outcome,
                        struct err *err);
/* Store what node_run took, when the sandbox is gone, and release it. A store that says no is
 * logged and costs no verdict. */
void node_store(const struct node_job *j, const char *job_id, struct artifact_set *set,
                struct manifest *ret_artifacts);
/* Keep the state of the node's lease, which is frozen: true, and the row in *ret_row. What fails
 * costs no verdict: a warning in r, the job's result or the node's, says so. */
MUST_CHECK bool node_keep(const struct node_job *j, struct pool_client *pool,
                          const struct claim *claim, const struct snapshot_row *from,
                          struct job_result *r, struct snapshot_row *ret_row);
/* The sandbox's part of r: engine, snapshot, resources; the billed interval from leased_us (mono)
 * to end_us. */
void node_sandbox(const struct node_job *j, int64_t leased_us, int64_t end_us,
                  struct job_result *r);
