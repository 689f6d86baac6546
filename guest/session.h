/* The session's state machine: which frame is in order when, and which action answers it.
 *
 * Pure: a table (session.def) and a look-up. The agent's loop owns the one state variable and calls
 * session_step for every frame; actions are names here, functions in agent.c. */
#pragma once
#include "common/wire/frame.h"

enum session_state {
    SESSION_FRESH,
    SESSION_READY,
    SESSION_FILING,
    SESSION_RUNNING,
    SESSION_ENDING,
    SESSION_COLLECTING, /* until COLLECTED is queued */
    SESSION_STATES
};

enum session_action {
    ACTION_refuse, /* out of order, or a frame that only the guest sends */
    ACTION_ignore,
    ACTION_hello,
    ACTION_identity,
    ACTION_file_open,
    ACTION_file_data,
    ACTION_run,
    ACTION_run_trusted,
    ACTION_stdin_data,
    ACTION_kill,
    ACTION_collect,
    ACTION_settle,
    ACTION_cell,
    ACTIONS
};

struct session_step {
    enum session_state to;
    enum session_action action;
};

/* What frame `type` does in `from`. Total: a pair that is not in the table gives {from,
 * ACTION_refuse}. */
struct session_step session_step(enum session_state from, enum frame_type type);
const char *session_state_name(enum session_state state);
