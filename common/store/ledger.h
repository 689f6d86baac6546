/* The ledger beside the commit path: rate cards, the chain, storage by the hour, corrections,
 * closed months, the check. docs/billing.md is the contract. Calls return 0 or a count, or -ERR_X;
 * -ERR_UNAVAILABLE can be repeated. */
#pragma once
#include "common/base/id.h"
#include "common/model/rates.h"
#include "common/model/usage.h"
#include "common/store/pg.h"

#define LEDGER_REASON_MAX 512 /* bytes of an adjustment's reason or a card's note, NUL included */

/* ---- rate cards (rates.c) ---- */

/* All cards and the last closed month. Owned by the caller: rate_book_done. */
MUST_CHECK int store_rates(struct pg *pg, struct rate_book *ret_book, struct err *err);
/* Add a card (its id is not read). valid_from_ms 0: as soon as may be, which is RATE_NOTICE_S from
 * now, the next whole second. -ERR_INVALID: prices, a beginning that is not at least RATE_NOTICE_S
 * ahead (what was written is not priced anew: correct it by an adjustment), less than
 * RATE_SPACING_S from another of the same tenant, too many. *ret_card is the card as written. */
MUST_CHECK int store_rates_set(struct pg *pg, const struct rate_card *card, const char *note,
                               struct rate_card *ret_card, struct err *err);
/* A new database is given the prices of the configuration: adds a card from the epoch on when there
 * is no usage line and no card but the built-in one, and it differs. Returns 1 when it added one.
 * Storage prices 0 are taken from the built-in card. */
MUST_CHECK int store_rates_first(struct pg *pg, const struct rate_card *card, struct err *err);

/* ---- the chain (ledger_seal.c) ---- */

/* Seal the lines that were there at the call before this one; state is the caller's, zeroed at
 * first. Any number of processes may call it: one at a time works (advisory lock), the others
 * return 0 at once. Returns how many lines were sealed. */
struct seal_state {
    int64_t pos, xid; /* lines up to pos are all there once every transaction up to xid has ended;
                         xid 0: they are sealed */
    unsigned generation; /* of the connection that it was seen on */
};
/* Lines that no seal covers yet, counted up to max, and how old the oldest is, milliseconds; -1:
 * there is none. */
MUST_CHECK int store_unsealed(struct pg *pg, int max, int64_t *ret_lines, int64_t *ret_oldest_ms,
                              struct err *err);
#define SEAL_LINES_MAX 4096 /* of one seal */
#define SEAL_TURN_MAX 32768 /* lines of one call */
MUST_CHECK int store_seal(struct pg *pg, struct seal_state *state, struct err *err);

/* ---- storage (ledger_storage.c) ---- */

/* Charge the next hour that is over at now_ms (UTC, by the database's clock), when there is one
 * (ten minutes after its end). An hour that is charged is never charged again, so the caller is to
 * be sure of the clock. Returns 1 when it was charged: call again. By one process at a time,
 * exactly once an hour. */
MUST_CHECK int store_charge_storage(struct pg *pg, int64_t now_ms, struct err *err);

/* ---- corrections and closed months (ledger_close.c) ---- */

/* Give back -nanousd (> 0) of the line: a new line, in the first open month. -ERR_NOT_FOUND;
 * -ERR_INVALID: not below 0, more than is left of the line, no reason, a correction itself. */
MUST_CHECK int store_adjust(struct pg *pg, const char *line_id, int64_t nanousd, const char *reason,
                            struct id *ret_id, struct err *err);

struct closed_month {
    int period; /* yyyymm */
    int tenants;
    int64_t lines, cost_nanousd;
    char digest[65]; /* hex */
};
/* -ERR_INVALID: not over, or an earlier one is open and has lines; -ERR_CONFLICT: closed already.
 * Commits wait while the lines are read that are not sealed yet. */
MUST_CHECK int store_close_month(struct pg *pg, int period, struct closed_month *ret,
                                 struct err *err);
