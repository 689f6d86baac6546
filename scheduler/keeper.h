/* The keeper: a thread beside the scheduler's loop that looks after the ledger, about once a
 * second.
 *
 * It seals usage lines, charges storage for the hours that are over, compares what was spent with
 * the budgets and tells of what it found. Nothing waits for it and it waits for nothing of the
 * loop: it has connections of its own. Everything it does is guarded in Postgres, so two keepers
 * (of two schedulers) do no harm. */
#pragma once
#include <stdint.h>
#include "common/base/config.h"
#include "common/base/err.h"

#define KEEPER_TURN_MS 1000

struct keeper;
/* config must outlive it. */
MUST_CHECK int keeper_start(const struct config *config, struct keeper **ret_keeper,
                            struct err *err);
/* Ends the turn it is in; NULL allowed. */
void keeper_stop(struct keeper *k);
