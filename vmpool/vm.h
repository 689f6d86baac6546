/* State table of one microVM: which event leads where, and what is to be done then. Pure; the pool
 * does the doing. */
#pragma once
#include <stdbool.h>
#include "common/base/err.h"

enum vm_state {
#define VM_STATE_DEF(name, word, live) VM_##name,
#include "vmpool/vm.def"
#undef VM_STATE_DEF
    VM_STATE_COUNT
};

enum vm_event {
#define VM_EVENT_DEF(name, word) VM_EV_##name,
#include "vmpool/vm.def"
#undef VM_EVENT_DEF
    VM_EVENT_COUNT
};

enum vm_action {
    VM_DO_NOTHING,
    VM_DO_START,     /* start the process */
    VM_DO_SAVE,      /* stop it and write its device state */
    VM_DO_EXERCISE,  /* resume it and run the template's exercise */
    VM_DO_PAUSE,     /* stop it */
    VM_DO_READY,     /* it may be leased */
    VM_DO_SEED,      /* clones may be copied from it */
    VM_DO_FROZEN,    /* forks may be copied from it: tell its client */
    VM_DO_WRITE,     /* write out all of it, standing still */
    VM_DO_WRITTEN,   /* forks may be loaded from what was written: tell its client, SIGKILL */
    VM_DO_FORGET,    /* the process is gone, what it has written stays */
    VM_DO_RESUME,    /* let it run, for a lease */
    VM_DO_DESTROY,   /* SIGKILL */
    VM_DO_FAIL,      /* count the failure, SIGKILL */
    VM_DO_FREE,      /* the process is gone: free the object */
    VM_DO_FAIL_FREE, /* count the failure; the process is gone */
    VM_ACTION_COUNT
};

/* The only writer of *state. Returns the action (>= 0) and moves, or -ERR_INTERNAL and leaves
 * *state as it was. */
MUST_CHECK int vm_step(enum vm_state *state, enum vm_event event, struct err *err);
/* A process belongs to a VM in this state. */
bool vm_state_live(enum vm_state state);
const char *vm_state_word(enum vm_state state);
const char *vm_event_word(enum vm_event event);
