/* Inside common/store: what snapshots.c and snapshots_list.c share. */
#pragma once
#include "common/store/pg_internal.h"
#include "common/store/snapshots.h"

/* The columns that snapshot_read takes, of snapshots s. */
#define SNAPSHOT_SELECT                                                                            \
    "SELECT s.id::text, s.tenant, s.name, s.parent::text, s.digest, "                              \
    "array_to_string(s.layers, ' '), s.template, s.template_digest, s.engine, s.engine_version, "  \
    "s.cpu_model, s.kernel_digest, s.vcpus, s.memory_mib, s.ram_bytes, s.layer_bytes, "            \
    "s.job_id::text, s.node, s.ttl_s, s.pinned::int, " PG_MS("s.created_at") ", " PG_MS(           \
        "s.used_at") ", " PG_MS("s.expires_at") ", (SELECT count(*) FROM snapshots c WHERE "       \
                                                "c.tenant = s.tenant AND c.parent = s.id)"         \
                                                " FROM snapshots s"
/* By name, or by id when $2 is one. */
#define SNAPSHOT_NAMED "s.tenant = $1 AND (s.name = $2 OR s.id::text = $2)"
void snapshot_read(const PGresult *res, int row, struct snapshot_row *s);
/* Text format result of one row. -ERR_NOT_FOUND names what there is. */
MUST_CHECK int snapshot_find(struct pg *pg, const struct statement *st, const char *tenant,
                             const char *name, PGresult **ret_res, struct err *err);
