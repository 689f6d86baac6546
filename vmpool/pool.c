/* VMs and scheduling. Whatever happens ends in pool_vm_event (one VM moves) or pool_kick (the
 * scheduler looks at all of it in the next turn of the loop); the scheduler is the only one that
 * starts VMs, so that the caps hold in one place. */
#include "vmpool/pool_internal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "vmpool/ram.h"

static bool starting_state(enum vm_state s)
{
    return s == VM_BOOTING || s == VM_SAVING || s == VM_LOADING || s == VM_EXERCISING ||
           s == VM_PAUSING;
}

static void account(struct pool_vm *vm, enum vm_state state, int sign)
{
    struct pool_snapshot *s = vm->snapshot;
    uint32_t one = (uint32_t)sign; /* wraps to -1 */
    if ((vm->kind == POOL_VM_FORK && state != VM_LEASED) || vm->kind == POOL_VM_KEEP) {
        return; /* the pool is none the fuller for it */
    }
    if (starting_state(state)) {
        vm->pool->starting += one;
        s->starting += one;
    } else if (state == VM_WARM) {
        s->warm += one;
    } else if (state == VM_LEASED) {
        s->leased += one;
    }
    assert(s->warm < UINT32_MAX / 2 && s->starting < UINT32_MAX / 2 && s->leased < UINT32_MAX / 2);
}

static const char *const kind_words[] = { "clone", "boot", "seed", "fork", "keep" };

/* A seed that ends, wanted or not: clones are loaded from the snapshot until there is another. */
static void seed_ended(struct pool_vm *vm, bool failed)
{
    struct pool_snapshot *s = vm->snapshot;
    if (s->seed == vm) {
        s->seed = NULL;
    } else if (!vm->ready) {
        s->seeding = false;
    }
    int64_t retry_ms = mono_ms() + POOL_SEED_RETRY_MS;
    if (failed && s->seed_retry_at_ms < retry_ms) {
        s->seed_retry_at_ms = retry_ms;
    }
}

/* A client that waits for a fork, or for a freeze, hears that there is none. */
static void refuse_client(struct pool_vm *vm, const char *why)
{
    struct err err;
    if (vm->client) {
        (void)err_set(&err, vm->starved ? ERR_NO_CAPACITY : ERR_UNAVAILABLE,
                      "fork of template %s: %s", vm->snapshot->name, why);
        vm->pool->callbacks.refused(vm->client, vm->request, &err);
    }
    vm->client = NULL;
}

static void count_failure(struct pool_vm *vm, const char *why)
{
    struct pool_snapshot *s = vm->snapshot;
    if (vm->counted_failed || vm->pool->stopping) {
        return;
    }
    vm->counted_failed = true;
    vm->pool->failures_total++;
    char text[ENGINE_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s", why ? why : "the machine ended by itself");
    log_warn("sandbox failed", "template", s->name, "digest", s->digest, "kind",
             kind_words[vm->kind], "why", text);
    frozen_copied(vm, 1);
    if (pool_vm_is_boot(vm)) {
        snapshot_refuse(s, ERR_UNAVAILABLE, text);
    } else if (vm->freezing) {
        refuse_client(vm, text);
    } else if (vm->kind == POOL_VM_SEED || vm->lease != 0 ||
               (vm->starved && vm->kind == POOL_VM_CLONE)) {
        return; /* no word about the snapshot: a sandbox that was in use may have ended itself */
    } else if (vm->kind == POOL_VM_FORK || vm->kind == POOL_VM_KEEP) {
        refuse_client(vm, text);
    } else if (vm->copied && !vm->ready && s->seed) {
        s->seed_retry_at_ms = mono_ms() + POOL_SEED_RETRY_MS;
        pool_vm_event(s->seed, VM_EV_KILL, NULL);
    } else if (++s->failures >= POOL_FAILURES_MAX) {
        s->failures = 0;
        snapshot_refuse(s, ERR_UNAVAILABLE, text);
    }
}

static void arm(struct pool_vm *vm, int64_t ms)
{
    struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
    if (event_add(vm->timer, &tv) < 0) {
        abort();
    }
}

static void vm_free(struct pool_vm *vm)
{
    struct pool_snapshot *s = vm->snapshot;
    bool booted = pool_vm_is_boot(vm) && vm->exercised;
    struct keep *keep = vm->keep;
    bool kept = keep && vm->exercised && vm->client;
    struct pool *p = vm->pool;
    int64_t boot_ms = (mono_us() - vm->started_us) / 1000;
    TAILQ_REMOVE(&vm->pool->vms, vm, link);
    exercise_free(vm->exercise);
    quiet_free(vm->quiet);
    if (vm->timer) {
        event_free(vm->timer);
    }
    vm->pool->engine->free(vm->machine);
    frozen_let_go(vm);
    pool_kick(vm->pool);
    free(vm);
    if (booted) {
        snapshot_booted(s, boot_ms);
    }
    if (kept) {
        keep_store(p, keep);
    } else {
        keep_free(keep);
    }
}

/* One action of the table. Returns <0 when it could not be done and the VM must fail. */
static int act(struct pool_vm *vm, enum vm_action action, const char *why, struct err *err)
{
    struct pool *p = vm->pool;
    struct pool_snapshot *s = vm->snapshot;
    const struct engine *e = p->engine;
    int rc;
    switch (action) {
    case VM_DO_START:
        arm(vm, pool_vm_is_boot(vm) ? POOL_BOOT_MS_MAX : POOL_LOAD_MS_MAX);
        return 0;
    case VM_DO_SAVE:
        arm(vm, POOL_LOAD_MS_MAX);
        return vm->keep ? keep_save(vm, err) : e->save(vm->machine, -1, -1, err);
    case VM_DO_EXERCISE:
        arm(vm, pool_exercise_ms_max(vm));
        if ((rc = e->resume(vm->machine, err)) < 0) {
            return rc;
        }
        return pool_exercise(vm, err);
    case VM_DO_PAUSE:
        arm(vm, POOL_PAUSE_MS_MAX);
        return e->pause(vm->machine, err);
    case VM_DO_READY:
        (void)event_del(vm->timer);
        vm->ready = true;
        if (vm->kind == POOL_VM_FORK) {
            lease_grant(vm, vm->client, vm->request);
            return 0;
        }
        pool_learn(vm);
        policy_cloned(&s->rate, mono_us() - vm->started_us);
        s->failures = 0;
        s->refusals = 0;
        s->clones_total++;
        vm->from_pool = s->waiting == 0;
        lease_serve_waiters(p);
        pool_kick(p);
        return 0;
    case VM_DO_SEED:
        (void)event_del(vm->timer);
        vm->ready = true;
        s->seeding = false;
        s->seed_copies = 0;
        s->seed_learnt = false;
        if (s->seed) {
            pool_vm_event(s->seed, VM_EV_KILL, NULL); /* its copies live on */
        }
        if (!e->can_copy(vm->machine)) {
            s->seed_retry_at_ms = INT64_MAX; /* this host cannot */
            pool_vm_event(vm, VM_EV_KILL, NULL);
            return 0;
        }
        s->seed = vm;
        log_info("seed ready", "template", s->name, "digest", s->digest);
        pool_kick(p);
        return 0;
    case VM_DO_FROZEN:
        (void)event_del(vm->timer);
        vm->freezing = false;
        budget_frozen(vm);
        p->callbacks.frozen(vm->client, vm->request, vm->lease);
        return 0;
    case VM_DO_WRITE:
        arm(vm, POOL_LOAD_MS_MAX);
        return frozen_write(vm, err);
    case VM_DO_WRITTEN:
        (void)event_del(vm->timer);
        return frozen_written(vm, err);
    case VM_DO_FORGET:
        e->free(TAKE_PTR(vm->machine));
        return 0;
    case VM_DO_RESUME:
        return e->resume(vm->machine, err);
    case VM_DO_FAIL:
        count_failure(vm, why);
        quiet_free(TAKE_PTR(vm->quiet));
        e->destroy(vm->machine);
        return 0;
    case VM_DO_DESTROY:
        (void)event_del(vm->timer);
        exercise_free(TAKE_PTR(vm->exercise));
        quiet_free(TAKE_PTR(vm->quiet));
        e->destroy(vm->machine);
        return 0;
    case VM_DO_FAIL_FREE:
        count_failure(vm, why && *why ? why : NULL);
        vm_free(vm);
        return 0;
    case VM_DO_FREE:
        if (why && *why) { /* QEMU's last words; one that is killed has none */
            log_warn("sandbox ended by itself", "template", s->name, "kind", kind_words[vm->kind],
                     "why", why);
        }
        vm_free(vm);
        return 0;
    case VM_DO_NOTHING:
    case VM_ACTION_COUNT:
        break;
    }
    return 0;
}

void pool_vm_event(struct pool_vm *vm, enum vm_event event, const char *why)
{
    struct err err;
    enum vm_state from = vm->state;
    int action = vm_step(&vm->state, event, &err);
    if (action < 0) {
        /* an answer that came after the VM was given up is no news; anything else is our bug */
        assert(from == VM_DYING || from == VM_DEAD);
        return;
    }
    log_debug("vm", "template", vm->snapshot->name, "event", vm_event_word(event), "state",
              vm_state_word(vm->state));
    account(vm, from, -1);
    account(vm, vm->state, 1);
    if (vm->kind == POOL_VM_SEED && from != VM_DYING &&
        (vm->state == VM_DYING || vm->state == VM_DEAD)) {
        seed_ended(vm, event != VM_EV_KILL);
    }
    if (act(vm, (enum vm_action)action, why, &err) < 0) {
        pool_vm_event(vm, VM_EV_FAILED, err.text);
    }
}

static void on_machine(void *user, enum machine_event event, const char *text)
{
    struct pool_vm *vm = user;
    struct pool_snapshot *s = vm->snapshot;
    switch (event) {
    case MACHINE_RUNNING:
        break;
    case MACHINE_LOADED: {
        frozen_copied(vm, 0);
        /* demand ahead of supply, or a host with more work than slots: the exercise would only cost
         */
        bool plain = s->info.exercise_len == 0 || s->kept || vm->kind == POOL_VM_FORK ||
                     (vm->kind == POOL_VM_CLONE &&
                      (s->waiting > s->warm || mono_ms() < vm->pool->saturated_until_ms ||
                       mono_ms() < s->plain_until_ms));
        vm->exercised = vm->copied && vm->kind != POOL_VM_KEEP;
        if (vm->kind == POOL_VM_KEEP) {
            pool_vm_event(vm, VM_EV_LOADED_KEPT, NULL);
            break;
        }
        pool_vm_event(vm, plain ? VM_EV_LOADED_PLAIN : VM_EV_LOADED, NULL);
        break;
    }
    case MACHINE_PAUSED:
        pool_vm_event(vm,
                      vm->kind == POOL_VM_SEED                                   ? VM_EV_SEEDED
                      : vm->freezing && vm->pool->engine->can_write(vm->machine) ? VM_EV_STOPPED
                                                                                 : VM_EV_PAUSED,
                      NULL);
        break;
    case MACHINE_SAVED:
        if (vm->frozen) {
            frozen_saved(vm);
            break;
        }
        vm->exercised = true; /* of a boot, or to be kept: its state is complete */
        pool_vm_event(vm, VM_EV_SAVED, NULL);
        break;
    case MACHINE_FAILED:
        pool_vm_event(vm, VM_EV_FAILED, text);
        break;
    case MACHINE_EXITED:
        pool_vm_event(vm, VM_EV_EXITED, text);
        break;
    }
}

static void on_vm_timer(evutil_socket_t fd, short what, void *arg)
{
    struct pool_vm *vm = arg;
    char why[64];
    (void)fd;
    (void)what;
    (void)snprintf(why, sizeof why, "still %s after its time", vm_state_word(vm->state));
    if (vm->state == VM_EXERCISING) {
        pool_exercise_late(vm);
    } else if (vm->state == VM_LOADING && vm->pool->engine->process_id(vm->machine) == 0) {
        /* its origin does not answer, and the copy waits for as long as that lives */
        frozen_copied(vm, POOL_COPY_FAILURES_MAX);
    }
    pool_vm_event(vm, VM_EV_FAILED, why);
}

static int start_machine(struct pool_vm *vm, struct err *err)
{
    struct pool *p = vm->pool;
    struct pool_snapshot *s = vm->snapshot;
    char cmdline[512], path[32];
    int layers[MACHINE_LAYERS_MAX];
    if (vm->origin) {
        vm->copied = true;
        return p->engine->copy(vm->origin, on_machine, vm, &vm->machine, err);
    }
    if (vm->kind == POOL_VM_CLONE && s->seed && !p->engine->can_copy(s->seed->machine)) {
        pool_vm_event(s->seed, VM_EV_KILL, NULL);
    }
    if (vm->kind == POOL_VM_CLONE && s->seed) {
        vm->copied = true;
        s->seed_copies++;
        return p->engine->copy(s->seed->machine, on_machine, vm, &vm->machine, err);
    }
    manifest_cmdline(&p->host, &s->info, cmdline, sizeof cmdline);
    struct machine_options o = { .memory_mib = s->info.memory_mib,
                                 .vcpus = s->info.vcpus,
                                 .ram_fd = s->ram_fd,
                                 .share = pool_vm_is_boot(vm),
                                 .clone = !pool_vm_is_boot(vm),
                                 .freeze = pool_vm_is_boot(vm) ? FREEZE_NONE : p->host.freeze,
                                 .seed = vm->kind == POOL_VM_SEED,
                                 .layers = layers,
                                 .n_layers = frozen_layers(vm, layers),
                                 .disk = s->info.rootfs[0] ? s->info.rootfs : NULL,
                                 .kernel = s->info.kernel,
                                 .initrd = s->info.initrd,
                                 .cmdline = cmdline };
    /* each clone reads the state by an offset of its own */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d",
                   vm->from ? frozen_state_fd(TAKE_PTR(vm->from)) : s->state_fd);
    cleanup_close int state = open(path, (pool_vm_is_boot(vm) ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (state < 0) {
        return err_sys(err, "%s", path);
    }
    o.state_fd = state;
    int rc = p->engine->start(p->base, &p->host, &o, on_machine, vm, &vm->machine, err);
    if (rc < 0) {
        return rc;
    }
    if (pool_vm_is_boot(vm)) {
        vm->exercise = exercise_await_hello(p->base, p->engine->channel_fd(vm->machine),
                                            pool_on_exercised, vm);
    }
    return 0;
}

static struct pool_vm *new_vm(struct pool_snapshot *s, enum pool_vm_kind kind)
{
    struct pool_vm *vm = calloc(1, sizeof *vm);
    if (!vm) {
        abort();
    }
    vm->pool = s->pool;
    vm->snapshot = s;
    vm->kind = kind;
    return vm;
}

static void begin(struct pool_vm *vm)
{
    struct pool *p = vm->pool;
    struct err err;
    vm->started_us = mono_us();
    vm->timer = evtimer_new(p->base, on_vm_timer, vm);
    if (!vm->timer) {
        abort();
    }
    TAILQ_INSERT_TAIL(&p->vms, vm, link);
    if (start_machine(vm, &err) < 0) {
        vm->starved = err.saved_errno == EMFILE || err.saved_errno == ENFILE;
        p->starved_until_ms = vm->starved ? mono_ms() + POOL_STARVED_MS : p->starved_until_ms;
        pool_vm_event(vm, VM_EV_FAILED, err.text);
        return;
    }
    pool_vm_event(vm, pool_vm_is_boot(vm) ? VM_EV_BOOT : VM_EV_CLONE, NULL);
}

void pool_vm_start(struct pool_snapshot *s, enum pool_vm_kind kind)
{
    assert(kind != POOL_VM_FORK && kind != POOL_VM_KEEP);
    if (kind == POOL_VM_SEED) {
        s->seeding = true;
        s->seeding_since_ms = mono_ms();
    }
    begin(new_vm(s, kind));
}

void pool_vm_fork(struct pool_vm *frozen, void *client, uint32_t id)
{
    assert(frozen_is(frozen) && client);
    struct pool_vm *vm = new_vm(frozen->snapshot, POOL_VM_FORK);
    if (frozen->frozen) {
        frozen_fork(frozen, vm);
    } else {
        vm->origin = frozen->machine;
        vm->origin_lease = frozen->lease;
    }
    vm->client = client;
    vm->request = id;
    begin(vm);
}

void pool_vm_keep(struct pool_vm *frozen, void *client, uint32_t id)
{
    struct err err;
    assert(frozen_is(frozen) && client);
    if (frozen->frozen) {
        keep_written(frozen, client, id);
        return;
    }
    struct pool_vm *vm = new_vm(frozen->snapshot, POOL_VM_KEEP);
    vm->origin = frozen->machine;
    vm->origin_lease = frozen->lease;
    vm->client = client;
    vm->request = id;
    if (keep_new(vm, &err) < 0) {
        free(vm);
        frozen->pool->callbacks.refused(client, id, &err);
        return;
    }
    begin(vm);
}

/* Seeds for the snapshots that gain by one: those with an exercise, where code is translated. */
static void start_seeds(struct pool *p, int64_t now_ms)
{
    for (int i = 0; i < p->n_snapshots && p->host.freeze == FREEZE_COPY; i++) {
        struct pool_snapshot *s = p->snapshots[i];
        bool worn = !s->seed || s->seed_copies >= POOL_SEED_COPIES_MAX;
        uint32_t cost = policy_cost_mib(s->info.memory_mib, false) + POLICY_SEED_MIB;
        if (s->state == SNAPSHOT_READY && s->current && !s->build_asked &&
            s->info.exercise_len > 0 && worn && !s->seeding && now_ms >= s->seed_retry_at_ms &&
            budget_fits(p, cost, BUDGET_LATER)) {
            pool_vm_start(s, POOL_VM_SEED);
        }
    }
}

static int index_of(const struct pool *p, const struct pool_waiter *w)
{
    for (int i = 0; w && i < p->n_snapshots; i++) {
        if (p->snapshots[i] == w->snapshot) {
            return i;
        }
    }
    return -1;
}

static void start_what_is_wanted(struct pool *p, int64_t now_ms)
{
    for (int round = 0; round < POOL_SNAPSHOTS_MAX && !p->stopping; round++) {
        struct policy_want wants[POOL_SNAPSHOTS_MAX];
        for (int i = 0; i < p->n_snapshots; i++) {
            struct pool_snapshot *s = p->snapshots[i];
            /* a first seed on its way will serve everybody soon: nothing is started beside it */
            bool wait = s->seeding && !s->seed && now_ms < s->seeding_since_ms + POOL_SEED_WAIT_MS;
            wants[i] = (struct policy_want){ .waiting = s->waiting,
                                             .warm = s->warm,
                                             .starting = s->starting - (s->seeding ? 1 : 0),
                                             .target = pool_target(s, now_ms),
                                             .able = s->state == SNAPSHOT_READY && !wait };
        }
        int first = index_of(p, budget_first(p));
        int i =
            policy_pick(wants, p->n_snapshots, p->starting, (uint32_t)p->config.pool_starts_max);
        if (i < 0) {
            return;
        }
        /* without a machine the first in line has its turn before who is neediest: what is left of
         * the memory is kept for it */
        bool turn =
            first >= 0 && wants[first].able && wants[first].warm + wants[first].starting == 0;
        struct pool_snapshot *s = p->snapshots[turn ? first : i];
        bool urgent = turn || s->waiting > s->warm + s->starting;
        uint32_t cost = policy_cost_mib(s->info.memory_mib, urgent);
        enum budget_place place = turn ? BUDGET_FIRST : BUDGET_LATER;
        if (!urgent && lease_is_young(s, now_ms)) {
            return;
        }
        if (!(urgent ? budget_make_room(p, s, cost, place) : budget_fits(p, cost, place))) {
            return;
        }
        pool_vm_start(s, POOL_VM_CLONE);
        if (now_ms < p->starved_until_ms) {
            return;
        }
    }
}

static void run_scheduler(struct pool *p)
{
    int64_t now_ms = mono_ms();
    if (p->stopping) {
        return;
    }
    lease_expire(p, now_ms);
    snapshot_retry_due(p, now_ms);
    lease_serve_waiters(p);
    if (now_ms >= p->starved_until_ms) {
        start_seeds(p, now_ms);
        start_what_is_wanted(p, now_ms);
    }
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    run_scheduler(arg);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct pool *p = arg;
    (void)fd;
    (void)what;
    run_scheduler(p);
    keep_forget_idle(p, mono_ms());
    budget_shrink(p, mono_ms());
}

void pool_kick(struct pool *p)
{
    event_active(p->kick, EV_TIMEOUT, 0);
}

int pool_new(struct event_base *base, const struct config *config, const struct engine *engine,
             const struct engine_host *host, const struct pool_callbacks *callbacks,
             struct pool **ret_pool, struct err *err)
{
    struct pool *p = calloc(1, sizeof *p);
    if (!p) {
        abort();
    }
    p->base = base;
    p->config = *config;
    p->engine = engine;
    p->host = *host;
    p->callbacks = *callbacks;
    TAILQ_INIT(&p->vms);
    TAILQ_INIT(&p->waiters);
    TAILQ_INIT(&p->keeps);
    int rc = background_new(base, &p->background, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    struct timeval tick = { .tv_usec = POOL_TICK_MS * 1000 };
    p->tick = event_new(base, -1, EV_PERSIST, on_tick, p);
    p->kick = event_new(base, -1, 0, on_kick, p);
    if (!p->tick || !p->kick || event_add(p->tick, &tick) < 0) {
        abort();
    }
    *ret_pool = p;
    return 0;
}

void pool_preload(struct pool *p)
{
    char path[TEMPLATE_PATH_MAX + 32];
    struct err err;
    (void)snprintf(path, sizeof path, "%s/templates", p->config.home);
    DIR *dir = opendir(path);
    struct dirent *e;
    while (dir && (e = readdir(dir))) {
        char name[TEMPLATE_NAME_MAX], digest[TEMPLATE_DIGEST_MAX];
        struct pool_snapshot *s;
        struct manifest m;
        if (strchr(e->d_name, '@') || template_spec_parse(e->d_name, name, digest, &err) < 0 ||
            template_current(p->config.home, name, digest, &err) < 0) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/snapshots/%s/%s", p->config.home, name, digest);
        if (ram_read_manifest(path, &m, &err) < 0) {
            continue; /* made when it is first asked for */
        }
        if (snapshot_find(p, name, digest, true, &s, &err) == 0) {
            snapshot_want(s);
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
}

int pool_build(struct pool *p, const char *name, struct err *err)
{
    char plain[TEMPLATE_NAME_MAX], digest[TEMPLATE_DIGEST_MAX];
    struct pool_snapshot *s;
    int rc = template_spec_parse(name, plain, digest, err);
    if (rc < 0 || (!digest[0] && (rc = template_current(p->config.home, plain, digest, err)) < 0) ||
        (rc = snapshot_find(p, plain, digest, true, &s, err)) < 0) {
        return rc;
    }
    s->build_asked = true;
    snapshot_want(s);
    return 0;
}

void pool_status(const struct pool *p, pool_StatusReply *ret_status)
{
    pool_StatusReply *r = ret_status;
    int64_t now_ms = mono_ms();
    *r = (pool_StatusReply)pool_StatusReply_init_zero;
    (void)snprintf(r->engine, sizeof r->engine, "%s", p->host.name);
    (void)snprintf(r->engine_reason, sizeof r->engine_reason, "%s", p->host.reason);
    r->memory_used_mib = (uint32_t)pool_used_mib(p);
    r->memory_budget_mib = (uint32_t)p->config.pool_memory_mib_max;
    r->leases_total = p->leases_total;
    r->failures_total = p->failures_total;
    static_assert(POOL_SNAPSHOTS_MAX <= sizeof r->snapshots / sizeof r->snapshots[0],
                  "pool.options");
    for (int i = 0; i < p->n_snapshots; i++) {
        const struct pool_snapshot *s = p->snapshots[i];
        pool_SnapshotStatus *o = &r->snapshots[r->snapshots_count++];
        (void)snprintf(o->template, sizeof o->template, "%s", s->name);
        (void)snprintf(o->digest, sizeof o->digest, "%s", s->digest);
        (void)snprintf(o->state, sizeof o->state, "%s", snapshot_word(s));
        (void)snprintf(o->reason, sizeof o->reason, "%s", s->reason);
        o->warm = s->warm;
        o->starting = s->starting;
        o->leased = s->leased;
        o->target = pool_target(s, now_ms);
        o->memory_mib = s->info.memory_mib;
        o->clones_total = s->clones_total;
        o->hits_total = s->hits_total;
    }
}

void pool_stop(struct pool *p)
{
    struct pool_vm *vm, *next;
    p->stopping = true;
    for (vm = TAILQ_FIRST(&p->vms); vm; vm = next) {
        next = TAILQ_NEXT(vm, link);
        pool_vm_event(vm, VM_EV_KILL, NULL); /* a live one waits for its end, so next stays valid */
    }
}

bool pool_idle(const struct pool *p)
{
    return TAILQ_EMPTY(&p->vms) && background_busy(p->background) == 0;
}

void pool_free(struct pool *p)
{
    struct pool_waiter *w;
    if (!p) {
        return;
    }
    assert(pool_idle(p));
    while ((w = TAILQ_FIRST(&p->waiters))) {
        TAILQ_REMOVE(&p->waiters, w, link);
        free(w);
    }
    for (int i = 0; i < p->n_snapshots; i++) {
        snapshot_free(p->snapshots[i]);
    }
    event_free(p->tick);
    event_free(p->kick);
    background_free(p->background);
    free(p);
}
