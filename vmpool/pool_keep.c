/* Keeping the state of a frozen sandbox. A copy of it is made (so that the frozen one can be forked
 * as before), writes out its device state and the RAM that its snapshot has not, and ends; then a
 * helper thread makes a layer of that (layer.h, kept.h). Of one that is written out already
 * (pool_frozen.c) there is nothing to be copied: its state and its line's dumps are what is kept.
 * The layer is the difference to what the
 * sandbox was started from: a kept state, or the template's snapshot, which is kept itself when
 * its first child is. */
#include "vmpool/pool_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "vmpool/dump.h"
#include "vmpool/ram.h"

/* A chain is read from its first layer on: one that would be longer than this is written whole, and
 * so is one whose layers are larger than the whole (docs/performance.md has the curve). */
#define FLAT_DEPTH 8
#define FLAT_PART 2 /* of the RAM's size */

struct keep {
    TAILQ_ENTRY(keep) link; /* while the thread has it */
    struct pool_snapshot *snapshot;
    void *client; /* NULL: gone */
    uint32_t id;
    char home[CONFIG_STR_MAX], parent[KEPT_ID_TEXT];
    struct manifest machine;
    struct kept_manifest chain;              /* of the parent, when it is a kept state */
    int base_fd, base_state_fd;              /* what the sandbox was started from */
    int state_fd, dumps[MACHINE_LAYERS_MAX]; /* what the copy wrote, or was written before */
    size_t n_dumps;
    bool sealed; /* nobody can write to them */
    bool flat;   /* written whole */
    int rc;
    struct err err;
    char kept_id[KEPT_ID_TEXT];
    int64_t begun_us;
};

/* QEMU may be in hostile hands: it cannot make the file shorter while we read it, nor seal it. */
static int dump_file(uint64_t ram_bytes, int *ret_fd, struct err *err)
{
    cleanup_close int fd = -1;
    int rc = dump_new(ram_bytes, &fd, err);
    if (rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) < 0) {
        rc = err_sys(err, "seal a memfd");
    }
    if (rc == 0) {
        *ret_fd = TAKE_FD(fd);
    }
    return rc;
}

static int dup_fd(int from, int *ret_fd, struct err *err)
{
    *ret_fd = fcntl(from, F_DUPFD_CLOEXEC, 3);
    return *ret_fd < 0 ? err_sys(err, "dup") : 0;
}

static int make(struct pool_snapshot *s, void *client, uint32_t id, struct keep **ret,
                struct err *err)
{
    struct keep *k = calloc(1, sizeof *k);
    if (!k) {
        abort();
    }
    *k = (struct keep){ .snapshot = s,
                        .client = client,
                        .id = id,
                        .machine = s->manifest,
                        .chain = s->chain,
                        .base_fd = -1,
                        .base_state_fd = -1,
                        .state_fd = -1,
                        .begun_us = mono_us() };
    (void)snprintf(k->home, sizeof k->home, "%s", s->pool->config.home);
    (void)snprintf(k->parent, sizeof k->parent, "%s", s->kept ? s->digest : s->base);
    s->keeping++;
    int rc = dup_fd(s->ram_fd, &k->base_fd, err);
    rc = rc < 0 ? rc : dup_fd(s->state_fd, &k->base_state_fd, err);
    if (rc < 0) {
        keep_free(k);
        return rc;
    }
    *ret = k;
    return 0;
}

int keep_new(struct pool_vm *vm, struct err *err)
{
    struct keep *k;
    int rc = make(vm->snapshot, vm->client, vm->request, &k, err);
    if (rc < 0) {
        return rc;
    }
    rc = dump_file((uint64_t)vm->snapshot->info.memory_mib << 20, &k->dumps[0], err);
    k->n_dumps = rc == 0;
    rc = rc < 0 ? rc : ram_memfd("brood-state", 0, &k->state_fd, err);
    if (rc < 0) {
        keep_free(k);
        return rc;
    }
    vm->keep = k;
    return 0;
}

void keep_written(const struct pool_vm *frozen, void *client, uint32_t id)
{
    struct err err;
    struct keep *k;
    struct pool *p = frozen->pool;
    int fds[MACHINE_LAYERS_MAX];
    int rc = make(frozen->snapshot, client, id, &k, &err);
    if (rc < 0) {
        p->callbacks.refused(client, id, &err);
        return;
    }
    static_assert(MACHINE_LAYERS_MAX == LAYER_DUMPS_MAX, "all of a line's");
    size_t n = frozen_own_layers(frozen, fds);
    k->sealed = true;
    rc = dup_fd(frozen_state_fd(frozen->frozen), &k->state_fd, &err);
    for (; rc == 0 && k->n_dumps < n; k->n_dumps += rc == 0) {
        rc = dup_fd(fds[k->n_dumps], &k->dumps[k->n_dumps], &err);
    }
    if (rc < 0) {
        keep_free(k);
        p->callbacks.refused(client, id, &err);
        return;
    }
    keep_store(p, k);
}

void keep_free(struct keep *k)
{
    if (!k) {
        return;
    }
    int fds[] = { k->base_fd, k->base_state_fd, k->state_fd };
    for (size_t i = 0; i < k->n_dumps; i++) {
        (void)close(k->dumps[i]);
    }
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    assert(k->snapshot->keeping > 0);
    k->snapshot->keeping--;
    free(k);
}

int keep_save(struct pool_vm *vm, struct err *err)
{
    return vm->pool->engine->save(vm->machine, vm->keep->state_fd, vm->keep->dumps[0], err);
}

/* ---- on the thread ---- */

/* The snapshot of a template as the first link of chains: found by what it was made from. */
static int keep_base(struct keep *k, struct err *err)
{
    struct kept_manifest m = { .machine = k->machine };
    struct layer_source from = { .ram_bytes = (uint64_t)k->machine.memory_mib << 20,
                                 .base_fd = k->base_fd,
                                 .state_fd = k->base_state_fd,
                                 .flat = true };
    if (k->parent[0] && kept_whole(k->home, k->parent)) {
        return 0;
    }
    return kept_write(k->home, &from, &m, k->parent, err);
}

static void plain(struct manifest *m)
{
    m->boot_ms = 0;
    m->state_bytes = m->ram_bytes_used = 0;
    memset(m->state_sha256, 0, sizeof m->state_sha256);
    memset(m->ram_sha256, 0, sizeof m->ram_sha256);
}

static void store_work(void *user)
{
    struct keep *k = user;
    struct layer_source from = { .ram_bytes = (uint64_t)k->machine.memory_mib << 20,
                                 .base_fd = k->base_fd,
                                 .n_dumps = k->n_dumps,
                                 .state_fd = k->state_fd };
    memcpy(from.dumps, k->dumps, sizeof from.dumps);
    bool of_kept = k->chain.depth > 0;
    plain(&k->machine);
    k->rc = k->sealed ? 0 : ram_seal_whole(k->state_fd, &k->err);
    if (k->rc == 0 && !of_kept) {
        k->rc = keep_base(k, &k->err);
    }
    if (k->rc < 0) {
        return;
    }
    struct kept_manifest m = { .machine = k->machine };
    from.flat = of_kept &&
                (k->chain.depth >= FLAT_DEPTH || k->chain.chain_bytes > from.ram_bytes / FLAT_PART);
    k->flat = from.flat;
    if (!from.flat) {
        memcpy(m.parent, k->parent, sizeof m.parent);
    }
    k->rc = kept_write(k->home, &from, &m, k->kept_id, &k->err);
}

/* ---- in the loop ---- */

static void store_done(void *user)
{
    struct keep *k = user;
    struct pool_snapshot *s = k->snapshot;
    struct pool *p = s->pool;
    TAILQ_REMOVE(&p->keeps, k, link);
    char us[24];
    (void)snprintf(us, sizeof us, "%lld", (long long)(mono_us() - k->begun_us));
    if (k->rc == 0 && !s->kept) {
        memcpy(s->base, k->parent, sizeof s->base);
    }
    if (k->rc < 0) {
        log_error("state not kept", "template", s->name, "why", k->err.text);
    } else {
        log_info("state kept", "template", s->name, "id", k->kept_id, "us", us);
    }
    if (k->client && k->rc < 0) {
        p->callbacks.refused(k->client, k->id, &k->err);
    } else if (k->client) {
        p->callbacks.kept(k->client, k->id, k->kept_id, k->flat ? "" : k->parent);
    }
    keep_free(k);
}

void keep_store(struct pool *p, struct keep *k)
{
    struct err err;
    TAILQ_INSERT_TAIL(&p->keeps, k, link);
    if (background_run(p->background, store_work, store_done, k, &err) < 0) {
        k->rc = -(int)err.code;
        k->err = err;
        store_done(k);
    }
}

void keep_client_gone(struct pool *p, const void *client)
{
    struct keep *k;
    TAILQ_FOREACH(k, &p->keeps, link)
    {
        k->client = k->client == client ? NULL : k->client;
    }
}

void keep_forget_idle(struct pool *p, int64_t now_ms)
{
    for (int i = p->n_snapshots - 1; i >= 0; i--) {
        struct pool_snapshot *s = p->snapshots[i];
        if (s->kept && now_ms >= s->used_ms + POOL_KEPT_IDLE_MS && !snapshot_used(s)) {
            log_info("kept state leaves memory", "id", s->digest);
            snapshot_drop(p, i);
        }
    }
}
