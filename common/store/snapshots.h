/* Kept snapshots, the tenant's uploads, and which objects are still wanted: the rows, not the
 * bytes.
 *
 * A snapshot is found by tenant and name, or tenant and id; another tenant's does not exist. Names
 * move: keeping a state under a name that is taken gives the name to the new one, and the old one
 * goes as soon as it has no children. Deleting a row deletes no object: whoever sweeps the object
 * store asks store_objects_wanted. Every call is one transaction. */
#pragma once
#include "common/base/id.h"
#include "common/model/job.h"
#include "common/store/pg.h"

#define SHA256_HEX 64
#define SNAPSHOT_LAYERS_MAX 32
#define SNAPSHOT_LIST_MAX 4096 /* rows of one store_snapshot_list */
#define SNAPSHOT_NAMED_MAX 16  /* children, or known names, in the text of an error */

struct snapshot_row {
    struct id id;
    char tenant[JOB_TENANT_MAX + 1];
    char name[JOB_SNAPSHOT_NAME_MAX + 1]; /* "": another took the name */
    char parent[ID_TEXT_BYTES]; /* id of the snapshot it was started from; "": a template */
    char digest[SHA256_HEX + 1];
    char layers[SNAPSHOT_LAYERS_MAX][SHA256_HEX + 1]; /* every object that loading it needs */
    int n_layers;
    char template_name[JOB_TEMPLATE_MAX + 1], template_digest[72];
    char engine[32], engine_version[64], cpu_model[64], kernel_digest[72];
    int vcpus, memory_mib;
    int64_t ram_bytes, layer_bytes;
    char job_id[ID_TEXT_BYTES]; /* "" none */
    int node;
    bool pinned;
    int64_t ttl_s;                           /* 0 when pinned */
    int64_t created_ms, used_ms, expires_ms; /* UTC; expires -1: pinned */
    int children;                            /* snapshots that were started from it */
};

/* s->id is the caller's (id_new, or derived from job, attempt and node so that it can be repeated:
 * the same id twice is one row). created, used, expires, children are not read. ret_replaced: the
 * id that had the name, "" when none; may be NULL. -ERR_NOT_FOUND: the parent is gone.
 * -ERR_INVALID: name, digest or layers. (store_commit does the same inside the job's transaction.)
 */
MUST_CHECK int store_snapshot_create(struct pg *pg, const struct snapshot_row *s,
                                     struct id *ret_replaced, struct err *err);
/* By name or id. -ERR_NOT_FOUND names those that the tenant has. */
MUST_CHECK int store_snapshot_get(struct pg *pg, const char *tenant, const char *name,
                                  struct snapshot_row *ret_row, struct err *err);
/* As store_snapshot_get, for a job that starts there: not one that has expired; counts as used, and
 * an expiry moves to ttl_s from now. */
MUST_CHECK int store_snapshot_resolve(struct pg *pg, const char *tenant, const char *name,
                                      struct snapshot_row *ret_row, struct err *err);
/* Keep it ttl_s from now (1..JOB_KEEP_TTL_S_MAX), or for good (0: pinned). */
MUST_CHECK int store_snapshot_touch(struct pg *pg, const char *tenant, const char *name,
                                    int64_t ttl_s, struct err *err);
/* Up to max (SNAPSHOT_LIST_MAX) rows, oldest first, so a parent comes before its children. After:
 * only those younger than this id; NULL: from the first. Returns how many. */
MUST_CHECK int store_snapshot_list(struct pg *pg, const char *tenant, const char *after_id, int max,
                                   struct snapshot_row *ret_rows, struct err *err);
/* Delete it, and with cascade everything that was started from it. Without, children refuse:
 * -ERR_CONFLICT names them. Returns how many rows went; their ids and names in ret_rows (max of
 * them, NULL: not wanted). */
MUST_CHECK int store_snapshot_remove(struct pg *pg, const char *tenant, const char *name,
                                     bool cascade, struct snapshot_row *ret_rows, int max,
                                     struct err *err);
/* Delete up to max that have expired and have no children; returns how many: call again until 0. */
MUST_CHECK int store_snapshots_expire(struct pg *pg, int max, struct err *err);

/* The facts that validation and billing need of what a job names as its template: of a template, or
 * of the tenant's snapshot ("snapshot:NAME"; digest is the snapshot's). */
MUST_CHECK int store_base_get(struct pg *pg, const char *tenant, const char *template_name,
                              struct template_info *ret_t, struct err *err);

/* What only the database can say of a job that is valid in itself: the object that it names as its
 * archive must be the tenant's. Text "archive.object: ...". */
MUST_CHECK int store_job_check(struct pg *pg, const char *tenant, const struct job_spec *spec,
                               struct err *err);

/* ---- uploads and objects ---- */
/* The tenant has put this object there; again: the later expiry counts. */
MUST_CHECK int store_upload_put(struct pg *pg, const char *tenant, const char *sha256,
                                int64_t size_bytes, int64_t ttl_s, struct err *err);
/* May the tenant name this object? Its own upload that has not expired, or a stored artifact of one
 * of its jobs. -ERR_NOT_FOUND otherwise. ret_size_bytes may be NULL. */
MUST_CHECK int store_upload_check(struct pg *pg, const char *tenant, const char *sha256,
                                  int64_t *ret_size_bytes, struct err *err);
/* ret_wanted[i]: a snapshot, an artifact, an upload or the archive of a job that has not ended
 * names digests[i] (n at most 1000). For who sweeps, by the rule of docs/objects.md. */
MUST_CHECK int store_objects_wanted(struct pg *pg, const char *const *digests, int n,
                                    bool *ret_wanted, struct err *err);
