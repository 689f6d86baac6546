#include "common/model/rates.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void rate_book_done(struct rate_book *b)
{
    if (b) {
        free(b->cards);
        *b = (struct rate_book){ 0 };
    }
}

const struct rate_card *rate_book_at(const struct rate_book *b, const char *tenant, int64_t at_ms)
{
    assert(b && tenant);
    const struct rate_card *common = NULL;
    for (int i = b->n - 1; i >= 0; i--) {
        const struct rate_card *c = &b->cards[i];
        if (c->valid_from_ms > at_ms) {
            continue;
        }
        if (c->tenant[0] == 0) {
            common = common ? common : c;
        } else if (strcmp(c->tenant, tenant) == 0) {
            return c;
        }
    }
    return common;
}

int64_t rate_book_next(const struct rate_book *b, const char *tenant, int64_t at_ms)
{
    const struct rate_card *now = rate_book_at(b, tenant, at_ms);
    for (int i = 0; i < b->n; i++) {
        const struct rate_card *c = &b->cards[i];
        if (c->valid_from_ms > at_ms && (c->tenant[0] == 0 || strcmp(c->tenant, tenant) == 0) &&
            rate_book_at(b, tenant, c->valid_from_ms) != now) {
            return c->valid_from_ms;
        }
    }
    return INT64_MAX;
}

const char *rate_card_fault(const struct rate_card *c)
{
    const int64_t prices[] = { c->vcpu_second_nanousd, c->gib_second_nanousd,
                               c->snapshot_gib_hour_nanousd, c->artifact_gib_hour_nanousd };
    for (size_t i = 0; i < sizeof prices / sizeof prices[0]; i++) {
        if (prices[i] < 0 || prices[i] > RATE_PRICE_MAX) {
            return "a price must be from 0 to 1000 dollars";
        }
    }
    if (c->rounding_ms < 1 || c->rounding_ms > RATE_TIME_MS_MAX) {
        return "rounding must be from 1 ms to an hour";
    }
    if (c->minimum_ms < 0 || c->minimum_ms > RATE_TIME_MS_MAX) {
        return "the minimum must be from 0 ms to an hour";
    }
    return c->valid_from_ms % 1000 ? "a card begins with a whole second" : NULL;
}
