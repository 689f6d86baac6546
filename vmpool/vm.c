/* The table of vm.def turned into one lookup; the whole product of states and events fits in 120
 * bytes. */
#include "vmpool/vm.h"

#include <assert.h>
#include <stdint.h>

struct step {
    uint8_t listed, to, action;
};

static const struct step steps[VM_STATE_COUNT][VM_EVENT_COUNT] = {
#define VM_STEP_DEF(from, event, to, action)                                                       \
    [VM_##from][VM_EV_##event] = { 1, VM_##to, VM_DO_##action },
#include "vmpool/vm.def"
#undef VM_STEP_DEF
};

static const struct {
    const char *word;
    bool live;
} states[VM_STATE_COUNT] = {
#define VM_STATE_DEF(name, word, live) [VM_##name] = { word, live },
#include "vmpool/vm.def"
#undef VM_STATE_DEF
};

static const char *const events[VM_EVENT_COUNT] = {
#define VM_EVENT_DEF(name, word) [VM_EV_##name] = word,
#include "vmpool/vm.def"
#undef VM_EVENT_DEF
};

int vm_step(enum vm_state *state, enum vm_event event, struct err *err)
{
    assert(*state < VM_STATE_COUNT && event < VM_EVENT_COUNT);
    const struct step *s = &steps[*state][event];
    if (!s->listed) {
        return err_set(err, ERR_INTERNAL, "vm: event %s in state %s", events[event],
                       states[*state].word);
    }
    *state = s->to;
    return s->action;
}

bool vm_state_live(enum vm_state state)
{
    assert(state < VM_STATE_COUNT);
    return states[state].live;
}

const char *vm_state_word(enum vm_state state)
{
    assert(state < VM_STATE_COUNT);
    return states[state].word;
}

const char *vm_event_word(enum vm_event event)
{
    assert(event < VM_EVENT_COUNT);
    return events[event];
}
