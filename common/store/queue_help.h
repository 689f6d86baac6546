/* Branches that another worker runs: tickets, who has one, results.
 *
 * Theory: the worker that claimed a job alone commits it. When branches wait for a place on its
 * host and other workers have places free, it offers some of them as tickets on a list; whoever
 * takes one runs that branch from the offered state and puts the result on the job's list. A branch
 * is wanted as long as the owner says so (a set that expires unless the owner renews it): the
 * helper asks at every renewal of its own mark, and a result is taken only of a branch that is
 * wanted, which it is then no more. So a branch gives at most one result a try, whoever dies. Keys
 * are in docs/protocol.md ("Help"). All of it is soft state: a Redis that loses it loses a try. */
#pragma once
#include "common/store/queue.h"

#define HELP_LAYERS_MAX 32
#define HELP_DIGEST_MAX 64 /* bytes of an object's name */
#define HELP_OWNER_TTL_MS 15000
#define HELP_MARK_TTL_MS 10000
#define HELP_LOST_MS 3000 /* so long a ticket may be nowhere */
#define HELP_RESULT_TTL_MS 60000

struct help_ticket {
    char job_id[ID_TEXT_BYTES], tenant[JOB_TENANT_MAX + 1];
    char claim[QUEUE_STREAM_ID_MAX]; /* the job's entry on the ready stream, which has its spec */
    int attempt, node, tries;
    char layers[HELP_LAYERS_MAX][HELP_DIGEST_MAX + 1]; /* of the state, as snapshot_row has them */
    int n_layers;
};

/* ---- the owner ---- */
/* Places that workers other than `self` have free now. */
MUST_CHECK int queue_help_places(struct queue *q, const char *self, int *ret_places,
                                 struct err *err);
MUST_CHECK int queue_help_offer(struct queue *q, const struct help_ticket *t, struct err *err);
/* The tickets of this attempt stay wanted; call it within HELP_OWNER_TTL_MS. 0: nothing is wanted
 * any more (or Redis has lost it), 1. */
MUST_CHECK int queue_help_renew(struct queue *q, const struct help_ticket *t, struct err *err);
/* Take an offer back: 1, it is wanted no more and nobody had it; 0: somebody has it. */
MUST_CHECK int queue_help_withdraw(struct queue *q, const struct help_ticket *t, struct err *err);
/* Want a ticket no more, whoever has it; its helper learns it at its next renewal. 1: nobody will
 * give a result; 0: it is there already. */
MUST_CHECK int queue_help_unwant(struct queue *q, const struct help_ticket *t, struct err *err);
/* Where is it? 1: on the list, with a helper that is alive, or its result is there; 0: nowhere. */
MUST_CHECK int queue_help_alive(struct queue *q, const struct help_ticket *t, struct err *err);
/* The next result of the ticket's attempt appended to out: 1, else 0. */
MUST_CHECK int queue_help_result(struct queue *q, const struct help_ticket *t, int *ret_node,
                                 int *ret_tries, struct buf *out, struct err *err);
/* Everything of the attempt goes. */
MUST_CHECK int queue_help_end(struct queue *q, const struct help_ticket *t, struct err *err);

/* ---- the helper ---- */
/* The oldest ticket that is still wanted, marked as worker's: 1, else 0. What is no ticket is
 * dropped. */
MUST_CHECK int queue_help_take(struct queue *q, const char *worker, struct help_ticket *ret_ticket,
                               struct err *err);
/* Renew the mark: 1; 0: the branch is wanted no more, give it up. */
MUST_CHECK int queue_help_mark(struct queue *q, const struct help_ticket *t, const char *worker,
                               struct err *err);
/* Hand in the result: 1; 0: it is wanted no more. */
MUST_CHECK int queue_help_done(struct queue *q, const struct help_ticket *t, const void *result,
                               size_t len, struct err *err);
