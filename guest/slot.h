/* What one run needs, made ahead of it: a cgroup, the pipes, and in one slot a spare of the warm
 * interpreter.
 *
 * A slot is FRESH (cgroup made), then EQUIPPED (pipes too), BUSY with its run, then USED (or KEPT,
 * for the life of the machine, where the run's processes live on); it is made anew when no fresh
 * one is left. At most one equipped slot holds a spare; a second one waits for programs that are
 * started by exec. All of this is done before the snapshot, or after a run's EXIT has been sent:
 * never between RUN and the first byte of output. */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include "guest/cell.h"
#include "guest/cgroup.h"
#include "guest/warm.h"

#define SLOTS 24u      /* a set-up of every level of branches may leave something running */
#define SLOTS_READY 6u /* of these the cgroup is made before the snapshot */
#define SLOTS_KEPT_POLLS (2 * SLOTS)

enum slot_state {
    SLOT_BARE,
    SLOT_FRESH,
    SLOT_EQUIPPED,
    SLOT_BUSY,
    SLOT_KEPT, /* its run is over, what it left running is not */
    SLOT_USED
};

struct slot {
    enum slot_state state;
    char name[16]; /* of the cgroup */
    struct cgroup cg;
    int in[2], out[2],
        err[2]; /* pipes: the agent's ends in[1], out[0], err[0] do not block; -1 when closed */
    struct warm_spare spare; /* pid 0: none */
    uint64_t cpu_base_us;    /* used by the spare before its run */
};

struct slots {
    int cgroup_fd;
    struct warm *warm;
    const struct cell *cell; /* where spares are put; NULL: the machine itself */
    struct slot slot[SLOTS];
};

/* warm and cgroup_fd stay the caller's. */
MUST_CHECK int slots_init(struct slots *s, int cgroup_fd, struct warm *warm, struct err *err);
/* Make ready for the next run what is missing; spare: also one of the warm interpreter, which costs
 * a fork. */
MUST_CHECK int slots_prepare(struct slots *s, bool spare, struct err *err);
/* Spares and pipes that were made ahead are of no use any more: the cell that they are in ends. */
void slots_drop(struct slots *s);
/* An equipped slot, with a live spare if want_spare and there is one; NULL when none is equipped.
 * It is busy until slot_done. */
struct slot *slots_take(struct slots *s, bool want_spare);
void slot_close_pipes(struct slot *slot);
/* After the run: close its pipes; the slot may be made anew. */
void slot_done(struct slot *slot);
/* After a run that leaves processes behind on purpose: they keep their cgroup, and what they print
 * is read and dropped, so that they neither block nor get SIGPIPE. */
void slot_keep(struct slot *slot);
/* p[SLOTS_KEPT_POLLS]; fd -1 for what is not waited for. */
void slots_poll_kept(const struct slots *s, struct pollfd *p);
void slots_drain_kept(struct slots *s, const struct pollfd *p);
bool slots_have_spare(const struct slots *s);
/* Slots that are not used yet. */
unsigned slots_left(const struct slots *s);
/* A process has ended: forget the spare that it was. */
void slots_ended(struct slots *s, pid_t pid);
