/* Inside common/store: the canonical form of usage lines as the sealing computes it, from columns
 * in binary.
 *
 * The check of the ledger and the closing of a month have Postgres write it (LINE_CANONICAL); that
 * takes 7 us a line there, most of it dates and times as numerics, and sealing is done beside the
 * jobs. Two ways to the same bytes also means that each is checked by the other: a line that was
 * sealed otherwise is found by `brood usage --check`. */
#pragma once
#include "common/base/buf.h"
#include "common/store/pg_internal.h"

/* Columns of a binary result, over usage_records u. */
#define LINE_COLUMNS                                                                               \
    "u.tenant, u.pos, u.id, u.kind, u.job_id, u.attempt::int8, u.branch, u.meter, u.part::int8, "  \
    "u.template, u.labels::text, u.from_ts, u.to_ts, u.measured_ms, u.charged_ms, u.amount, "      \
    "u.unit_price_nanousd, u.cost_nanousd, u.period::int8, u.rate_id::int8, u.batch_id, "          \
    "u.verdict, u.resource, u.corrects, u.reason"
enum line_column {
    LINE_TENANT,
    LINE_POS,
    LINE_ID,
    LINE_KIND,
    LINE_JOB,
    LINE_ATTEMPT,
    LINE_BRANCH,
    LINE_METER,
    LINE_PART,
    LINE_TEMPLATE,
    LINE_LABELS,
    LINE_FROM,
    LINE_TO,
    LINE_MEASURED,
    LINE_CHARGED,
    LINE_AMOUNT,
    LINE_PRICE,
    LINE_COST,
    LINE_PERIOD,
    LINE_RATE,
    LINE_BATCH,
    LINE_VERDICT,
    LINE_RESOURCE,
    LINE_CORRECTS,
    LINE_REASON,
    LINE_COLUMN_COUNT
};

/* Put the canonical form of that row into out, which is emptied first. */
MUST_CHECK int ledger_line(const PGresult *res, int row, struct buf *out, struct err *err);
/* The day of the line's beginning, UTC, in days since 1970-01-01. */
int64_t ledger_line_day(const PGresult *res, int row);
