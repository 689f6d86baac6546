/* A slot: one thread that claims a job, runs it, hands over its end, and again.
 *
 * A slot claims only with a connection to vmpool and a place in the committer's queue, so that a
 * worker which cannot work does not take jobs from one that can. Between claim and lease is nothing
 * but the parsing of the spec, and the archive of a job that has one. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "common/base/config.h"
#include "common/store/object.h"
#include "common/store/queue.h"
#include "worker/claims.h"
#include "worker/commit.h"
#include "worker/hot.h"
#include "worker/inflight.h"
#include "worker/job_archive.h"
#include "worker/kept.h"
#include "worker/pool_client.h"
#include "worker/session.h"
#include "worker/warm.h"

struct slot;
/* Stands for lease, session and judge in programs of the tests: fills e->result and returns 0, or
 * the attempt fails with *err. s->abort_fd readable: give up with -ERR_STALE. */
typedef int (*job_script)(struct slot *s, const struct job_spec *spec, struct commit_entry *e,
                          struct err *err);

/* What the slots of a worker share; the worker's. */
struct pending;

struct slot_shared {
    const struct config *config;
    const char *name; /* of the worker */
    struct inflight *inflight;
    struct claims *claims;
    struct committer *committer;
    struct hot_park *park;        /* machines that batches share, between two jobs */
    struct object_store *objects; /* artifacts, archives; any thread; NULL: none */
    struct object_store *puts;    /* the same, for what a slot waits for with its result in hand */
    struct pending *pending;      /* artifacts that wait for objects; NULL: none */
    struct kept *kept;
    struct publisher *publisher; /* live output */
    struct spool_view spool;
    struct warm *warm;     /* kept states, here and elsewhere */
    job_script script;     /* NULL but in programs of the tests */
    int slots;             /* sandboxes that may run at once */
    atomic_int extra;      /* of these, lent to further branches of jobs that hold a slot */
    atomic_bool stopping;  /* claim nothing more */
    atomic_bool giving_up; /* abort what runs */
    atomic_bool told;      /* that slots wait for Redis or vmpool */
    atomic_int busy;       /* slots with a job now */
    atomic_int alive;      /* slot threads that have not ended */
};

struct slot {
    struct slot_shared *shared;
    int number;
    pthread_t thread;
    struct queue queue; /* claims */
    struct pool_client pool;
    struct session session;
    struct job_unpacked archive; /* of the job in hand, until its machine has it */
    int abort_fd;                /* eventfd: the job in hand is to be given up */
    bool holds_place;            /* in the committer's queue */
};

/* Connects (Redis) and starts the thread. s is zeroed memory that stays until slot_join. */
MUST_CHECK int slot_start(struct slot *s, struct slot_shared *shared, int number, struct err *err);
/* Wake the slot out of its job. */
void slot_abort(struct slot *s);
void slot_join(struct slot *s);
