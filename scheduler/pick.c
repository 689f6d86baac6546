#include "scheduler/pick.h"

#include <assert.h>

int pick_room(const struct pick_input *in)
{
    assert(in->slots >= 0 && in->ready_depth > 0 && in->unclaimed >= 0);
    int64_t slots = in->slots > 0 ? in->slots : PICK_SLOTS_WHEN_NONE;
    int64_t room = in->ready_depth * slots - in->unclaimed;
    return room <= 0 ? 0 : room > PICK_TURN_MAX ? PICK_TURN_MAX : (int)room;
}

int pick_intake_count(int64_t mean_bytes, int64_t bytes_max, int max)
{
    assert(mean_bytes >= 0 && bytes_max > 0 && max > 0);
    if (mean_bytes == 0) {
        return max;
    }
    int64_t n = bytes_max / mean_bytes;
    return n < 1 ? 1 : n > max ? max : (int)n;
}
