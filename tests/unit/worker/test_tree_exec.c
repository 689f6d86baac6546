/* A job's tree in a slot, with a played vmpool: what of it is bounded, waited for and given back.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "tests/support/fake_guest_pool.h"
#include "worker/tree_exec.h"

#define WAIT_MS 20000

static char dir[40];
static struct err err;
static struct fake_pool *pool;
static struct config config;
static struct slot_shared shared;
static struct slot slot;
static struct commit_entry *entry;
static atomic_bool no_threads; /* as when the host has no more */

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *arg),
                   void *arg)
{
    int (*real)(pthread_t * t, const pthread_attr_t *a, void *(*s)(void *), void *x);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return atomic_load(&no_threads) ? EAGAIN : real(thread, attr, start, arg);
}

static void set_up(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/tree-exec-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void)snprintf(config.home, sizeof config.home, "%s", dir);
    (void)snprintf(config.vmpool_socket, sizeof config.vmpool_socket, "%s/pool", dir);
    config.sched_infra_attempts_max = 2;
    shared.config = &config;
    shared.name = "w";
    shared.slots = 1;
    slot.shared = &shared;
    slot.abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session_init(&slot.session);
    entry = commit_entry_new();
}

static void tear_down(void)
{
    commit_entry_free(entry);
    session_done(&slot.session);
    pool_client_done(&slot.pool);
    (void)close(slot.abort_fd);
    fake_pool_stop(pool);
    cr_expect_eq(rmdir(dir), 0);
}

TestSuite(tree_exec, .init = set_up, .fini = tear_down, .timeout = 120);

static void start_pool(enum fake_pool_mode mode)
{
    pool = fake_pool_start(config.vmpool_socket, mode, guest_script_shell, NULL);
    cr_assert_eq(pool_client_init(&slot.pool, config.vmpool_socket, &err), 0);
}

static struct lease first(void)
{
    struct lease lease;
    cr_assert_eq(pool_lease(&slot.pool, "python", false, slot.abort_fd, WAIT_MS, &lease, &err), 0,
                 "%s", err.text);
    return lease;
}

static int run(const char *json, struct lease lease)
{
    struct job_spec *spec;
    cr_assert_eq(job_parse(json, strlen(json), &spec, &err), 0, "%s", err.text);
    int64_t now_us = mono_us();
    int rc = tree_exec(&slot, spec, NULL, &lease, now_us, now_us, entry, &err);
    job_spec_free(spec);
    return rc;
}

static void await(int (*count)(struct fake_pool *p), int want)
{
    for (int64_t end = mono_ms() + WAIT_MS; count(pool) < want && mono_ms() < end;) {
        sleep_ms(2);
    }
    cr_assert_eq(count(pool), want);
}

/* ---- output ---- */

#define FLOODS 12

static size_t held(void)
{
    struct mallinfo2 m = mallinfo2(); /* zeros with a sanitizer */
    return m.uordblks + m.hblkhd;
}

/* When all floods have ended and the last branch runs. */
static void *give_up(void *arg)
{
    size_t *ret_held = arg;
    await(fake_pool_leases, 1 + FLOODS + 1);
    *ret_held = held();
    slot_abort(&slot);
    return NULL;
}

Test(tree_exec, outputs_are_bounded_before_the_end_and_of_a_job_that_is_given_up)
{
    cleanup_buf struct buf json = { 0 };
    pthread_t thread;
    size_t before = held(), late = 0;
    int64_t kept = 0, cut = 0;
    start_pool(POOL_GOOD);
    buf_init(&json, 4096);
    cr_assert_eq(buf_add_str(&json,
                             "{\"template\":\"python\",\"command\":[\"flood\"],\"parallel\":1,"
                             "\"limits\":{\"output_bytes\":16777216},\"branches\":[",
                             &err),
                 0);
    for (int i = 0; i < FLOODS; i++) {
        cr_assert_eq(buf_add_str(&json, "{},", &err), 0);
    }
    cr_assert_eq(buf_add_str(&json, "{\"command\":[\"sleep\",\"600000\"]}]}", &err), 0);
    cr_assert_eq(pthread_create(&thread, NULL, give_up, &late), 0);
    cr_expect_eq(run(json.data, first()), -ERR_STALE, "%s", err.text);
    (void)pthread_join(thread, NULL);
    for (int i = 0; i < entry->n_branches; i++) {
        kept += branch_result_bytes(&entry->branches[i]);
        cut += entry->branches[i].result.run.out.cut_bytes;
    }
    cr_expect_eq(kept, JOB_TREE_OUTPUT_BYTES_MAX);
    cr_expect_gt(cut, 0);
    cr_expect_lt(late, before + (100 << 20), "%zu MiB were held", (late - before) >> 20);
}

/* ---- faults of ours ---- */

#define TWO                                                                                        \
    "{\"template\":\"python\",\"command\":[\"echo\",\"x\"],\"parallel\":1,\"branches\":[{},{}]}"

/* vmpool says no for a moment: that is no try of the branch. */
Test(tree_exec, a_fork_that_is_refused_is_waited_for)
{
    start_pool(POOL_LATE_FORKS);
    cr_expect_eq(run(TWO, first()), 0, "%s", err.text);
    cr_expect_eq(entry->result.verdict, VERDICT_ACCEPTED, "%s", entry->result.reason);
    cr_expect_eq(entry->branches[0].tries, 1);
    cr_expect_eq(entry->branches[1].tries, 1);
}

Test(tree_exec, a_branch_that_breaks_is_tried_as_often_as_configured)
{
    start_pool(POOL_GOOD);
    cr_expect_eq(run("{\"template\":\"python\",\"command\":[\"echo\",\"x\"],\"parallel\":1,"
                     "\"branches\":[{},{"
                     "\"command\":[\"die\"]}]}",
                     first()),
                 0, "%s", err.text);
    cr_expect_eq(entry->branches[0].result.verdict, VERDICT_ACCEPTED);
    cr_expect_eq(entry->branches[1].result.verdict, VERDICT_INFRA_ERROR);
    cr_expect_eq(entry->branches[1].tries, 2);
}

Test(tree_exec, without_threads_the_machine_is_given_back)
{
    start_pool(POOL_GOOD);
    struct lease lease = first();
    atomic_store(&no_threads, true);
    cr_expect_eq(run(TWO, lease), -ERR_SYS, "%s", err.text);
    atomic_store(&no_threads, false);
    await(fake_pool_releases, 1);
}
