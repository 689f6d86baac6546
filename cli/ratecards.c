#include "cli/ratecards.h"

int ratecards_first(const struct config *c, struct pg *pg, struct err *err)
{
    const struct rate_card card = { .vcpu_second_nanousd = c->rate_vcpu_second_nanousd,
                                    .gib_second_nanousd = c->rate_gib_second_nanousd,
                                    .rounding_ms = c->rate_rounding_ms,
                                    .minimum_ms = c->rate_minimum_ms };
    return store_rates_first(pg, &card, err);
}
