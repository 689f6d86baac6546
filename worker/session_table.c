#include "worker/session_table.h"

#include <assert.h>

static const struct {
    enum session_state to;
    bool listed;
} rows[SESSION_STATE_COUNT][FRAME_TYPE_END] = {
#define SESSION_ROW(from, frame, next)                                                             \
    [SESSION_##from][FRAME_##frame] = { .to = SESSION_##next, .listed = true },
#include "worker/session_table.def"
#undef SESSION_ROW
};

int session_next(enum session_state from, enum frame_type type)
{
    assert(from < SESSION_STATE_COUNT && type > 0 && type < FRAME_TYPE_END);
    return rows[from][type].listed ? (int)rows[from][type].to : -1;
}

const char *session_state_word(enum session_state s)
{
    static const char *const words[SESSION_STATE_COUNT] = { "waiting for the identity to be set",
                                                            "waiting for the start",
                                                            "running",
                                                            "ended",
                                                            "settled",
                                                            "refused" };
    assert(s < SESSION_STATE_COUNT);
    return words[s];
}
