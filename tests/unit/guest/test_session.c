#include <criterion/criterion.h>

#include "guest/session.h"

/* The whole product of states and frames against the table, read a second time here. */
static bool listed(enum session_state from, enum frame_type type, struct session_step *ret_step)
{
#define SESSION_DEF(f, t, to, action)                                                              \
    if (from == SESSION_##f && type == FRAME_##t) {                                                \
        *ret_step = (struct session_step){ SESSION_##to, ACTION_##action };                        \
        return true;                                                                               \
    }
#include "guest/session.def"
#undef SESSION_DEF
    return false;
}

Test(session, whole_product)
{
    unsigned rows = 0;
    for (int s = 0; s < SESSION_STATES; s++) {
        for (int t = FRAME_HELLO; t < FRAME_TYPE_END; t++) {
            struct session_step have = session_step(s, t), want;
            if (listed(s, t, &want)) {
                rows++;
                cr_expect_eq(have.to, want.to);
                cr_expect_eq(have.action, want.action);
                cr_expect_neq(have.action, ACTION_refuse);
            } else {
                cr_expect_eq(have.to, (enum session_state)s, "a refused frame changes nothing");
                cr_expect_eq(have.action, ACTION_refuse);
            }
            cr_expect_lt(have.to, SESSION_STATES);
            cr_expect_lt(have.action, ACTIONS);
        }
    }
    cr_expect_eq(rows, 25u, "a pair is listed once: %u", rows);
}

Test(session, frames_of_the_guest_are_refused_everywhere)
{
    static const enum frame_type own[] = { FRAME_HELLO,        FRAME_READY,     FRAME_STARTED,
                                           FRAME_PULL,         FRAME_OUTPUT,    FRAME_EXIT,
                                           FRAME_ERROR,        FRAME_ARTIFACT,  FRAME_ARTIFACT_DATA,
                                           FRAME_ARTIFACT_END, FRAME_COLLECTED, FRAME_SETTLED,
                                           FRAME_CELL_READY };
    for (int s = 0; s < SESSION_STATES; s++) {
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            cr_expect_eq(session_step(s, own[i]).action, ACTION_refuse);
        }
        cr_expect_eq(session_step(s, FRAME_PING).action, ACTION_hello, "always alive");
    }
}

Test(session, untrusted_code_needs_an_identity)
{
    cr_expect_eq(session_step(SESSION_FRESH, FRAME_RUN).action, ACTION_run_trusted);
    cr_expect_eq(session_step(SESSION_FRESH, FRAME_FILE).action, ACTION_refuse);
    cr_expect_eq(session_step(SESSION_RUNNING, FRAME_RUN).action, ACTION_refuse);
    cr_expect_eq(session_step(SESSION_FRESH, FRAME_COLLECT).action, ACTION_refuse);
    cr_expect_eq(session_step(SESSION_FRESH, FRAME_SETTLE).action, ACTION_refuse);
    cr_expect_eq(session_step(SESSION_RUNNING, FRAME_SETTLE).action, ACTION_refuse);
    cr_expect_eq(session_step(SESSION_RUNNING, FRAME_COLLECT).action, ACTION_refuse);
    cr_expect_eq(session_step(SESSION_RUNNING, FRAME_IDENTITY).action, ACTION_refuse);
}
