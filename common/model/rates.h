/* The price book: rate cards with effective dates, and which one is in force at a moment. Pure.
 *
 * A card holds every price, so that one number (its id) says at what a line was priced. A tenant's
 * own cards go before those for everyone; of two from the same second the later made one counts.
 * Cards are only added (docs/billing.md). */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/model/job.h"

#define RATE_CARDS_MAX 20000         /* in one book */
#define RATE_PRICE_MAX 1000000000000 /* nano-dollars for a unit */
#define RATE_TIME_MS_MAX 3600000     /* of rounding and minimum */
#define RATE_NOTICE_S 60             /* a card begins at least this long after it was made */
#define RATE_SPACING_S 3600          /* between two cards of the same tenant, or for everyone */

struct rate_card {
    int id;
    char tenant[JOB_TENANT_MAX + 1]; /* "" = for everyone without a card of their own */
    int64_t valid_from_ms;           /* UTC, a whole second */
    int64_t vcpu_second_nanousd, gib_second_nanousd, snapshot_gib_hour_nanousd,
        artifact_gib_hour_nanousd;
    int64_t rounding_ms, minimum_ms; /* of a sandbox: charged up to a multiple, and at least */
};

struct rate_book {
    struct rate_card *cards; /* n, by valid_from_ms, then id */
    int n;
    int version;        /* the highest id; 0: none */
    int closed_through; /* the last closed month as yyyymm; 0: none */
};

void rate_book_done(struct rate_book *b);
/* The card in force for tenant at a moment; NULL when the book has none that begins so early. */
const struct rate_card *rate_book_at(const struct rate_book *b, const char *tenant, int64_t at_ms);
/* The next moment after at_ms when another card is in force for tenant; INT64_MAX: never. */
int64_t rate_book_next(const struct rate_book *b, const char *tenant, int64_t at_ms);
/* What is wrong with a card's prices and times; NULL when nothing is. */
const char *rate_card_fault(const struct rate_card *c);
