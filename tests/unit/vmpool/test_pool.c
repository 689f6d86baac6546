/* vmpool's pool with machines of paper: who gets memory, and what is given up. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/unit/vmpool/paper_engine.h"

#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define TURNS 64

static struct event_base *loop;
static struct pool *pool;

/* The last answer, and how many of each kind there were. */
static struct {
    uint32_t id, granted, refused, frozen;
    uint64_t lease;
    enum err_code code;
} last;

static bool on_granted(void *client, uint32_t id, const struct pool_grant *g)
{
    (void)client;
    last.id = id;
    last.granted++;
    last.lease = g->reply.lease;
    return true;
}

static void on_refused(void *client, uint32_t id, const struct err *err)
{
    (void)client;
    last.id = id;
    last.refused++;
    last.code = err->code;
}

static void on_frozen(void *client, uint32_t id, uint64_t lease)
{
    (void)client;
    last.id = id;
    last.frozen++;
    last.lease = lease;
}

static void on_kept(void *client, uint32_t id, const char *kept_id, const char *parent_id)
{
    (void)client;
    (void)id;
    (void)kept_id;
    (void)parent_id;
}

static void open_pool(int memory_mib)
{
    struct config c;
    struct err err;
    const struct pool_callbacks callbacks = {
        .granted = on_granted, .refused = on_refused, .frozen = on_frozen, .kept = on_kept
    };
    const struct engine_host host = { .name = "paper", .freeze = FREEZE_COPY };
    log_init("test", LOG_ERROR, 2);
    loop = event_base_new();
    cr_assert_eq(config_load(&c, "/nonexistent", NULL, &err), 0);
    c.pool_memory_mib_max = memory_mib;
    c.pool_warm_min = 0;
    c.pool_warm_max = 0;
    cr_assert_eq(pool_new(loop, &c, &paper_engine, &host, &callbacks, &pool, &err), 0);
}

/* Whoever is being ended ends, whoever is being loaded is loaded; as often as something follows. */
static void settle(void)
{
    for (int i = 0; i < TURNS; i++) {
        struct machine *m, *next;
        (void)event_base_loop(loop, EVLOOP_NONBLOCK);
        for (m = LIST_FIRST(&paper.machines); m; m = next) {
            next = LIST_NEXT(m, link);
            paper_happen(m, m->destroyed ? MACHINE_EXITED : MACHINE_LOADED, "");
        }
    }
}

static void close_pool(void)
{
    pool_stop(pool);
    settle();
    cr_assert(pool_idle(pool));
    pool_free(pool);
    event_base_free(loop);
}

static uint64_t lease_now(void *client, const char *spec)
{
    uint32_t before = last.granted;
    pool_lease(pool, client, 1, spec, false);
    settle();
    cr_assert_eq(last.granted, before + 1, "%s", spec);
    return last.lease;
}

static void freeze_now(void *client, uint64_t lease)
{
    uint32_t before = last.frozen;
    struct machine *m;
    pool_freeze(pool, client, 2, lease);
    LIST_FOREACH(m, &paper.machines, link)
    {
        if (m->pausing) {
            paper_happen(m, MACHINE_PAUSED, "");
            break;
        }
    }
    cr_assert_eq(last.frozen, before + 1);
}

/* Ask for a fork, and have the copy fail. */
static void fork_fails(void *client, uint64_t frozen, const char *why)
{
    uint32_t before = last.refused;
    pool_fork(pool, client, 3, frozen);
    struct machine *m = LIST_FIRST(&paper.machines);
    paper_happen(m, MACHINE_FAILED, why);
    cr_assert_eq(last.refused, before + 1);
    cr_assert_eq(last.code, ERR_UNAVAILABLE);
    settle();
}

/* A frozen sandbox whose copy failed once goes on serving; one that always fails is given up, so
 * that its client hears that it is gone, and its memory comes back. */
Test(pool, a_frozen_one_that_cannot_be_copied_is_given_up)
{
    int client;
    open_pool(4096);
    (void)paper_snapshot(pool, "t", DIGEST, 128);
    uint64_t used = pool_used_mib(pool);
    uint64_t frozen = lease_now(&client, "t@" DIGEST);
    freeze_now(&client, frozen);
    for (int i = 0; i < 3; i++) { /* the failures are not in a row */
        fork_fails(&client, frozen, "fork failed");
        uint32_t before = last.granted;
        pool_fork(pool, &client, 4, frozen);
        settle();
        cr_assert_eq(last.granted, before + 1, "round %d", i);
        pool_release(pool, &client, last.lease);
    }
    fork_fails(&client, frozen, "fork failed");
    fork_fails(&client, frozen, "fork failed");
    uint32_t before = last.refused;
    pool_fork(pool, &client, 5, frozen);
    cr_assert_eq(last.refused, before + 1, "a third is tried");
    cr_expect_eq(last.code, ERR_NOT_FOUND, "code %d", (int)last.code);
    settle();
    cr_expect_eq(pool_used_mib(pool), used, "%d MiB", (int)pool_used_mib(pool));
    close_pool();
}

#define LARGE "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define SMALL_WARM 16
#define SMALL_HELD 3
#define ROUNDS 40

/* Small ones warm, and some of them leased. */
static void fill_with_small(void *client, uint64_t held[SMALL_HELD])
{
    for (int i = 0; i < SMALL_HELD; i++) {
        held[i] = lease_now(client, "t@" DIGEST);
    }
    pool->config.pool_warm_min = pool->config.pool_warm_max = SMALL_WARM;
    pool_kick(pool);
    settle();
}

/* The memory budget is one queue: who is first in it gets what is given back, though small ones are
 * asked for all the time and could have it sooner. */
Test(pool, a_large_one_is_not_overtaken_for_ever)
{
    int many, one;
    uint64_t held[SMALL_HELD], large = 0;
    open_pool(1024);
    (void)paper_snapshot(pool, "t", DIGEST, 128);
    struct pool_snapshot *l = paper_snapshot(pool, "large", LARGE, 900);
    l->current = false;
    fill_with_small(&many, held);
    pool_lease(pool, &one, 100, "large@" LARGE, false);
    for (int i = 0; i < ROUNDS && !large; i++) {
        pool_release(pool, &many, held[i % SMALL_HELD]);
        held[i % SMALL_HELD] = 0;
        uint32_t before = last.granted;
        pool_lease(pool, &many, 1, "t@" DIGEST, false);
        held[i % SMALL_HELD] = last.granted > before ? last.lease : 0;
        settle();
        large = l->leased > 0;
    }
    cr_expect(large, "it was overtaken for %d rounds", ROUNDS);
    uint32_t before = last.granted;
    pool_client_gone(pool, &one);
    settle();
    cr_expect_gt(last.granted, before, "then the others' turn is");
    close_pool();
}

/* It has a warm machine of its own already, and the others' are in the way. */
Test(pool, warm_ones_make_room_for_who_is_first)
{
    int client;
    open_pool(1024);
    struct pool_snapshot *s = paper_snapshot(pool, "t", DIGEST, 128);
    struct pool_snapshot *l = paper_snapshot(pool, "large", LARGE, 900);
    l->current = false;
    pool_vm_start(l, POOL_VM_CLONE);
    pool->config.pool_warm_min = pool->config.pool_warm_max = SMALL_WARM;
    pool_kick(pool);
    settle();
    cr_assert(l->warm == 1 && s->warm == SMALL_WARM, "%u, %u", l->warm, s->warm);
    (void)lease_now(&client, "large@" LARGE);
    close_pool();
}

/* A tree that has begun goes on: its end is what gives memory back. */
Test(pool, forks_do_not_wait_for_who_is_first)
{
    int tree, one;
    open_pool(1024);
    (void)paper_snapshot(pool, "t", DIGEST, 128);
    (void)paper_snapshot(pool, "large", LARGE, 900);
    uint64_t frozen = lease_now(&tree, "t@" DIGEST);
    freeze_now(&tree, frozen);
    (void)lease_now(&tree, "t@" DIGEST);
    pool_lease(pool, &one, 100, "large@" LARGE, false);
    settle();
    uint32_t before = last.granted;
    pool_fork(pool, &tree, 5, frozen);
    settle();
    cr_expect_eq(last.granted, before + 1);
    close_pool();
}

/* What is larger than the budget is in nobody's way. */
Test(pool, what_never_fits_blocks_nobody)
{
    int client, one;
    open_pool(1024);
    (void)paper_snapshot(pool, "t", DIGEST, 128);
    (void)paper_snapshot(pool, "large", LARGE, 1000);
    pool_lease(pool, &one, 100, "large@" LARGE, false);
    settle();
    (void)lease_now(&client, "t@" DIGEST);
    close_pool();
}

#define KEPT_MIB 350

/* Kept states that nobody uses give way, the one that was not used for longest first. */
Test(pool, idle_kept_states_make_room)
{
    int client;
    char id[TEMPLATE_DIGEST_MAX], spec[80];
    open_pool(2048);
    (void)paper_snapshot(pool, "t", DIGEST, 512);
    for (int i = 0; i < 5; i++) {
        memset(id, '0' + i, 64);
        id[64] = 0;
        struct pool_snapshot *s = paper_snapshot(pool, KEPT_NAME, id, 512);
        s->current = false;
        s->used_ms = i == 1 ? -1000 : i;
        s->manifest.ram_bytes_used = (uint64_t)KEPT_MIB << 20;
    }
    (void)lease_now(&client, "t@" DIGEST);
    cr_expect_eq(pool->n_snapshots, 1 + 4, "no more than is needed: %d", pool->n_snapshots);
    for (int i = 0; i < pool->n_snapshots; i++) {
        cr_expect_neq(pool->snapshots[i]->digest[0], '1', "the oldest");
    }
    (void)snprintf(spec, sizeof spec, KEPT_PREFIX "%s", id); /* one that is there, too */
    (void)lease_now(&client, spec);
    close_pool();
}

#define WAIT_MS 20000

/* A kept state is not read before there is room for it. */
Test(pool, a_kept_state_is_read_when_it_fits)
{
    int client;
    struct pool_snapshot *s;
    struct err err;
    char id[TEMPLATE_DIGEST_MAX] = LARGE;
    open_pool(1024);
    (void)paper_snapshot(pool, "t", DIGEST, 512);
    uint64_t lease = lease_now(&client, "t@" DIGEST);
    cr_assert_eq(snapshot_find(pool, KEPT_NAME, id, false, &s, &err), 0);
    s->load_mib = 500; /* it was tried */
    s->state = SNAPSHOT_READING;
    pool_lease(pool, &client, 7, KEPT_PREFIX LARGE, false);
    s->state = SNAPSHOT_NEW;
    pool_kick(pool);
    settle();
    cr_expect_eq(s->state, SNAPSHOT_NEW);
    cr_expect_eq(last.refused, 0u);
    pool_release(pool, &client, lease);
    for (int64_t end = mono_ms() + WAIT_MS; last.refused == 0 && mono_ms() < end; sleep_ms(1)) {
        settle();
    }
    cr_expect_eq(last.refused, 1u, "it was read, and is not there");
    cr_expect_eq(last.code, ERR_NOT_FOUND);
    close_pool();
}

/* Two that are asked for at once do not count on the same room. */
Test(pool, a_kept_state_has_its_room_while_it_is_read)
{
    int client;
    static const char *const ids[2] = { DIGEST, LARGE };
    struct pool_snapshot *s[2];
    struct err err;
    open_pool(1024);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(snapshot_find(pool, KEPT_NAME, ids[i], false, &s[i], &err), 0);
        s[i]->load_mib = 600;
        s[i]->state = SNAPSHOT_READING;
        pool_lease(pool, &client, (uint32_t)i, i == 0 ? KEPT_PREFIX DIGEST : KEPT_PREFIX LARGE,
                   false);
    }
    s[0]->state = s[1]->state = SNAPSHOT_NEW;
    snapshot_retry_due(pool, mono_ms());
    cr_expect_eq(s[0]->state, SNAPSHOT_READING);
    cr_expect_eq(s[1]->state, SNAPSHOT_NEW);
    cr_expect_geq(pool_used_mib(pool), 600u);
    for (int64_t end = mono_ms() + WAIT_MS; last.refused < 2 && mono_ms() < end; sleep_ms(1)) {
        settle();
    }
    cr_expect_eq(last.refused, 2u, "both were read, one after the other, and are not there");
    cr_expect_eq(pool_used_mib(pool), 0u);
    close_pool();
}

/* A job that has just begun has the processors before its sandbox's successor has them, unless
 * there is none left for the next one. */
Test(pool, what_replaces_a_sandbox_waits_a_moment)
{
    open_pool(4096);
    struct pool_snapshot *s = paper_snapshot(pool, "t", DIGEST, 128);
    int64_t now_ms = mono_ms();
    s->used_ms = now_ms;
    cr_expect(!lease_is_young(s, now_ms), "none is warm");
    s->warm = 1;
    cr_expect(lease_is_young(s, now_ms));
    cr_expect(lease_is_young(s, now_ms + POOL_YOUNG_MS - 1));
    cr_expect(!lease_is_young(s, now_ms + POOL_YOUNG_MS));
    s->warm = 0;
    close_pool();
}
