/* Making a machine hot before it is needed: the exercise, the quiet after it, and what a seed
 * learns from its first copy. */
#include <assert.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "vmpool/pool_internal.h"

#define QUIET_BOOT_MS_MAX 3000 /* what a template's machine still does, every clone would do */
#define QUIET_CLONE_MS_MAX 300

static void on_quiet(void *user)
{
    struct pool_vm *vm = user;
    quiet_free(TAKE_PTR(vm->quiet));
    if (vm->kind == POOL_VM_BOOT) {
        pool_vm_event(vm, VM_EV_HELLO, NULL);
        return;
    }
    vm->exercised = vm->practised = true;
    pool_vm_event(vm, VM_EV_EXERCISED, NULL);
}

void pool_on_exercised(void *user, const char *why)
{
    struct pool_vm *vm = user;
    exercise_free(TAKE_PTR(vm->exercise));
    if (why == exercise_closed) {
        return; /* QEMU is ending; its exit follows at once and brings the reason, the timer stands
                   behind */
    }
    if (why) {
        pool_vm_event(vm, VM_EV_FAILED, why);
        return;
    }
    assert(!vm->quiet);
    bool clone = vm->kind == POOL_VM_CLONE;
    vm->quiet = quiet_wait(vm->pool->base, vm->pool->engine->schedstat_fd(vm->machine),
                           clone ? QUIET_CLONE_MS_MAX : QUIET_BOOT_MS_MAX, on_quiet, vm);
}

/* A seed is exercised until it is hot; a clone once, off the job's path, so that the pages a run
 * writes are its own. */
int pool_exercise(struct pool_vm *vm, struct err *err)
{
    const struct template_info *info = &vm->snapshot->info;
    bool seed = vm->kind == POOL_VM_SEED, light = vm->copied && info->light_len > 0;
    /* an example goes through what a leased one will, and somewhat further */
    vm->example = vm->copied && vm->snapshot->seed && !vm->snapshot->seed_learnt;
    int rounds = seed ? POOL_SEED_ROUNDS : vm->example ? POOL_EXAMPLE_ROUNDS : 1;
    return exercise_run(vm->pool->base, vm->pool->engine->channel_fd(vm->machine),
                        light ? info->light : info->exercise,
                        light ? info->light_len : info->exercise_len, info->memory_mib, rounds,
                        rounds > 1 ? POOL_SEED_EXERCISE_MS : 0, pool_on_exercised, vm,
                        &vm->exercise, err);
}

int64_t pool_exercise_ms_max(const struct pool_vm *vm)
{
    const char *text = getenv("BROOD_TEST_EXERCISE_MS");
    if (text) {
        return strtoll(text, NULL, 10);
    }
    return vm->kind == POOL_VM_SEED ? POOL_SEED_EXERCISE_MS_MAX : POOL_EXERCISE_MS_MAX;
}

void pool_exercise_late(struct pool_vm *vm)
{
    struct pool_snapshot *s = vm->snapshot;
    vm->counted_failed = true;
    s->plain_until_ms = mono_ms() + POOL_PLAIN_MS;
    if (vm->kind == POOL_VM_SEED) {
        s->seed_retry_at_ms = s->plain_until_ms;
    }
    log_warn("exercise given up: this host is too busy now", "template", s->name, "kind",
             vm->kind == POOL_VM_SEED ? "seed" : "clone");
}

void pool_learn(struct pool_vm *vm)
{
    struct pool_snapshot *s = vm->snapshot;
    struct err err;
    if (vm->example && vm->practised && s->seed && !s->seed_learnt) {
        s->seed_learnt = true;
        if (vm->pool->engine->learn(s->seed->machine, vm->machine, &err) < 0) {
            log_warn("copies are not prepared", "template", s->name, "why", err.text);
        }
    }
}
