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

/* Seal the lines that were written before the call before this one; state is the caller's, zeroed
 * at first. Any number of processes may call it: one at a time works (advisory lock), the others
 * return 0 at once. Returns how many lines were sealed. */
struct seal_state {
    int64_t pos,
        xmax; /* lines up to pos are all there when every transaction below xmax has ended */
    unsigned generation; /* of the connection that it was seen on */
};
#define SEAL_LINES_MAX 4096 /* of one seal */
#define SEAL_TURN_MAX 32768 /* lines of one call */
MUST_CHECK int store_seal(struct pg *pg, struct seal_state *state, struct err *err);
