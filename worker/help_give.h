/* Branches of a job that other workers run, the side of the worker that has the job.
 *
 * Theory: the coordinator of the tree (tree_exec.h) stays the only one who decides: it offers a
 * ready leaf (help_offer), asks in each of its turns what came of the offers (help_turn), and takes
 * one back when it has a place of its own (help_take_back). A frozen state is written and copied to
 * the object store once, by a thread, before the first of its leaves is offered; at the end it is
 * removed again. What goes wrong with an offer, a helper's death, a lost Redis, a state that
 * another host cannot load, ends it as HELP_FAILED, and the leaf is run at home. Thread: the
 * coordinator's.
 */
#pragma once
#include "common/store/queue_help.h"
#include "common/store/snapshots.h"
#include "worker/commit.h"
#include "worker/slot.h"

struct help;

/* s, claim, tree and from (or NULL) outlive it. Connects to nothing yet. */
struct help *help_new(struct slot *s, const struct claim *claim, const struct tree *tree,
                      const struct snapshot_row *from);
/* Nothing is wanted any more; lent states go. NULL allowed. */
void help_free(struct help *h);

/* The node's state is kept anyway: it need not be written again. */
void help_has_state(struct help *h, int node, const struct snapshot_row *row);
/* How many more leaves are worth an offer now. waiting leaves are ready and find no place here; one
 * takes mean_us (0: not known yet). Asks Redis at most every HELP_LOOK_MS. */
int help_wanted(struct help *h, int waiting, int64_t mean_us);
/* Offer this ready leaf, which starts from parent's frozen state: true: it is away. false: not now
 * (its state is still being written), or never. */
bool help_offer(struct help *h, int node, int tries, const struct lease *parent);
/* A leaf that nobody has taken yet, taken back: its number, or -1. */
int help_take_back(struct help *h);
/* Nobody needs this leaf any more. */
void help_drop(struct help *h, int node);

enum help_end {
    HELP_NONE,
    HELP_RESULT, /* r and artifacts are the leaf's */
    HELP_FAILED, /* run it at home */
};
/* The next offer that has ended since: *ret_node, and its result into r and ret_artifacts, which
 * `room` gives for a node (both empty). */
typedef void (*help_room)(void *user, int node, struct job_result **ret_r,
                          struct manifest **ret_artifacts);
enum help_end help_turn(struct help *h, help_room room, void *user, int *ret_node);
/* Leaves that are away; is this one? */
int help_away(const struct help *h);
bool help_is_away(const struct help *h, int node);
