/* Frozen sandboxes where a machine cannot be copied as it stands (with KVM: its descriptors belong
 * to one address space). Such a one is stopped and written out: its device state by QEMU, and the
 * pages that its guest has changed, read from outside, as a layer over what it was started on
 * (dump.h); then its process ends. A fork is a machine loaded from the state, whose RAM is the
 * snapshot's memfd with all layers of its line over it, copy-on-write (seed_ram.h).
 *
 * So freezing costs the reading of what was changed, once, and each state of a tree is in memory
 * once. A layer lives as long as its sandbox is frozen, or a fork of it, or of that, is there. */
#include "vmpool/pool_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/stat.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "vmpool/dump.h"
#include "vmpool/ram.h"

struct frozen_layer {
    struct pool *pool;
    struct frozen_layer *below; /* NULL: the snapshot */
    uint32_t users;             /* sandboxes and layers above */
    uint32_t depth;             /* layers from the snapshot on, this one included */
    int fd;                     /* of dump_new */
    uint64_t bytes;             /* counted in the pool's layer_bytes */
};

struct frozen {
    struct pool_vm *vm; /* NULL: it has ended while its RAM was read */
    struct frozen_layer *own;
    int state_fd;
    bool saved;   /* the device state is complete */
    bool reading; /* the thread has what is below */
    struct machine_look look;
    int files[1 + MACHINE_LAYERS_MAX]; /* that RAM is mapped from; the first is ours */
    size_t n_files;
    uint64_t ram_bytes, bytes;
    int64_t begun_us;
    int rc;
    struct err err;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(TAKE_FD(*fd));
    }
}

static void layer_let_go(struct frozen_layer *l)
{
    while (l && --l->users == 0) {
        struct frozen_layer *below = l->below;
        l->pool->layer_bytes -= l->bytes;
        close_fd(&l->fd);
        free(l);
        l = below;
    }
}

static struct frozen_layer *layer_use(struct frozen_layer *l)
{
    if (l) {
        l->users++;
    }
    return l;
}

/* The oldest first. */
static size_t layer_fds(const struct frozen_layer *top, int *fds)
{
    size_t n = top ? top->depth : 0;
    for (const struct frozen_layer *l = top; l; l = l->below) {
        fds[l->depth - 1] = l->fd;
    }
    return n;
}

bool frozen_is(const struct pool_vm *vm)
{
    return vm->state == VM_FROZEN || vm->state == VM_WRITTEN || vm->state == VM_STORED;
}

bool frozen_too_deep(const struct pool_vm *vm)
{
    return vm->over && vm->over->depth == MACHINE_LAYERS_MAX;
}

static void done_reading(struct frozen *f)
{
    f->reading = false;
    close_fd(&f->look.maps);
    close_fd(&f->look.pagemap);
    close_fd(&f->look.mem);
    close_fd(&f->files[0]);
}

static void frozen_free(struct frozen *f)
{
    done_reading(f);
    layer_let_go(f->own);
    close_fd(&f->state_fd);
    free(f);
}

/* ---- writing ---- */

static void read_work(void *user)
{
    struct frozen *f = user;
    f->rc = dump_read(&f->look, f->files, f->n_files, f->ram_bytes, f->own->fd, &f->bytes, &f->err);
}

static void check_written(struct frozen *f)
{
    if (f->saved && !f->reading) {
        pool_vm_event(f->vm, VM_EV_SAVED, NULL);
    }
}

static void read_done(void *user)
{
    struct frozen *f = user;
    if (!f->vm) {
        frozen_free(f);
        return;
    }
    done_reading(f);
    if (f->rc < 0) {
        struct err err = f->err;
        pool_vm_event(f->vm, VM_EV_FAILED, err.text);
        return;
    }
    check_written(f);
}

static struct frozen_layer *new_layer(struct pool_vm *vm)
{
    struct frozen_layer *l = calloc(1, sizeof *l);
    if (!l) {
        abort();
    }
    *l = (struct frozen_layer){ .pool = vm->pool,
                                .below = layer_use(vm->over),
                                .users = 1,
                                .depth = (vm->over ? vm->over->depth : 0) + 1,
                                .fd = -1 };
    return l;
}

int frozen_write(struct pool_vm *vm, struct err *err)
{
    struct pool *p = vm->pool;
    const struct engine *e = p->engine;
    assert(!vm->frozen && !frozen_too_deep(vm));
    struct frozen *f = calloc(1, sizeof *f);
    if (!f) {
        abort();
    }
    *f = (struct frozen){ .vm = vm,
                          .own = new_layer(vm),
                          .state_fd = -1,
                          .look = { -1, -1, -1 },
                          .ram_bytes = (uint64_t)vm->snapshot->info.memory_mib << 20,
                          .begun_us = mono_us() };
    vm->frozen = f; /* from now on it is let go with the sandbox */
    f->files[0] = fcntl(vm->snapshot->ram_fd, F_DUPFD_CLOEXEC, 3);
    f->n_files = 1 + layer_fds(vm->over, &f->files[1]);
    int rc = f->files[0] < 0 ? err_sys(err, "dup") : 0;
    rc = rc < 0 ? rc : dump_new(f->ram_bytes, &f->own->fd, err);
    rc = rc < 0 ? rc : ram_memfd("brood-state", 0, &f->state_fd, err);
    rc = rc < 0 ? rc : e->look(vm->machine, &f->look, err);
    rc = rc < 0 ? rc : e->save(vm->machine, f->state_fd, -1, err);
    rc = rc < 0 ? rc : background_run(p->background, read_work, read_done, f, err);
    f->reading = rc == 0;
    return rc;
}

void frozen_saved(struct pool_vm *vm)
{
    vm->frozen->saved = true;
    check_written(vm->frozen);
}

int frozen_written(struct pool_vm *vm, struct err *err)
{
    struct frozen *f = vm->frozen;
    struct pool *p = vm->pool;
    struct stat st;
    int rc = dump_seal(f->own->fd, err);
    rc = rc < 0 ? rc : ram_seal_whole(f->state_fd, err);
    if (rc < 0) {
        return rc;
    }
    if (fstat(f->state_fd, &st) < 0 || st.st_size > (off_t)LAYER_STATE_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "device state: at most %u bytes", LAYER_STATE_BYTES_MAX);
    }
    f->own->bytes = f->bytes;
    p->layer_bytes += f->bytes;
    char kib[24], us[24];
    (void)snprintf(kib, sizeof kib, "%llu", (unsigned long long)f->bytes >> 10);
    (void)snprintf(us, sizeof us, "%lld", (long long)(mono_us() - f->begun_us));
    log_debug("sandbox written out", "template", vm->snapshot->name, "kib", kib, "us", us);
    vm->freezing = false;
    p->callbacks.frozen(vm->client, vm->request, vm->lease);
    p->engine->destroy(vm->machine);
    return 0;
}

void frozen_let_go(struct pool_vm *vm)
{
    struct frozen *f = vm->frozen;
    vm->frozen = NULL;
    layer_let_go(vm->over);
    vm->over = NULL;
    if (f && f->reading) {
        f->vm = NULL; /* read_done frees it */
    } else if (f) {
        frozen_free(f);
    }
}

/* ---- what goes on from there ---- */

void frozen_fork(const struct pool_vm *frozen, struct pool_vm *fork)
{
    assert(frozen->frozen && frozen_is(frozen) && !fork->over);
    fork->over = layer_use(frozen->frozen->own);
    fork->from = frozen->frozen;
}

void frozen_copied(struct pool_vm *copy, uint32_t failures)
{
    struct pool *p = copy->pool;
    struct pool_vm *frozen = lease_find(p, copy->origin_lease);
    copy->origin_lease = 0; /* what it does from now on is its own affair */
    if (!frozen || frozen->state != VM_FROZEN || !copy->machine) {
        return;
    }
    frozen->copy_failures = failures > 0 ? frozen->copy_failures + failures : 0;
    if (frozen->copy_failures >= POOL_COPY_FAILURES_MAX) {
        log_warn("a frozen sandbox cannot be copied", "template", frozen->snapshot->name);
        pool_vm_event(frozen, VM_EV_KILL, NULL);
    }
}

int frozen_state_fd(const struct frozen *f)
{
    return f->state_fd;
}

size_t frozen_layers(const struct pool_vm *vm, int fds[MACHINE_LAYERS_MAX])
{
    return layer_fds(vm->over, fds);
}

size_t frozen_own_layers(const struct pool_vm *frozen, int fds[MACHINE_LAYERS_MAX])
{
    return layer_fds(frozen->frozen->own, fds);
}
