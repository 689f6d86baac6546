/* The session's state table (session_table.def): which frame of a guest is in order when. Pure. */
#pragma once
#include "common/wire/frame.h"

enum session_state {
    SESSION_WAIT_READY,   /* Identity, files and Run are on their way */
    SESSION_WAIT_STARTED, /* identity is set; the command is not running yet */
    SESSION_RUNNING,
    SESSION_EXITED,  /* Exit was received */
    SESSION_SETTLED, /* the machine may be frozen */
    SESSION_REFUSED, /* the guest said what it could not do */
    SESSION_STATE_COUNT
};

/* The state after this frame; -1 when the frame is out of order. */
int session_next(enum session_state from, enum frame_type type);
const char *session_state_word(enum session_state s);
