/* Where snapshots come from: read from disk when what is there fits this host, else booted from the
 * template, saved, sealed, used at once, and stored behind. */
#include "vmpool/pool_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "vmpool/ram.h"

/* A job on a helper thread: everything it reads and writes is in here. */
struct snapshot_job {
    struct pool_snapshot *snapshot;
    char home[CONFIG_STR_MAX], name[TEMPLATE_NAME_MAX], digest[TEMPLATE_DIGEST_MAX];
    char dir[TEMPLATE_PATH_MAX];
    struct engine_host host;
    struct template_info info;
    struct manifest manifest;
    int ram_fd, state_fd; /* read: results. seal, store: borrowed, the snapshot keeps them while a
                             job runs */
    int rc;               /* of the job */
    bool template_failed; /* read: the template itself is missing or wrong */
    bool kept;
    struct kept_manifest chain;
    uint64_t room; /* read of a kept one: bytes that it may take of memory */
    uint64_t used; /* bytes of its RAM, or how many those would be */
    struct err err;
};

const char *snapshot_word(const struct pool_snapshot *s)
{
    return s->state == SNAPSHOT_READY     ? "ready"
           : s->state == SNAPSHOT_REFUSED ? "refused"
                                          : "building";
}

static void close_fds(struct pool_snapshot *s)
{
    if (s->ram_fd >= 0) {
        (void)close(TAKE_FD(s->ram_fd));
    }
    if (s->state_fd >= 0) {
        (void)close(TAKE_FD(s->state_fd));
    }
    s->manifest.ram_bytes_used = 0;
}

void snapshot_free(struct pool_snapshot *s)
{
    close_fds(s);
    free(s);
}

bool snapshot_used(const struct pool_snapshot *s)
{
    const struct pool_vm *vm;
    TAILQ_FOREACH(vm, &s->pool->vms, link)
    {
        if (vm->snapshot == s) {
            return true;
        }
    }
    bool still = s->state == SNAPSHOT_READY || s->state == SNAPSHOT_REFUSED ||
                 (s->kept && s->state == SNAPSHOT_NEW);
    return !still || s->waiting > 0 || s->keeping > 0 || (s->state == SNAPSHOT_READY && !s->stored);
}

void snapshot_drop(struct pool *p, int i)
{
    assert(i < p->n_snapshots && !snapshot_used(p->snapshots[i]));
    snapshot_free(p->snapshots[i]);
    p->snapshots[i] = p->snapshots[--p->n_snapshots];
}

/* A snapshot that nothing uses and that is not the current one of its template may give its place.
 */
static bool drop_unused(struct pool *p)
{
    for (int i = 0; i < p->n_snapshots; i++) {
        struct pool_snapshot *s = p->snapshots[i];
        if (!snapshot_used(s) && (!s->current || s->state == SNAPSHOT_REFUSED)) {
            snapshot_drop(p, i);
            return true;
        }
    }
    return false;
}

int snapshot_find(struct pool *p, const char *name, const char *digest, bool current,
                  struct pool_snapshot **ret, struct err *err)
{
    struct pool_snapshot *found = NULL;
    for (int i = 0; i < p->n_snapshots; i++) {
        struct pool_snapshot *s = p->snapshots[i];
        if (strcmp(s->name, name) == 0 && strcmp(s->digest, digest) == 0) {
            found = s;
        } else if (current && strcmp(s->name, name) == 0) {
            s->current = false; /* the template was rebuilt */
        }
    }
    if (!found) {
        if (p->n_snapshots == POOL_SNAPSHOTS_MAX && !drop_unused(p)) {
            return err_set(err, ERR_NO_CAPACITY, "at most %d snapshots in use at once",
                           POOL_SNAPSHOTS_MAX);
        }
        found = calloc(1, sizeof *found);
        if (!found) {
            abort();
        }
        found->pool = p;
        (void)snprintf(found->name, sizeof found->name, "%s", name);
        (void)snprintf(found->digest, sizeof found->digest, "%s", digest);
        found->kept = strcmp(name, KEPT_NAME) == 0 && kept_id_ok(digest);
        found->ram_fd = found->state_fd = -1;
        p->snapshots[p->n_snapshots++] = found;
    }
    found->current = found->current || current;
    *ret = found;
    return 0;
}

static struct snapshot_job *new_job(struct pool_snapshot *s)
{
    struct snapshot_job *j = calloc(1, sizeof *j);
    if (!j) {
        abort();
    }
    const struct pool *p = s->pool;
    j->snapshot = s;
    (void)snprintf(j->home, sizeof j->home, "%s", p->config.home);
    (void)snprintf(j->name, sizeof j->name, "%s", s->name);
    (void)snprintf(j->digest, sizeof j->digest, "%s", s->digest);
    (void)snprintf(j->dir, sizeof j->dir, "%s/snapshots/%s/%s", p->config.home, s->name, s->digest);
    j->host = p->host;
    j->kept = s->kept;
    j->info = s->info;
    j->manifest = s->manifest;
    j->ram_fd = s->ram_fd;
    j->state_fd = s->state_fd;
    return j;
}

static void tell_built(struct pool_snapshot *s, const char *why)
{
    if (s->build_asked) {
        s->build_asked = false;
        s->pool->callbacks.built(s->pool->callbacks.built_user, why);
    }
}

void snapshot_refuse(struct pool_snapshot *s, enum err_code code, const char *why)
{
    struct err err;
    s->state = SNAPSHOT_REFUSED;
    s->refusals++;
    s->refused_code = code;
    s->retry_at_ms = mono_ms() + policy_backoff_ms(s->refusals);
    (void)snprintf(s->reason, sizeof s->reason, "%s", why);
    (void)err_set(&err, code, "template %s: %s", s->name, why);
    log_warn("snapshot refused", "template", s->name, "digest", s->digest, "why", s->reason);
    lease_fail_waiters(s, &err);
    tell_built(s, s->reason);
}

static void begin_read(struct pool_snapshot *s);

void snapshot_retry_due(struct pool *p, int64_t now_ms)
{
    for (int i = 0; i < p->n_snapshots; i++) {
        struct pool_snapshot *s = p->snapshots[i];
        if (s->state == SNAPSHOT_REFUSED && now_ms >= s->retry_at_ms) {
            /* with its memory at hand the clones are tried again; else it waits to be asked for */
            bool sealed = s->ram_fd >= 0 && s->manifest.ram_bytes_used > 0;
            s->state = sealed ? SNAPSHOT_READY : SNAPSHOT_NEW;
        }
        if (s->state == SNAPSHOT_NEW && s->load_mib > 0 && s->waiting > 0) {
            const struct pool_waiter *first = budget_first(p);
            enum budget_place place = first && first->snapshot == s ? BUDGET_FIRST : BUDGET_LATER;
            if (budget_make_room(p, s, s->load_mib, place)) {
                begin_read(s);
            }
        }
    }
}

static void become_ready(struct pool_snapshot *s)
{
    s->state = SNAPSHOT_READY;
    s->reason[0] = 0;
    pool_kick(s->pool);
}

static void build(struct pool_snapshot *s)
{
    struct err err;
    uint64_t bytes = (uint64_t)s->info.memory_mib << 20;
    close_fds(s);
    if (ram_memfd("brood-ram", bytes, &s->ram_fd, &err) < 0 ||
        ram_memfd("brood-state", 0, &s->state_fd, &err) < 0) {
        snapshot_refuse(s, ERR_UNAVAILABLE, err.text);
        return;
    }
    s->state = SNAPSHOT_BUILDING;
    s->stored = false;
    manifest_wanted(&s->manifest, &s->pool->host, &s->info);
    pool_vm_start(s, POOL_VM_BOOT);
}

static void read_kept(struct snapshot_job *j)
{
    struct manifest want;
    const struct manifest *m = &j->chain.machine;
    j->template_failed = true; /* there is nothing that it could be built from */
    if ((j->rc = kept_find(j->home, j->digest, &j->chain, &j->err)) < 0 ||
        (j->rc = template_load(j->home, m->template_name, m->template_digest, &j->info, &j->err)) <
            0) {
        return;
    }
    manifest_wanted(&want, &j->host, &j->info);
    if ((j->rc = manifest_compare(m, &want, &j->err)) < 0 ||
        (j->rc = kept_load(j->home, j->digest, &j->chain, j->room, &j->ram_fd, &j->state_fd,
                           &j->used, &j->err)) < 0) {
        return;
    }
    j->manifest = *m;
    j->manifest.ram_bytes_used = j->used;
}

static void read_work(void *user)
{
    struct snapshot_job *j = user;
    struct manifest want;
    if (j->kept) {
        read_kept(j);
        return;
    }
    j->rc = template_load(j->home, j->name, j->digest, &j->info, &j->err);
    if (j->rc < 0) {
        j->template_failed = true;
        return;
    }
    manifest_wanted(&want, &j->host, &j->info);
    if ((j->rc = ram_read_manifest(j->dir, &j->manifest, &j->err)) < 0 ||
        (j->rc = manifest_compare(&j->manifest, &want, &j->err)) < 0) {
        return;
    }
    j->rc = ram_load(j->dir, &j->manifest, &j->ram_fd, &j->state_fd, &j->err);
}

static void read_done(void *user)
{
    cleanup_free struct snapshot_job *j = user;
    struct pool_snapshot *s = j->snapshot;
    if (s->pool->stopping) {
        if (j->rc == 0) {
            (void)close(j->ram_fd);
            (void)close(j->state_fd);
        }
        return;
    }
    s->info = j->info;
    if (j->rc == 0) {
        close_fds(s);
        s->ram_fd = j->ram_fd;
        s->state_fd = j->state_fd;
        s->manifest = j->manifest;
        s->chain = j->chain;
        s->stored = true;
        s->used_ms = mono_ms();
        s->load_mib = 0;
        become_ready(s);
        log_info("snapshot loaded", "template", s->name, "digest", s->digest);
        tell_built(s, NULL);
        return;
    }
    if (s->kept && j->rc == -ERR_NO_CAPACITY) {
        s->state = SNAPSHOT_NEW; /* until there is room: snapshot_retry_due */
        s->load_mib = (uint32_t)((j->used + (1 << 20) - 1) >> 20);
        pool_kick(s->pool);
        return;
    }
    if (s->kept && j->rc == -ERR_NOT_FOUND) { /* whoever asked may fetch it and ask again */
        s->state = SNAPSHOT_NEW;
        lease_fail_waiters(s, &j->err);
        return;
    }
    if (j->template_failed) {
        snapshot_refuse(s, (enum err_code) - j->rc, j->err.text);
        return;
    }
    log_info("snapshot is built anew", "template", s->name, "digest", s->digest, "why",
             j->err.text);
    build(s);
}

/* Of a kept state the first read finds only out what it takes (no room is given to it); the second
 * one, when there is as much, has it: it is counted as used from here on, so that two that begin at
 * once do not count on the same room. */
static void begin_read(struct pool_snapshot *s)
{
    struct err err;
    struct snapshot_job *j = new_job(s);
    j->room = (uint64_t)s->load_mib << 20;
    s->state = SNAPSHOT_READING;
    s->begun_ms = mono_ms();
    if (background_run(s->pool->background, read_work, read_done, j, &err) < 0) {
        free(j);
        snapshot_refuse(s, ERR_UNAVAILABLE, err.text);
    }
}

void snapshot_want(struct pool_snapshot *s)
{
    if (s->state != SNAPSHOT_NEW || s->pool->stopping) {
        return;
    }
    if (s->load_mib > 0) {
        pool_kick(s->pool); /* snapshot_retry_due, when there is room */
    } else {
        begin_read(s);
    }
}

static void store_work(void *user)
{
    struct snapshot_job *j = user;
    j->rc = ram_store(j->dir, j->ram_fd, j->state_fd, &j->manifest, &j->err);
}

static void store_done(void *user)
{
    cleanup_free struct snapshot_job *j = user;
    struct pool_snapshot *s = j->snapshot;
    s->stored = true; /* tried; a snapshot that could not be written still serves until we end */
    if (j->rc < 0) {
        log_error("snapshot not stored", "template", s->name, "dir", j->dir, "why", j->err.text);
        tell_built(s, j->err.text);
        return;
    }
    char boot[24];
    (void)snprintf(boot, sizeof boot, "%llu", (unsigned long long)j->manifest.boot_ms);
    log_info("snapshot stored", "template", s->name, "digest", s->digest, "boot_ms", boot);
    tell_built(s, NULL);
}

static void seal_work(void *user)
{
    struct snapshot_job *j = user;
    j->rc = ram_seal(j->ram_fd, (uint64_t)j->info.memory_mib << 20, &j->manifest.ram_bytes_used,
                     &j->err);
    if (j->rc == 0) {
        j->rc = ram_seal_whole(j->state_fd, &j->err);
    }
}

static void seal_done(void *user)
{
    cleanup_free struct snapshot_job *j = user;
    struct pool_snapshot *s = j->snapshot;
    struct err err;
    if (s->pool->stopping) {
        return;
    }
    if (j->rc < 0) {
        snapshot_refuse(s, ERR_UNAVAILABLE, j->err.text);
        return;
    }
    s->manifest = j->manifest;
    become_ready(s);
    struct snapshot_job *store = new_job(s);
    if (background_run(s->pool->background, store_work, store_done, store, &err) < 0) {
        log_error("snapshot not stored", "template", s->name, "why", err.text);
        free(store);
        s->stored = true;
    }
}

void snapshot_booted(struct pool_snapshot *s, int64_t boot_ms)
{
    struct err err;
    if (s->pool->stopping) {
        return;
    }
    assert(s->state == SNAPSHOT_BUILDING);
    s->manifest.boot_ms = (uint64_t)boot_ms;
    s->state = SNAPSHOT_SEALING;
    struct snapshot_job *j = new_job(s);
    if (background_run(s->pool->background, seal_work, seal_done, j, &err) < 0) {
        free(j);
        snapshot_refuse(s, ERR_UNAVAILABLE, err.text);
    }
}
