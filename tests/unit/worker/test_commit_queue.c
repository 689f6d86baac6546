/* The ends that wait for the committer's two threads: places, whole batches, what is put back. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "common/base/clock.h"
#include "worker/commit_queue.h"

#define BATCH 4
#define SOON_MS 1

static struct commit_queue q;

static void set_up(void)
{
    commit_queue_init(&q, BATCH);
}

static void tear_down(void)
{
    commit_queue_done(&q);
}

TestSuite(commit_queue, .init = set_up, .fini = tear_down, .timeout = 60);

/* Entries numbered from first on. */
static void push(int first, int n)
{
    for (int i = 0; i < n; i++) {
        struct commit_entry *e = commit_entry_new();
        e->slot_us = first + i;
        cr_assert(commit_queue_reserve(&q, 0));
        commit_queue_push(&q, e);
    }
}

static void expect(struct commit_entry *const *entries, int first, int n)
{
    for (int i = 0; i < n; i++) {
        cr_expect_eq(entries[i]->slot_us, first + i, "%d is %d", i, (int)entries[i]->slot_us);
    }
}

static int taken; /* by the thread, after it has ended */

static void *take_full(void *arg)
{
    taken = commit_queue_take_full(&q, arg);
    return NULL;
}

Test(commit_queue, a_whole_batch_is_taken_and_no_less)
{
    struct commit_entry *entries[BATCH], *few[BATCH];
    pthread_t t;
    push(0, BATCH - 1);
    cr_assert_eq(pthread_create(&t, NULL, take_full, entries), 0);
    cr_assert_eq(commit_queue_take(&q, mono_us(), few, 2), 2,
                 "the other thread takes what there is");
    expect(few, 0, 2);
    push(BATCH - 1, BATCH - 1);
    cr_assert_eq(pthread_join(t, NULL), 0);
    cr_assert_eq(taken, BATCH);
    expect(entries, 2, BATCH);
    cr_assert_eq(q.queued, 0);
    cr_assert_eq(q.reserved, BATCH + 2, "they keep their places");
    commit_queue_finish(&q, few, 2);
    commit_queue_finish(&q, entries, BATCH);
    cr_assert_eq(q.reserved, 0);
}

Test(commit_queue, none_is_taken_when_it_stops)
{
    struct commit_entry *entries[BATCH];
    pthread_t t;
    push(0, BATCH - 1);
    cr_assert_eq(pthread_create(&t, NULL, take_full, entries), 0);
    commit_queue_stop(&q, 0);
    cr_assert_eq(pthread_join(t, NULL), 0);
    cr_assert_eq(taken, 0);
    cr_assert_eq(q.queued, BATCH - 1, "they are for whoever spools what is left");
}

Test(commit_queue, what_is_put_back_comes_first)
{
    struct commit_entry *entries[BATCH], *again[2 * BATCH];
    push(0, BATCH);
    cr_assert_eq(commit_queue_take_full(&q, entries), BATCH);
    push(BATCH, 2);
    commit_queue_put_back(&q, entries, BATCH);
    cr_assert_eq(commit_queue_take(&q, mono_us(), again, 2 * BATCH), BATCH + 2);
    expect(again, 0, BATCH + 2);
    commit_queue_finish(&q, again, BATCH + 2);
}

Test(commit_queue, places_are_bounded_whoever_has_them)
{
    struct commit_entry *entries[BATCH];
    push(0, COMMIT_QUEUE_MAX);
    cr_assert(!commit_queue_reserve(&q, SOON_MS), "one above");
    cr_assert_eq(commit_queue_take_full(&q, entries), BATCH);
    cr_assert(!commit_queue_reserve(&q, SOON_MS), "what is on its way has its place");
    commit_queue_finish(&q, entries, 1);
    cr_assert(commit_queue_reserve(&q, 0));
    cr_assert(!commit_queue_reserve(&q, SOON_MS));
    commit_queue_unreserve(&q);
    commit_queue_finish(&q, entries + 1, BATCH - 1);
}
