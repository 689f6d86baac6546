/* Between pool.c (VMs and scheduling), pool_snapshot.c (where snapshots come from) and pool_lease.c
 * (who gets one). */
#pragma once
#include <sys/queue.h>
#include "vmpool/background.h"
#include "vmpool/exercise.h"
#include "vmpool/kept.h"
#include "vmpool/manifest.h"
#include "vmpool/policy.h"
#include "vmpool/pool.h"
#include "vmpool/quiet.h"
#include "vmpool/template.h"
#include "vmpool/vm.h"

#define POOL_FAILURES_MAX 3      /* in a row, then the snapshot is refused for a while */
#define POOL_COPY_FAILURES_MAX 2 /* in a row of one frozen sandbox, then it is given up */
#define POOL_BOOT_MS_MAX 180000
#define POOL_LOAD_MS_MAX 30000
#define POOL_EXERCISE_MS_MAX 60000
#define POOL_SEED_EXERCISE_MS_MAX 300000 /* its copies gain by it for as long as it lives */
#define POOL_PLAIN_MS 120000 /* for so long after a late one nothing is exercised but a seed */
#define POOL_SEED_ROUNDS 16  /* of a seed: paid once, inherited by all its copies */
#define POOL_SEED_EXERCISE_MS 4000 /* then it is good enough */
#define POOL_EXAMPLE_ROUNDS 3      /* of the copy that shows what copies write */
#define POOL_SEED_WAIT_MS 30000    /* for so long nothing else is started beside a first seed */
#define POOL_SEED_COPIES_MAX 1024  /* then it is renewed: copies share their host address layout */
#define POOL_SEED_RETRY_MS 10000
#define POOL_PAUSE_MS_MAX 10000
#define POOL_TICK_MS 100
#define POOL_YOUNG_MS 40 /* the processors are a new job's before they are its successor's */
#define POOL_KEPT_IDLE_MS 120000 /* then a kept state that nobody uses leaves memory */
#define KEPT_NAME "kept"
#define POOL_STARVED_MS 1000  /* without a descriptor nothing is started for so long */
#define POOL_SATURATED_MS 500 /* a saturated request speaks for this long */

enum snapshot_state {
    SNAPSHOT_NEW,      /* nothing known yet */
    SNAPSHOT_READING,  /* from disk, on a helper thread */
    SNAPSHOT_BUILDING, /* its template's machine boots */
    SNAPSHOT_SEALING,  /* zero pages are given back, on a helper thread */
    SNAPSHOT_READY,
    SNAPSHOT_REFUSED /* until retry_at_ms */
};

struct pool_snapshot {
    struct pool *pool;
    char name[TEMPLATE_NAME_MAX], digest[TEMPLATE_DIGEST_MAX];
    enum snapshot_state state;
    struct template_info info;
    struct manifest manifest;
    int ram_fd, state_fd; /* sealed memfds when READY; while building, what the boot writes */
    bool current;         /* templates/NAME/current points to it */
    bool stored;          /* on disk */
    bool build_asked;     /* pool_build waits for it */
    bool kept;            /* a tenant's: name is KEPT_NAME, digest its ID */
    uint32_t load_mib;    /* of a kept one that is not read yet: what it takes; 0: not known */
    struct kept_manifest chain; /* of a kept one */
    char
        base[KEPT_ID_TEXT]; /* where its chain ends; of a template's: the ID it is kept as, or "" */
    uint32_t keeping;       /* states that start from it are being written */
    int64_t used_ms;        /* last lease */
    struct policy_rate rate;
    uint32_t warm, starting, leased, waiting;
    uint32_t failures;          /* of clones, in a row */
    uint32_t refusals;          /* in a row */
    enum err_code refused_code; /* what requests are told while refused */
    int64_t retry_at_ms;
    int64_t begun_ms; /* when it was last wanted from disk: how long reading and building take */
    char reason[ENGINE_TEXT_MAX];
    uint64_t clones_total, hits_total;
    struct pool_vm *seed; /* in state SEED; NULL: clones are loaded one by one */
    bool seeding;         /* one is on its way */
    uint32_t seed_copies;
    bool seed_learnt; /* it knows what its copies write */
    int64_t seed_retry_at_ms, seeding_since_ms;
    int64_t plain_until_ms; /* clones are not exercised until then: the host is too busy */
};

enum pool_vm_kind {
    POOL_VM_CLONE, /* to be leased: a copy of the seed, or loaded from the snapshot */
    POOL_VM_BOOT,  /* becomes the snapshot */
    POOL_VM_SEED,  /* loaded from the snapshot, exercised, then copied */
    POOL_VM_FORK,  /* goes on where a frozen sandbox stands, for the client that asked */
    POOL_VM_KEEP   /* a copy of a frozen sandbox, to be written out */
};

struct pool_vm {
    TAILQ_ENTRY(pool_vm) link;
    struct pool *pool;
    struct pool_snapshot *snapshot;
    enum vm_state state;
    struct machine *machine;
    struct exercise *exercise;
    struct quiet *quiet; /* after the exercise */
    struct event *timer;
    int64_t started_us;
    enum pool_vm_kind kind;
    bool exercised, counted_failed;
    bool starved;        /* there was no descriptor for it: nobody's fault */
    bool copied;         /* from a seed */
    bool practised;      /* has run the exercise itself */
    bool example;        /* its seed is to learn from it */
    bool freezing;       /* its client waits for the answer */
    uint32_t frozen_mib; /* of a frozen one: memory of its own */
    bool ready;          /* was WARM or SEED */
    bool from_pool;      /* was warm before anybody asked */
    void *client;        /* while leased or frozen; of a fork: who waits for it */
    uint64_t lease;
    uint32_t request;          /* fork, or freezing: what the client's question was numbered */
    struct machine *origin;    /* fork, keep: what it is copied from; during the start only */
    uint64_t origin_lease;     /* and whose that is */
    uint32_t copy_failures;    /* of a frozen one: copies that failed, in a row */
    struct frozen *from;       /* fork: what it is loaded from; during the start only */
    struct frozen_layer *over; /* what its RAM lies over, beside the snapshot's */
    struct frozen *frozen;     /* what is written of it, when it is not there to be copied */
    struct keep *keep;         /* where a kept one is written to */
};

struct pool_waiter {
    TAILQ_ENTRY(pool_waiter) link;
    struct pool_snapshot *snapshot;
    void *client;
    uint32_t id;
    int64_t deadline_ms;
};

struct pool {
    struct event_base *base;
    struct config config;
    const struct engine *engine;
    struct engine_host host;
    struct pool_callbacks callbacks;
    struct background *background;
    struct event *tick, *kick;
    struct pool_snapshot *snapshots[POOL_SNAPSHOTS_MAX];
    int n_snapshots;
    TAILQ_HEAD(, pool_vm) vms;
    TAILQ_HEAD(, pool_waiter) waiters;
    TAILQ_HEAD(, keep) keeps; /* whose machine has been written out, and that go to disk */
    uint64_t layer_bytes;     /* of frozen sandboxes that are written out */
    uint32_t n_waiters, starting;
    int64_t saturated_until_ms, starved_until_ms;
    uint64_t last_lease, leases_total, failures_total;
    bool stopping;
};

/* pool.c */
void pool_vm_start(struct pool_snapshot *s, enum pool_vm_kind kind);
/* A sandbox that goes on where a frozen one stands, for client's request id. */
void pool_vm_fork(struct pool_vm *frozen, void *client, uint32_t id);
/* Move the VM's state and do what the table says. why: for failures, may be NULL. */
void pool_vm_event(struct pool_vm *vm, enum vm_event event, const char *why);
/* Run the scheduler in the next turn of the loop. */
void pool_kick(struct pool *p);

/* Keep a frozen one, for client's request id: a copy of it is written out, if it is not already. */
void pool_vm_keep(struct pool_vm *frozen, void *client, uint32_t id);

/* pool_budget.c */
bool pool_vm_is_boot(const struct pool_vm *vm);
/* MiB of the budget that are taken now. */
uint64_t pool_used_mib(const struct pool *p);
/* The machine has stopped for good: what it holds from now on is measured. */
void budget_frozen(struct pool_vm *vm);
/* Warm sandboxes that the snapshot should hold. */
uint32_t pool_target(const struct pool_snapshot *s, int64_t now_ms);
/* Who is first in line for memory; NULL: nobody waits for it. */
struct pool_waiter *budget_first(const struct pool *p);
/* What a lease of it takes beyond what is counted. */
uint32_t budget_lease_mib(const struct pool_snapshot *s);
enum budget_place {
    BUDGET_FIRST, /* of the first in line: all that is left */
    BUDGET_FORK,  /* likewise, but nobody's machine ends for it that is waited for */
    BUDGET_LATER  /* beside what the first in line needs */
};
bool budget_fits(const struct pool *p, uint32_t need_mib, enum budget_place place);
/* Does it fit, perhaps once kept states that nobody uses have been dropped (their objects too, but
 * for needy's)? If not, one warm sandbox ends, whose memory comes back when it is reaped. */
bool budget_make_room(struct pool *p, const struct pool_snapshot *needy, uint32_t need_mib,
                      enum budget_place place);
/* End a warm sandbox of a snapshot with more than it should hold. */
void budget_shrink(struct pool *p, int64_t now_ms);

/* pool_frozen.c */
/* May it be forked and kept? */
bool frozen_is(const struct pool_vm *vm);
/* As many layers as can be under a machine are: it cannot be written out. */
bool frozen_too_deep(const struct pool_vm *vm);
/* Write out the machine, which stands still: SAVED or FAILED. */
MUST_CHECK int frozen_write(struct pool_vm *vm, struct err *err);
/* Its device state is complete. */
void frozen_saved(struct pool_vm *vm);
/* All of it is: forbid changes, tell the client, end the process. */
MUST_CHECK int frozen_written(struct pool_vm *vm, struct err *err);
/* The sandbox has ended; one that was never frozen is allowed. */
void frozen_let_go(struct pool_vm *vm);
/* fork is to be loaded from what is written of frozen. */
void frozen_fork(const struct pool_vm *frozen, struct pool_vm *fork);
/* A copy of a frozen one is there (failures 0), or has failed, which counts as so many failures. A
 * frozen one that cannot be copied is given up: whoever asks next hears that it is gone. Of any
 * other machine nothing is done. */
void frozen_copied(struct pool_vm *copy, uint32_t failures);
/* Borrowed: the device state; what lies under vm, and what is written of frozen, the oldest first.
 */
int frozen_state_fd(const struct frozen *f);
size_t frozen_layers(const struct pool_vm *vm, int fds[MACHINE_LAYERS_MAX]);
size_t frozen_own_layers(const struct pool_vm *frozen, int fds[MACHINE_LAYERS_MAX]);

/* pool_keep.c */
struct keep;
MUST_CHECK int keep_new(struct pool_vm *vm, struct err *err);
/* Keep what is written of frozen already, for client's request id. */
void keep_written(const struct pool_vm *frozen, void *client, uint32_t id);
/* NULL is allowed. */
void keep_free(struct keep *k);
/* Have the machine written out: SAVED or FAILED. */
MUST_CHECK int keep_save(struct pool_vm *vm, struct err *err);
/* The machine is gone and written out: to disk with it, then the client is answered. Takes k. */
void keep_store(struct pool *p, struct keep *k);
/* Kept states that have not been used for a while give their memory back. */
void keep_forget_idle(struct pool *p, int64_t now_ms);
void keep_client_gone(struct pool *p, const void *client);

/* pool_exercise.c */
/* Run the template's exercise in the resumed machine, then let it come to rest: EXERCISED or
 * FAILED. */
MUST_CHECK int pool_exercise(struct pool_vm *vm, struct err *err);
/* exercise_done of a machine; of a template's, which only says hello: HELLO or FAILED. */
void pool_on_exercised(void *user, const char *why);
int64_t pool_exercise_ms_max(const struct pool_vm *vm);
/* The exercise takes too long. It only makes a sandbox quick, so that is no fault of the
 * snapshot's: the next clones do without. */
void pool_exercise_late(struct pool_vm *vm);
/* The first exercised copy of a seed is the example for those that follow. */
void pool_learn(struct pool_vm *vm);

/* pool_snapshot.c */
MUST_CHECK int snapshot_find(struct pool *p, const char *name, const char *digest, bool current,
                             struct pool_snapshot **ret, struct err *err);
/* Get it on its way to READY, if it is not. */
void snapshot_want(struct pool_snapshot *s);
void snapshot_booted(struct pool_snapshot *s, int64_t boot_ms);
/* Not to be used for a while; its waiters are told. code: what they are told. */
void snapshot_refuse(struct pool_snapshot *s, enum err_code code, const char *why);
/* Forget it: nothing uses it (snapshot_used). */
void snapshot_drop(struct pool *p, int i);
bool snapshot_used(const struct pool_snapshot *s);
void snapshot_retry_due(struct pool *p, int64_t now_ms);
void snapshot_free(struct pool_snapshot *s);
const char *snapshot_word(const struct pool_snapshot *s);

/* pool_lease.c */
void lease_serve_waiters(struct pool *p);
/* The sandbox is warm and meant for this client. */
void lease_grant(struct pool_vm *vm, void *client, uint32_t id);
/* What a request is told that has waited for its time: where its snapshot stands, for how long. */
void lease_late(const struct pool_snapshot *s, int64_t now_ms, uint64_t used_mib, uint64_t max_mib,
                struct err *err);
/* A job has just been given a sandbox of s, another is warm: what replaces it can wait a moment,
 * and a kick comes when that is over. */
bool lease_is_young(struct pool_snapshot *s, int64_t now_ms);
void lease_expire(struct pool *p, int64_t now_ms);
void lease_fail_waiters(struct pool_snapshot *s, const struct err *err);
/* NULL: there is none of this number. */
struct pool_vm *lease_find(struct pool *p, uint64_t lease);
