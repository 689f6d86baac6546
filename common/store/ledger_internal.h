/* Inside common/store: what the files of the ledger share. */
#pragma once
#include "common/model/chain.h"
#include "common/store/ledger.h"
#include "common/store/pg_internal.h"

/* The canonical form of a line, as an expression over usage_records u: its fields as text, in this
 * order, joined by line feeds; a NULL is empty. No text of a line holds a line feed, so the number
 * of them tells that fields were not shifted. Times are integer milliseconds UTC; labels as jsonb
 * writes itself. */
#define LINE_CANONICAL                                                                             \
    "concat_ws(E'\\n', 'brood line 1', u.id, u.pos, u.tenant, u.kind, coalesce(u.job_id::text, "   \
    "''), u.attempt, u.branch, "                                                                   \
    "u.meter, u.part, u.template, u.labels, (extract(epoch from u.from_ts) * 1000)::int8, "        \
    "(extract(epoch from u.to_ts) * 1000)::int8, u.measured_ms, u.charged_ms, u.amount, "          \
    "u.unit_price_nanousd, "                                                                       \
    "u.cost_nanousd, u.period, coalesce(u.rate_id::text, ''), coalesce(u.batch_id::text, ''), "    \
    "coalesce(u.verdict, ''), "                                                                    \
    "coalesce(u.resource, ''), coalesce(u.corrects::text, ''), coalesce(u.reason, ''))"

/* The book that this connection prices with, read when there is none; to be read again after
 * ledger_forget. */
MUST_CHECK int ledger_book(struct pg *pg, const struct rate_book **ret_book, struct err *err);
void ledger_forget(struct pg *pg);
/* $1 version, $2 closed_through: fails when they are not those in force. */
extern const struct statement stmt_ledger_guard;

/* All cards and the last closed month, in whatever transaction there is; rate_book_done. */
MUST_CHECK int ledger_read_book(struct pg *pg, struct rate_book *ret_book, struct err *err);

/* ---- reading much (ledger_scan.c) ---- */

typedef int (*row_fn)(void *ctx, const PGresult *res, int row, struct err *err);
/* Begin a transaction that only reads, in one snapshot, with plans for whole tables. */
MUST_CHECK int ledger_read_begin(struct pg *pg, struct err *err);
/* Run st row by row. fn must not use pg. Returns how many rows, or what fn returned below 0. */
MUST_CHECK int ledger_rows(struct pg *pg, const struct statement *st, const struct pg_params *p,
                           row_fn fn, void *ctx, struct err *err);
/* The same in a reading transaction of its own, unless there is one. */
MUST_CHECK int ledger_scan(struct pg *pg, const struct statement *st, const struct pg_params *p,
                           row_fn fn, void *ctx, struct err *err);

/* ---- storage (ledger_storage.c) ---- */

struct storage_line {
    struct usage_record u;
    const char *tenant, *resource, *template_name, *job_id, *batch_id, *labels; /* "": none */
};
typedef int (*storage_fn)(void *ctx, const struct storage_line *l, struct err *err);
/* The lines that the hour from hour_ms on must have, computed from what was kept in it. Returns how
 * many. fn may use pg. */
MUST_CHECK int ledger_storage_hour(struct pg *pg, const struct rate_book *book, int64_t hour_ms,
                                   storage_fn fn, void *ctx, struct err *err);

/* ---- a month's digest (ledger_close.c) ---- */

struct month_tenant {
    char tenant[JOB_TENANT_MAX + 1];
    struct chain_digest digest;
    uint8_t hash[CHAIN_HASH]; /* after month_end */
};
struct month {
    struct month_tenant *tenants; /* n, by name */
    int n;
    int64_t lines, cost_nanousd; /* after month_end */
};
/* One line; of each tenant in the order of pos. */
void month_add(struct month *m, const char *tenant, int64_t cost_nanousd,
               const uint8_t hash[CHAIN_HASH]);
/* Sums, each tenant's hash, and over these the month's digest. */
void month_end(struct month *m, uint8_t digest[CHAIN_HASH]);
void month_done(struct month *m);
