/* How much to make ready. Pure.
 *
 * The ready stream is kept only as deep as the workers need for the next moments: what is still in
 * Postgres can be reordered, what is ready cannot. Today one source, the oldest due job first; fair
 * shares between tenants come in here, as a division of pick_room's number. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define PICK_SLOTS_WHEN_NONE                                                                       \
    2 /* no worker is alive: keep this many slots' worth ready for the first one */
#define PICK_TURN_MAX 64 /* jobs made ready in one turn */

struct pick_input {
    int64_t slots;       /* of all live workers */
    int64_t ready_depth; /* jobs kept ready for each slot, 1 or more */
    int64_t unclaimed;   /* on the ready stream, taken by nobody yet */
};
/* Jobs to make ready now: 0 to PICK_TURN_MAX. */
int pick_room(const struct pick_input *in);

/* Entries to ask of the intake stream, 1 to max, given what the last ones weighed: about bytes_max
 * in memory at once. mean_bytes 0: nothing is known yet. */
int pick_intake_count(int64_t mean_bytes, int64_t bytes_max, int max);
