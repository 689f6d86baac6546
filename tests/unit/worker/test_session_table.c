#include <criterion/criterion.h>

#include "worker/retry.h"
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

Test(retry, doubles_up_to_the_maximum_with_jitter)
{
    cr_assert_eq(retry_delay_ms(200, 30000, 1, 0), 200);
    cr_assert_eq(retry_delay_ms(200, 30000, 2, 0), 400);
    cr_assert_eq(retry_delay_ms(200, 30000, 3, 0), 800);
    cr_assert_eq(retry_delay_ms(200, 30000, 99, 0), 30000);
    cr_assert_eq(retry_delay_ms(0, 30000, 99, 5), 0);
    cr_assert_eq(retry_delay_ms(500, 100, 1, 0), 100);
    for (uint32_t r = 0; r < 0xf0000000u; r += 0x01000000u) {
        int64_t d = retry_delay_ms(200, 30000, 3, r);
        cr_assert(d > 400 && d <= 800, "%ld", (long)d);
    }
}
