/* Inside common/store: what a commit writes of an attempt besides its one row in results. */
#pragma once
#include "common/store/jobs.h"
#include "common/store/ledger_internal.h"
#include "common/store/pg_internal.h"
#include "common/store/snapshots.h"

/* ---- usage lines (commit_usage.c) ---- */
MUST_CHECK int commit_usage_prepare(struct pg *pg, struct err *err);
/* The lines of one sandbox of item, by the connection's book (ledger_book was called). branch: ""
 * for the job's own. Returns how many. */
MUST_CHECK int commit_usage_price(struct pg *pg, const struct commit_item *item, const char *branch,
                                  const struct job_result *r,
                                  struct usage_record out[USAGE_RECORDS_MAX], struct err *err);
/* Of one part: from, to, measured, charged, rate card, period, then of each meter id, word, amount,
 * price, cost. */
#define COMMIT_USAGE_PARAMS (6 + 5 * METER_COUNT)
void commit_usage_params(struct pg_params *p, const struct usage_record u[METER_COUNT]);
/* Send n lines (whole parts), each part a statement that adds something only when the attempt's row
 * is there. Returns how many statements. */
MUST_CHECK int commit_usage_send(struct pg *pg, const struct commit_item *item, const char *branch,
                                 const struct usage_record *u, int n, struct err *err);

/* State, result, attempt and usage rows of items that are in the order of their ids: one statement
 * that answers with the ids of those that won, and one more for each further part of an item's
 * usage. Returns how many statements were sent. */
extern const struct statement stmt_commit_rows;
MUST_CHECK int commit_rows_send(struct pg *pg, struct commit_item *const *items, int n,
                                struct err *err);
/* How many of the n items fit one statement, 1 or more. */
int commit_rows_step(struct commit_item *const *items, int n);

/* Prepare the statements that items need. */
MUST_CHECK int commit_extras_prepare(struct pg *pg, const struct commit_item *items, int n,
                                     struct err *err);
/* Send the branch rows, usage of branches, artifacts and snapshots of item, behind its guarded
 * statement and in the same transaction. Each adds something only when the attempt's row is there:
 * written just now, or by the same call before. Returns how many statements were sent. */
MUST_CHECK int commit_extras_send(struct pg *pg, const struct commit_item *item, struct err *err);

extern const struct statement stmt_commit_again;
/* Behind all rows of a commit: those of items (n) that failed by the program's fault and have
 * retries on request left wait again. 1: a statement was sent, whose answer names them; 0: none
 * could. */
MUST_CHECK int commit_again_send(struct pg *pg, struct commit_item *const *items, int n,
                                 struct err *err);

/* The parameters of one snapshot's insertion: 19 of them from $1 on (snapshots.c). */
#define SNAPSHOT_PARAMS                                                                            \
    "$1::uuid, $2::text, $3::text, (SELECT id FROM snapshots WHERE tenant = $2 AND id = "          \
    "$4::uuid), $5::text, string_to_array($6::text, ' '), $7::text, $8::text, $9::text, "          \
    "$10::text, $11::text, $12::text, $13::int, $14::int, $15::int8, $16::int8, $17::uuid, "       \
    "$18::int, $19::int8, $19::int8 = 0,"                                                          \
    " CASE WHEN $19::int8 > 0 THEN clock_timestamp() + $19::int8 * interval '1 s' END"
#define SNAPSHOT_COLUMNS                                                                           \
    "id, tenant, name, parent, digest, layers, template, template_digest, engine, "                \
    "engine_version, cpu_model, kernel_digest, vcpus, memory_mib, ram_bytes, layer_bytes, "        \
    "job_id, node, ttl_s, pinned, expires_at"
/* room for the layers' text */
#define SNAPSHOT_LAYERS_TEXT (SNAPSHOT_LAYERS_MAX * (SHA256_HEX + 1))
void snapshot_params(struct pg_params *p, const struct snapshot_row *s,
                     char layers[SNAPSHOT_LAYERS_TEXT]);
/* One keeper of a name at a time, until the transaction ends; $1 tenant, $2 name. */
extern const struct statement stmt_name_lock;
