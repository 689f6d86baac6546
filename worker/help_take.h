/* A branch of a job that another worker has: a slot without a job of its own takes a ticket, runs
 * the leaf from the state it names, hands in the result. The other side, and what holds the two
 * together, is help_give.h. */
#pragma once
#include "common/store/queue_help.h"
#include "worker/slot.h"

/* Is there a ticket? Then it is this slot's, and help_run must follow soon. */
bool help_look(struct slot *s, struct help_ticket *ret_ticket);
/* Run it and hand in what came of it. Nothing of it can fail the slot. */
void help_run(struct slot *s, const struct help_ticket *t);
