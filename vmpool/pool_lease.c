/* Who gets a sandbox. First come, first served for each snapshot; the memory budget is one queue
 * for all, so that a large sandbox is not overtaken for ever by small ones. */
#include "vmpool/pool_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

/* An exercised one before a plain one, then the oldest. */
static struct pool_vm *best_warm(const struct pool_snapshot *s)
{
    struct pool_vm *vm, *plain = NULL;
    if (s->warm == 0) {
        return NULL;
    }
    TAILQ_FOREACH(vm, &s->pool->vms, link)
    {
        if (vm->snapshot != s || vm->state != VM_WARM) {
            continue;
        }
        if (vm->exercised) {
            return vm;
        }
        plain = plain ? plain : vm;
    }
    return plain;
}

void lease_grant(struct pool_vm *vm, void *client, uint32_t id)
{
    struct pool *p = vm->pool;
    struct pool_snapshot *s = vm->snapshot;
    const struct engine *e = p->engine;
    pool_vm_event(vm, VM_EV_LEASE, NULL);
    if (vm->state != VM_LEASED) {
        /* QEMU died this moment; another sandbox or the deadline answers */
        struct err err;
        (void)err_set(&err, ERR_UNAVAILABLE, "template %s: the sandbox ended while it was leased",
                      s->name);
        p->callbacks.refused(client, id, &err);
        return;
    }
    vm->client = client;
    vm->lease = ++p->last_lease;
    struct pool_grant g = { .channel_fd = e->channel_fd(vm->machine),
                            .schedstat_fd = e->schedstat_fd(vm->machine) };
    g.reply.lease = vm->lease;
    g.reply.vcpus = s->info.vcpus;
    g.reply.memory_mib = s->info.memory_mib;
    g.reply.exercised = vm->exercised;
    g.reply.warm = vm->from_pool;
    (void)snprintf(g.reply.snapshot, sizeof g.reply.snapshot, "%s", s->digest);
    (void)snprintf(g.reply.engine, sizeof g.reply.engine, "%s", p->host.name);
    p->leases_total++;
    s->hits_total += vm->from_pool ? 1 : 0;
    bool delivered = p->callbacks.granted(client, id, &g);
    (void)close(e->take_channel(
        vm->machine)); /* the worker's alone from now on: our end would hide that QEMU is gone */
    if (!delivered) {
        pool_vm_event(vm, VM_EV_KILL, NULL);
    }
}

static void drop_waiter(struct pool *p, struct pool_waiter *w)
{
    assert(w->snapshot->waiting > 0 && p->n_waiters > 0);
    TAILQ_REMOVE(&p->waiters, w, link);
    w->snapshot->waiting--;
    p->n_waiters--;
    free(w);
}

void lease_serve_waiters(struct pool *p)
{
    struct pool_waiter *w = TAILQ_FIRST(&p->waiters);
    while (w && !p->stopping) {
        struct pool_waiter *next = TAILQ_NEXT(w, link);
        struct pool_vm *vm = best_warm(w->snapshot);
        if (vm) {
            uint32_t more = budget_lease_mib(w->snapshot);
            if (!(w == budget_first(p) ? budget_make_room(p, w->snapshot, more, BUDGET_FIRST)
                                       : budget_fits(p, more, BUDGET_LATER))) {
                return;
            }
            void *client = w->client;
            uint32_t id = w->id;
            drop_waiter(p, w);
            lease_grant(vm, client, id);
            /* a client that could not be answered may have taken other waiters with it */
            next = TAILQ_FIRST(&p->waiters);
        }
        w = next;
    }
}

void lease_late(const struct pool_snapshot *s, int64_t now_ms, uint64_t used_mib, uint64_t max_mib,
                struct err *err)
{
    long long since_s = (now_ms - s->begun_ms) / 1000;
    switch (s->state) {
    case SNAPSHOT_READING:
        (void)err_set(err, ERR_NO_CAPACITY, "snapshot of template %s is still being loaded, %lld s",
                      s->name, since_s);
        return;
    case SNAPSHOT_BUILDING:
    case SNAPSHOT_SEALING:
        (void)err_set(err, ERR_NO_CAPACITY,
                      "snapshot of template %s is still being made (the template boots), %lld s",
                      s->name, since_s);
        return;
    default:
        (void)err_set(err, ERR_NO_CAPACITY,
                      "template %s: no sandbox became free within %d ms (%llu of %llu MiB in use)",
                      s->name, POOL_LEASE_WAIT_MS, (unsigned long long)used_mib,
                      (unsigned long long)max_mib);
    }
}

void lease_expire(struct pool *p, int64_t now_ms)
{
    struct pool_waiter *w;
    /* in order of arrival, hence of deadline */
    while ((w = TAILQ_FIRST(&p->waiters)) && now_ms >= w->deadline_ms) {
        struct err err;
        void *client = w->client;
        uint32_t id = w->id;
        lease_late(w->snapshot, now_ms, pool_used_mib(p), (uint64_t)p->config.pool_memory_mib_max,
                   &err);
        drop_waiter(p, w);
        p->callbacks.refused(client, id, &err);
    }
}

void lease_fail_waiters(struct pool_snapshot *s, const struct err *err)
{
    struct pool *p = s->pool;
    while (s->waiting > 0) {
        struct pool_waiter *w;
        TAILQ_FOREACH(w, &p->waiters, link)
        {
            if (w->snapshot == s) {
                break;
            }
        }
        assert(w);
        void *client = w->client;
        uint32_t id = w->id;
        drop_waiter(p, w);
        p->callbacks.refused(client, id, err);
    }
}

static int find_by_spec(struct pool *p, const char *spec, struct pool_snapshot **ret,
                        struct err *err)
{
    char name[TEMPLATE_NAME_MAX], digest[TEMPLATE_DIGEST_MAX];
    size_t prefix = strlen(KEPT_PREFIX);
    if (strncmp(spec, KEPT_PREFIX, prefix) == 0) {
        return kept_id_ok(spec + prefix)
                   ? snapshot_find(p, KEPT_NAME, spec + prefix, false, ret, err)
                   : err_set(err, ERR_INVALID, "template: " KEPT_PREFIX "ID: 64 hex digits");
    }
    int rc = template_spec_parse(spec, name, digest, err);
    if (rc < 0) {
        return rc;
    }
    bool current = !digest[0];
    if (current && (rc = template_current(p->config.home, name, digest, err)) < 0) {
        return rc;
    }
    return snapshot_find(p, name, digest, current, ret, err);
}

void pool_lease(struct pool *p, void *client, uint32_t id, const char *spec, bool saturated)
{
    struct err err;
    struct pool_snapshot *s;
    int64_t now_ms = mono_ms();
    if (p->stopping) {
        (void)err_set(&err, ERR_UNAVAILABLE, "vmpool is stopping");
        p->callbacks.refused(client, id, &err);
        return;
    }
    if (find_by_spec(p, spec, &s, &err) < 0) {
        p->callbacks.refused(client, id, &err);
        return;
    }
    if (saturated) {
        p->saturated_until_ms = now_ms + POOL_SATURATED_MS;
    }
    policy_arrived(&s->rate, now_ms);
    s->used_ms = now_ms;
    pool_kick(p);
    struct pool_vm *vm = s->waiting == 0 ? best_warm(s) : NULL;
    if (vm && budget_fits(p, budget_lease_mib(s), BUDGET_LATER)) {
        lease_grant(vm, client, id);
        return;
    }
    if (s->state == SNAPSHOT_REFUSED) {
        (void)err_set(&err, s->refused_code, "template %s: %s (tried again in %lld ms)", s->name,
                      s->reason,
                      (long long)(s->retry_at_ms > now_ms ? s->retry_at_ms - now_ms : 0));
        p->callbacks.refused(client, id, &err);
        return;
    }
    if (p->n_waiters == POOL_WAITERS_MAX) {
        (void)err_set(&err, ERR_NO_CAPACITY, "at most %d requests may wait", POOL_WAITERS_MAX);
        p->callbacks.refused(client, id, &err);
        return;
    }
    struct pool_waiter *w = calloc(1, sizeof *w);
    if (!w) {
        abort();
    }
    *w = (struct pool_waiter){
        .snapshot = s, .client = client, .id = id, .deadline_ms = now_ms + POOL_LEASE_WAIT_MS
    };
    TAILQ_INSERT_TAIL(&p->waiters, w, link);
    s->waiting++;
    p->n_waiters++;
    snapshot_want(s);
}

bool lease_is_young(struct pool_snapshot *s, int64_t now_ms)
{
    int64_t left_ms = s->used_ms + POOL_YOUNG_MS - now_ms;
    struct timeval tv = { .tv_usec = left_ms * 1000 };
    return s->warm > 0 && left_ms > 0 && event_add(s->pool->kick, &tv) == 0;
}

/* By the client it names. */
static bool held(const struct pool_vm *vm)
{
    return vm->state == VM_LEASED || vm->state == VM_FREEZING || vm->state == VM_WRITING ||
           frozen_is(vm);
}

void pool_release(struct pool *p, void *client, uint64_t lease)
{
    struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        if (vm->client == client && vm->lease == lease && held(vm)) {
            pool_vm_event(vm, VM_EV_KILL, NULL);
            return;
        }
    }
}

struct pool_vm *lease_find(struct pool *p, uint64_t lease)
{
    struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        if (lease != 0 && vm->lease == lease) {
            return vm;
        }
    }
    return NULL;
}

void pool_freeze(struct pool *p, void *client, uint32_t id, uint64_t lease)
{
    struct err err;
    struct pool_vm *vm = lease_find(p, lease);
    if (!vm || vm->client != client || vm->state != VM_LEASED) {
        (void)err_set(&err, ERR_NOT_FOUND, "lease %llu: not a running sandbox of this client",
                      (unsigned long long)lease);
    } else if (!p->engine->can_copy(vm->machine) && !p->engine->can_write(vm->machine)) {
        (void)err_set(&err, ERR_UNSUPPORTED,
                      "a running sandbox cannot be forked: brood-qemu-seed.so is not beside "
                      "brood-vmpool");
    } else if (frozen_too_deep(vm)) {
        (void)err_set(&err, ERR_TOO_LARGE, "at most %d frozen states on one another",
                      MACHINE_LAYERS_MAX);
    } else {
        vm->request = id;
        vm->freezing = true;
        pool_vm_event(vm, VM_EV_FREEZE, NULL);
        return;
    }
    p->callbacks.refused(client, id, &err);
}

/* One that can be forked and kept, of whoever knows its lease. */
static struct pool_vm *find_frozen(struct pool *p, uint64_t lease)
{
    struct pool_vm *vm = lease_find(p, lease);
    if (vm && vm->state == VM_FROZEN && !p->engine->can_copy(vm->machine)) {
        pool_vm_event(vm, VM_EV_KILL, NULL);
    }
    return vm && frozen_is(vm) ? vm : NULL;
}

void pool_fork(struct pool *p, void *client, uint32_t id, uint64_t lease)
{
    struct err err;
    struct pool_vm *vm = find_frozen(p, lease);
    uint64_t budget = (uint64_t)p->config.pool_memory_mib_max;
    uint32_t cost = vm ? policy_cost_mib(vm->snapshot->info.memory_mib, true) : 0;
    if (p->stopping) {
        (void)err_set(&err, ERR_UNAVAILABLE, "vmpool is stopping");
    } else if (!vm) {
        (void)err_set(&err, ERR_NOT_FOUND, "lease %llu: not a frozen sandbox",
                      (unsigned long long)lease);
    } else if (!budget_make_room(p, NULL, cost, BUDGET_FORK)) {
        (void)err_set(&err, ERR_NO_CAPACITY, "no room for a fork (%llu of %llu MiB in use)",
                      (unsigned long long)pool_used_mib(p), (unsigned long long)budget);
    } else {
        pool_vm_fork(vm, client, id);
        return;
    }
    p->callbacks.refused(client, id, &err);
}

void pool_keep(struct pool *p, void *client, uint32_t id, uint64_t lease)
{
    struct err err;
    struct pool_vm *vm = find_frozen(p, lease);
    if (p->stopping) {
        (void)err_set(&err, ERR_UNAVAILABLE, "vmpool is stopping");
    } else if (!vm) {
        (void)err_set(&err, ERR_NOT_FOUND, "lease %llu: not a frozen sandbox",
                      (unsigned long long)lease);
    } else {
        pool_vm_keep(vm, client, id);
        return;
    }
    p->callbacks.refused(client, id, &err);
}

void pool_client_gone(struct pool *p, void *client)
{
    keep_client_gone(p, client);
    struct pool_waiter *w = TAILQ_FIRST(&p->waiters);
    while (w) {
        struct pool_waiter *next = TAILQ_NEXT(w, link);
        if (w->client == client) {
            drop_waiter(p, w);
        }
        w = next;
    }
    struct pool_vm *next;
    for (struct pool_vm *vm = TAILQ_FIRST(&p->vms); vm; vm = next) {
        next = TAILQ_NEXT(vm, link); /* one without a process leaves the list at once */
        if (vm->client == client && (held(vm) || !vm->ready)) {
            vm->client = NULL;
            pool_vm_event(vm, VM_EV_KILL, NULL);
        }
    }
}
