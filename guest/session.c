#include "guest/session.h"

#include <assert.h>
#include <stddef.h>

static const struct {
    enum session_state from;
    enum frame_type type;
    struct session_step step;
} rows[] = {
#define SESSION_DEF(from, frame, to, action)                                                       \
    { SESSION_##from, FRAME_##frame, { SESSION_##to, ACTION_##action } },
#include "guest/session.def"
#undef SESSION_DEF
};

struct session_step session_step(enum session_state from, enum frame_type type)
{
    assert(from < SESSION_STATES);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].from == from && rows[i].type == type) {
            return rows[i].step;
        }
    }
    return (struct session_step){ from, ACTION_refuse };
}

const char *session_state_name(enum session_state state)
{
    static const char *const names[SESSION_STATES] = { "fresh",   "ready",  "filing",
                                                       "running", "ending", "collecting" };
    assert(state < SESSION_STATES);
    return names[state];
}
