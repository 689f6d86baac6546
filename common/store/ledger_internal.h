/* Inside common/store: what the files of the ledger share. */
#pragma once
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

#define LINE_ENTRY 48 /* bytes of a line in a seal's content: id, SHA-256 */

/* The book that this connection prices with, read when there is none; to be read again after
 * ledger_forget. */
MUST_CHECK int ledger_book(struct pg *pg, const struct rate_book **ret_book, struct err *err);
void ledger_forget(struct pg *pg);
/* $1 version, $2 closed_through: fails when they are not those in force. */
extern const struct statement stmt_ledger_guard;
