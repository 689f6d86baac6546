/* Claims that one slot has read for others: held, renewed, cancelled and lost while they wait. What
 * Redis does with them is tests/integration. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker/claims.h"

static struct inflight *inflight;
static struct claims *claims;
static int fd;
static struct err err;

static void setup(void)
{
    inflight = inflight_new(CLAIMS_READ_MAX + 4);
    claims = claims_new(inflight);
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cr_assert_geq(fd, 0);
}

static void teardown(void)
{
    claims_free(claims);
    inflight_free(inflight);
    (void)close(fd);
}

TestSuite(claims, .init = setup, .fini = teardown);

static struct claim make(int i)
{
    struct claim c = { .attempt = 1, .spec = strdup("{}"), .spec_len = 2 };
    (void)snprintf(c.stream_id, sizeof c.stream_id, "%d-0", i);
    (void)snprintf(c.job_id, sizeof c.job_id, "0190b3a4-0000-7000-8000-%012d", i);
    return c;
}

static void keep(int n)
{
    struct claim some[CLAIMS_READ_MAX];
    for (int i = 0; i < n; i++) {
        some[i] = make(i);
    }
    claims_keep(claims, some, n);
}

/* What the heartbeat renews. */
static int renewed(struct inflight_claim out[CLAIMS_READ_MAX])
{
    return inflight_list(inflight, out, CLAIMS_READ_MAX);
}

static bool woken(void)
{
    uint64_t n;
    return read(fd, &n, sizeof n) == sizeof n;
}

/* The next one without a wait; its number, -1: none. Taken off again, as when its job has ended. */
static int take(void)
{
    struct claim c;
    struct inflight_ref ref;
    if (!claims_left(claims, &c, &ref)) {
        return -1;
    }
    int n = (int)strtol(c.stream_id, NULL, 10);
    inflight_remove(inflight, ref);
    claim_done(&c);
    return n;
}

Test(claims, those_that_wait_are_renewed)
{
    struct inflight_claim held[CLAIMS_READ_MAX];
    keep(3);
    cr_assert_eq(renewed(held), 3);
    for (int i = 0; i < 3; i++) {
        char want[24];
        (void)snprintf(want, sizeof want, "%d-0", i);
        cr_expect_str_eq(held[i].stream_id, want);
    }
    cr_expect_eq(inflight_take_unmarked(inflight, INT64_MAX, held, CLAIMS_READ_MAX), 0,
                 "none of them runs");
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(take(), i);
    }
    cr_expect_eq(take(), -1);
    cr_expect_eq(inflight_count(inflight), 0);
}

Test(claims, a_slot_takes_one_and_hears_of_it)
{
    struct claim c;
    struct inflight_ref ref;
    struct inflight_claim held[CLAIMS_READ_MAX];
    keep(2);
    cr_assert_eq(claims_take(claims, NULL, "w", 0, fd, &c, &ref, &err), 1, "%s", err.text);
    cr_expect_str_eq(c.stream_id, "0-0");
    cr_expect_not(woken());
    cr_expect_eq(renewed(held), 2, "the one in the slot, the one that waits");
    cr_expect_eq(inflight_take_unmarked(inflight, INT64_MAX, held, CLAIMS_READ_MAX), 1);
    cr_expect(inflight_mark_lost(inflight, ref));
    cr_expect(woken());
    inflight_remove(inflight, ref);
    claim_done(&c);
    cr_expect_eq(take(), 1);
}

Test(claims, one_that_was_lost_while_it_waited_is_not_run)
{
    struct inflight_claim held[CLAIMS_READ_MAX];
    struct claim c;
    struct inflight_ref ref;
    keep(3);
    cr_assert_eq(renewed(held), 3);
    cr_assert(inflight_mark_lost(inflight, held[0].ref));
    cr_assert(inflight_mark_lost(inflight, held[2].ref));
    cr_assert_eq(claims_take(claims, NULL, "w", 0, fd, &c, &ref, &err), 1);
    cr_expect_str_eq(c.stream_id, "1-0");
    inflight_remove(inflight, ref);
    claim_done(&c);
    cr_expect_eq(take(), -1);
    cr_expect_eq(inflight_count(inflight), 0, "the lost ones are forgotten");
}

Test(claims, one_that_was_cancelled_while_it_waited_wakes_its_slot)
{
    struct claim c, some = make(7);
    struct inflight_ref ref;
    claims_keep(claims, &some, 1);
    cr_assert(inflight_cancel(inflight, some.job_id));
    cr_assert_eq(claims_take(claims, NULL, "w", 0, fd, &c, &ref, &err), 1);
    cr_expect(woken());
    cr_expect(inflight_cancelled(inflight, ref));
    inflight_remove(inflight, ref);
    claim_done(&c);
}

Test(claims, as_many_as_one_command_brings)
{
    struct inflight_claim held[CLAIMS_READ_MAX];
    keep(CLAIMS_READ_MAX);
    cr_expect_eq(renewed(held), CLAIMS_READ_MAX);
    cr_expect_eq(take(), 0);
    struct claim more = make(99);
    claims_keep(claims, &more, 1);
    int last = -1;
    for (int n; (n = take()) >= 0;) {
        last = n;
    }
    cr_expect_eq(last, 99, "in the order they came");
}
