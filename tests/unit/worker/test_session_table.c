#include <criterion/criterion.h>

#include "worker/session_table.h"

/* The whole product of states and frames against what a guest may do, written down a second time.
 */
Test(session_table, whole_product)
{
    static const int want[SESSION_STATE_COUNT][FRAME_TYPE_END] = {
        [SESSION_WAIT_READY] = { [FRAME_READY] = SESSION_WAIT_STARTED + 1,
                                 [FRAME_ERROR] = SESSION_REFUSED + 1 },
        [SESSION_WAIT_STARTED] = { [FRAME_STARTED] = SESSION_RUNNING + 1,
                                   [FRAME_EXIT] = SESSION_EXITED + 1,
                                   [FRAME_SETTLED] = SESSION_SETTLED + 1,
                                   [FRAME_CELL_READY] = SESSION_SETTLED + 1,
                                   [FRAME_ERROR] = SESSION_REFUSED + 1 },
        [SESSION_RUNNING] = { [FRAME_OUTPUT] = SESSION_RUNNING + 1,
                              [FRAME_PULL] = SESSION_RUNNING + 1,
                              [FRAME_EXIT] = SESSION_EXITED + 1,
                              [FRAME_ERROR] = SESSION_REFUSED + 1 },
    };
    for (int s = 0; s < SESSION_STATE_COUNT; s++) {
        for (int t = FRAME_HELLO; t < FRAME_TYPE_END; t++) {
            cr_assert_eq(session_next((enum session_state)s, (enum frame_type)t), want[s][t] - 1,
                         "%s, frame %d", session_state_word((enum session_state)s), t);
        }
    }
}
