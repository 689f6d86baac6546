/* Rate cards as the command line knows them. */
#pragma once
#include "common/base/config.h"
#include "common/store/ledger.h"

/* Give a new database the prices of the configuration (store_rates_first). */
MUST_CHECK int ratecards_first(const struct config *c, struct pg *pg, struct err *err);
