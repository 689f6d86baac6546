/* Machines of paper for vmpool's pool: they do nothing until the test says what happens to them.
 * One set of them a process. */
#pragma once
#include <stdbool.h>
#include <sys/queue.h>
#include "vmpool/pool_internal.h"

#define PAPER_MACHINES_MAX 64

struct machine {
    LIST_ENTRY(machine) link;
    machine_listener *listener;
    void *user;
    enum machine_freeze freeze;
    int host, guest; /* the two ends of the channel */
    bool loaded, exited, destroyed, pausing, saving;
};

struct paper {
    LIST_HEAD(, machine) machines; /* the newest first */
    int n;
    bool refuses; /* what is asked of the engine next fails */
};
extern struct paper paper;
extern const struct engine paper_engine;

/* Some machine; NULL when there is none. */
struct machine *paper_machine(unsigned i);
/* Let this happen to it, if the engine may say it now (engine.h); else nothing. m may be freed. */
void paper_happen(struct machine *m, enum machine_event event, const char *text);
/* The current snapshot of template name, ready, without the files that one is read from. */
struct pool_snapshot *paper_snapshot(struct pool *p, const char *name, const char *digest,
                                     uint32_t memory_mib);
