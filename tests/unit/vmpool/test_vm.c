/* The whole product of states and events against the rules that the table must keep. */
#include <criterion/criterion.h>

#include "vmpool/vm.h"

Test(vm, product_is_consistent)
{
    for (int state = 0; state < VM_STATE_COUNT; state++) {
        for (int event = 0; event < VM_EVENT_COUNT; event++) {
            struct err err = { 0 };
            enum vm_state s = (enum vm_state)state;
            int action = vm_step(&s, (enum vm_event)event, &err);
            if (action < 0) {
                cr_assert_eq(action, -ERR_INTERNAL);
                cr_assert_eq(s, (enum vm_state)state, "a refused event moved the state");
                cr_assert(err.text[0] != 0);
                continue;
            }
            cr_assert_lt(action, VM_ACTION_COUNT);
            cr_assert_neq(state, VM_DEAD, "nothing leaves DEAD");
            /* the process is started exactly when a live state is entered from NEW */
            cr_assert_eq(action == VM_DO_START, state == VM_NEW && vm_state_live(s));
            /* the object is freed exactly when DEAD is entered */
            cr_assert_eq(action == VM_DO_FREE || action == VM_DO_FAIL_FREE, s == VM_DEAD);
            /* whoever goes to DYING is killed, once */
            if (s == VM_DYING && state != VM_DYING) {
                cr_assert(action == VM_DO_DESTROY || action == VM_DO_FAIL);
            }
            if (state == VM_LEASED) {
                cr_assert(s == VM_DYING || s == VM_DEAD || s == VM_FREEZING,
                          "a leased sandbox is never used again");
            }
            if (state == VM_FREEZING || state == VM_FROZEN || state == VM_WRITING ||
                state == VM_WRITTEN || state == VM_STORED) {
                cr_assert(s == VM_DYING || s == VM_DEAD || s == VM_FROZEN || s == VM_WRITING ||
                              s == VM_WRITTEN || s == VM_STORED,
                          "what is frozen stays where it stands");
            }
            /* the machine is let go exactly when what it has written stays alone */
            cr_assert_eq(action == VM_DO_FORGET, s == VM_STORED);
        }
    }
}

Test(vm, every_live_state_can_end)
{
    for (int state = 0; state < VM_STATE_COUNT; state++) {
        if (!vm_state_live((enum vm_state)state)) {
            continue;
        }
        enum vm_state s = (enum vm_state)state;
        cr_assert_geq(vm_step(&s, VM_EV_KILL, NULL), 0);
        cr_assert_eq(s, VM_DYING);
        s = (enum vm_state)state;
        cr_assert_geq(vm_step(&s, VM_EV_FAILED, NULL), 0);
        cr_assert_eq(s, VM_DYING);
        s = (enum vm_state)state;
        cr_assert_geq(vm_step(&s, VM_EV_EXITED, NULL), 0);
        cr_assert_eq(s, state == VM_WRITTEN ? VM_STORED : VM_DEAD);
    }
    enum vm_state s = VM_STORED;
    cr_assert_eq(vm_step(&s, VM_EV_KILL, NULL), VM_DO_FREE);
    cr_assert_eq(s, VM_DEAD);
}

Test(vm, one_that_is_written_out)
{
    static const struct {
        enum vm_event event;
        enum vm_state to;
        enum vm_action action;
    } life[] = {
        { VM_EV_FREEZE, VM_FREEZING, VM_DO_PAUSE }, { VM_EV_STOPPED, VM_WRITING, VM_DO_WRITE },
        { VM_EV_SAVED, VM_WRITTEN, VM_DO_WRITTEN }, { VM_EV_EXITED, VM_STORED, VM_DO_FORGET },
        { VM_EV_KILL, VM_DEAD, VM_DO_FREE },
    };
    enum vm_state s = VM_LEASED;
    for (size_t i = 0; i < sizeof life / sizeof life[0]; i++) {
        cr_assert_eq(vm_step(&s, life[i].event, NULL), (int)life[i].action, "step %zu", i);
        cr_assert_eq(s, life[i].to, "step %zu", i);
    }
}

Test(vm, a_clones_life)
{
    static const struct {
        enum vm_event event;
        enum vm_state to;
        enum vm_action action;
    } life[] = {
        { VM_EV_CLONE, VM_LOADING, VM_DO_START },
        { VM_EV_LOADED, VM_EXERCISING, VM_DO_EXERCISE },
        { VM_EV_EXERCISED, VM_PAUSING, VM_DO_PAUSE },
        { VM_EV_PAUSED, VM_WARM, VM_DO_READY },
        { VM_EV_LEASE, VM_LEASED, VM_DO_RESUME },
        { VM_EV_KILL, VM_DYING, VM_DO_DESTROY },
        { VM_EV_EXITED, VM_DEAD, VM_DO_FREE },
    };
    enum vm_state s = VM_NEW;
    for (size_t i = 0; i < sizeof life / sizeof life[0]; i++) {
        cr_assert_eq(vm_step(&s, life[i].event, NULL), (int)life[i].action, "step %zu", i);
        cr_assert_eq(s, life[i].to, "step %zu", i);
    }
}

Test(vm, only_a_warm_one_is_leased)
{
    for (int state = 0; state < VM_STATE_COUNT; state++) {
        enum vm_state s = (enum vm_state)state;
        int rc = vm_step(&s, VM_EV_LEASE, NULL);
        cr_assert_eq(rc >= 0, state == VM_WARM, "state %s", vm_state_word((enum vm_state)state));
    }
}
