/* The sweeper: a thread beside the scheduler's loop that deletes objects which nobody wants.
 *
 * Theory: it walks the object store in the order of digests, a bounded piece a pass, and goes on
 * where the pass before has ended, whoever made that (the mark is in Postgres). What is old enough
 * (object.sweep_after_s) and in no row of Postgres goes: uploads that no job named, artifacts of
 * attempts that did not commit, states of snapshots that were removed or have expired, states that
 * were lent to other workers. Of several sweepers one works (an advisory lock). Why nothing is lost
 * that is wanted again meanwhile: docs/objects.md, "Sweeping". */
#pragma once
#include "common/base/config.h"
#include "common/base/err.h"
#include "common/store/object.h"
#include "common/store/sweep.h"

#define SWEEP_OBJECTS_MAX 20000 /* looked at in a pass */
#define SWEEP_REMOVED_MAX 2000  /* deleted in a pass */
#define SWEEP_ASK_MAX 100       /* Postgres is asked about so many at a time, just before */

struct sweeper;
/* config must outlive it. Connects by itself. Nothing is swept before object.sweep_every_s has gone
 * by since it did: workers that start with it commit what they have in their spools first. */
MUST_CHECK int sweeper_start(const struct config *config, struct sweeper **ret_sweeper,
                             struct err *err);
/* Ends the deletion it is in; NULL allowed. */
void sweeper_stop(struct sweeper *s);

/* stop (may be NULL): asked between deletions. after_s: age of an object, more than 0. */
typedef bool (*sweep_stop_fn)(void *arg);
struct sweep_what {
    struct pg *pg;
    struct object_store *objects;
    int64_t after_s;
    sweep_stop_fn stop;
    void *arg;
};
/* One pass; ret_pass->looked is -1 when another sweeps. What a pass that failed has done counts and
 * is in *ret_pass too. */
MUST_CHECK int sweep_pass(const struct sweep_what *w, struct sweep_pass *ret_pass, struct err *err);
