/* What the sandboxes take of the memory budget. One that runs may touch all of its RAM and is
 * counted whole; a warm one with what was measured; a frozen one with what it holds, which cannot
 * grow: so a deep tree of states costs what its set-ups wrote, not a machine a level. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/policy.h"
#include "vmpool/pool_internal.h"

bool pool_vm_is_boot(const struct pool_vm *vm)
{
    return vm->kind == POOL_VM_BOOT;
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
        used += p->snapshots[i]->manifest.ram_bytes_used >> 20;
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

bool budget_evict(struct pool *p, const struct pool_snapshot *needy, bool hard, int64_t now_ms)
{
    struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        struct pool_snapshot *s = vm->snapshot;
        uint32_t keep = pool_target(s, now_ms) + s->waiting + (s->current ? 1 : 0);
        if (vm->state == VM_WARM && ((hard && s != needy && s->waiting == 0) || s->warm > keep)) {
            pool_vm_event(vm, VM_EV_KILL, NULL);
            return true;
        }
    }
    return false;
}

void budget_make_room(struct pool *p)
{
    struct pool_vm *vm;
    TAILQ_FOREACH(vm, &p->vms, link)
    {
        if (vm->state == VM_WARM && vm->snapshot->waiting == 0) {
            pool_vm_event(vm, VM_EV_KILL, NULL);
            return;
        }
    }
}
