/* What the sandboxes take of the memory budget, and who gets what is left of it. One that runs may
 * touch all of its RAM and is counted whole; a warm one with what was measured; a frozen one with
 * what it holds, which cannot grow: so a deep tree of states costs what its set-ups wrote, not a
 * machine a level.
 *
 * The budget is one queue. What the first in line still needs (the first waiter whose snapshot is
 * there, or could be read if there were room, and who fits into the whole budget at all) is kept
 * for it: who came later, and machines to be held warm, take what is left beside that. Forks do not
 * wait for it: a tree that has begun gives memory back only by going on, and nobody begins one
 * before the first has had its turn. It waits POOL_LEASE_WAIT_MS at most, and so does everybody for
 * it. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "vmpool/policy.h"
#include "vmpool/pool_internal.h"

bool pool_vm_is_boot(const struct pool_vm *vm)
{
    return vm->kind == POOL_VM_BOOT;
}

static uint64_t budget_mib(const struct pool *p)
{
    return (uint64_t)p->config.pool_memory_mib_max;
}

static uint32_t vm_cost_mib(const struct pool_vm *vm)
{
    if (vm->state == VM_FROZEN) {
        return policy_frozen_mib(vm->snapshot->info.memory_mib, vm->frozen_mib);
    }
    if (vm->state == VM_WRITTEN || vm->state == VM_STORED) {
        return 0; /* its layer is counted below, also when forks outlive it */
    }
    bool whole = pool_vm_is_boot(vm) || vm->kind == POOL_VM_FORK || vm->state == VM_LEASED ||
                 vm->state == VM_FREEZING || vm->state == VM_WRITING;
    return policy_cost_mib(vm->snapshot->info.memory_mib, whole) +
           (vm->kind == POOL_VM_SEED ? POLICY_SEED_MIB : 0);
}

uint64_t pool_used_mib(const struct pool *p)
{
    uint64_t used = 0;
    const struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        used += vm_cost_mib(vm);
    }
    for (int i = 0; i < p->n_snapshots; i++) {
        const struct pool_snapshot *s = p->snapshots[i];
        used += s->manifest.ram_bytes_used >> 20;
        used += s->state == SNAPSHOT_READING ? s->load_mib : 0; /* it is filling it */
    }
    return used + ((p->layer_bytes + (1 << 20) - 1) >> 20);
}

void budget_frozen(struct pool_vm *vm)
{
    /* Resident but not of a file (proc(5), statm): its own pages, and those that it still shares
     * with what it was copied from, which are counted there too. */
    char path[48], text[128] = "";
    uint64_t resident = 0, of_files = 0;
    vm->frozen_mib = UINT32_MAX; /* as large as may be, when it cannot be told */
    (void)snprintf(path, sizeof path, "/proc/%d/statm", vm->pool->engine->process_id(vm->machine));
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 &&
        sscanf(text, "%*u %" SCNu64 " %" SCNu64, &resident, &of_files) == 2 &&
        of_files <= resident) {
        uint64_t bytes = (resident - of_files) * (uint64_t)sysconf(_SC_PAGESIZE);
        vm->frozen_mib = (uint32_t)((bytes + (1 << 20) - 1) >> 20);
    }
}

uint32_t pool_target(const struct pool_snapshot *s, int64_t now_ms)
{
    struct policy_limits limits = { .warm_min = (uint32_t)s->pool->config.pool_warm_min,
                                    .warm_max = (uint32_t)s->pool->config.pool_warm_max };
    return s->current && s->state == SNAPSHOT_READY ? policy_target(&s->rate, &limits, now_ms) : 0;
}

/* ---- the queue ---- */

struct pool_waiter *budget_first(const struct pool *p)
{
    struct pool_waiter *w;
    TAILQ_FOREACH(w, &p->waiters, link)
    {
        const struct pool_snapshot *s = w->snapshot;
        uint32_t whole = policy_cost_mib(s->info.memory_mib, true) + s->load_mib;
        if ((s->state == SNAPSHOT_READY || s->load_mib > 0) && whole <= budget_mib(p)) {
            return w;
        }
    }
    return NULL;
}

static uint32_t started(const struct pool_snapshot *s)
{
    return s->warm + s->starting - (s->seeding ? 1 : 0);
}

uint32_t budget_lease_mib(const struct pool_snapshot *s)
{
    uint32_t whole = policy_cost_mib(s->info.memory_mib, true);
    return started(s) > 0 ? whole - policy_cost_mib(s->info.memory_mib, false)
                          : whole + (s->state == SNAPSHOT_READING ? 0 : s->load_mib);
}

bool budget_fits(const struct pool *p, uint32_t need_mib, enum budget_place place)
{
    const struct pool_waiter *first = place == BUDGET_LATER ? budget_first(p) : NULL;
    uint64_t kept_mib = first ? budget_lease_mib(first->snapshot) : 0;
    return policy_fits(pool_used_mib(p) + kept_mib, need_mib, budget_mib(p));
}

/* What comes back without anybody doing anything more. */
static uint64_t dying_mib(const struct pool *p)
{
    uint64_t mib = 0;
    const struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        mib += vm->state == VM_DYING ? vm_cost_mib(vm) : 0;
    }
    return mib;
}

/* The kept state that was not used for longest, when nobody uses it now. */
static bool drop_idle_kept(struct pool *p, const struct pool_snapshot *needy)
{
    int oldest = -1;
    for (int i = 0; i < p->n_snapshots; i++) {
        const struct pool_snapshot *s = p->snapshots[i];
        if (s->kept && s != needy && s->state == SNAPSHOT_READY && !snapshot_used(s) &&
            (oldest < 0 || s->used_ms < p->snapshots[oldest]->used_ms)) {
            oldest = i;
        }
    }
    if (oldest >= 0) {
        log_info("kept state leaves memory", "id", p->snapshots[oldest]->digest, "why",
                 "others need it");
        snapshot_drop(p, oldest);
    }
    return oldest >= 0;
}

static bool in_the_way(const struct pool_snapshot *s, const struct pool_snapshot *needy, bool hard)
{
    return s == needy ? s->warm > 1 : hard || s->waiting == 0;
}

static bool evict_warm(struct pool *p, const struct pool_snapshot *needy, bool hard)
{
    struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        if (vm->state == VM_WARM && in_the_way(vm->snapshot, needy, hard)) {
            pool_vm_event(vm, VM_EV_KILL, NULL);
            return true;
        }
    }
    return false;
}

bool budget_make_room(struct pool *p, const struct pool_snapshot *needy, uint32_t need_mib,
                      enum budget_place place)
{
    while (!budget_fits(p, need_mib, place)) {
        if (policy_fits(pool_used_mib(p) - dying_mib(p), need_mib, budget_mib(p))) {
            return false; /* when they are reaped */
        }
        if (!drop_idle_kept(p, needy)) {
            if (!evict_warm(p, needy, false) && place == BUDGET_FIRST) {
                (void)evict_warm(p, needy, true);
            }
            return false;
        }
    }
    return true;
}

void budget_shrink(struct pool *p, int64_t now_ms)
{
    struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        struct pool_snapshot *s = vm->snapshot;
        uint32_t keep = pool_target(s, now_ms) + s->waiting + (s->current ? 1 : 0);
        if (vm->state == VM_WARM && s->warm > keep) {
            pool_vm_event(vm, VM_EV_KILL, NULL);
            return;
        }
    }
}
