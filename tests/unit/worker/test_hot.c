#include <criterion/criterion.h>
#include <string.h>
#include "common/base/clock.h"
#include "worker/hot.h"

static struct config config = { .vmpool_socket = "/nonexistent",
                                .worker_shared_runs_max = 3,
                                .worker_shared_age_ms = 1000 };
static const struct hot_key key_a = { "tenant", "batch-a", "python" };

static struct hot *make(const struct hot_key *key)
{
    struct err err;
    struct hot *h = NULL;
    cr_assert_eq(hot_new(&config, key, &h, &err), 0);
    h->session.state = SESSION_EXITED;
    h->session.stop = STOP_NONE;
    return h;
}

Test(hot, a_machine_is_for_one_tenant_batch_and_template)
{
    struct hot_park *p = hot_park_new(&config, 4);
    static const struct hot_key others[] = { { "other", "batch-a", "python" },
                                             { "tenant", "batch-b", "python" },
                                             { "tenant", "batch-a", "c" },
                                             { "tenant", "", "python" } };
    hot_put(p, make(&key_a));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        cr_expect_null(hot_take(p, &others[i]));
    }
    struct hot *h = hot_take(p, &key_a);
    cr_assert_not_null(h);
    cr_expect_null(hot_take(p, &key_a), "it is in one place only");
    hot_put(p, h);
    hot_park_free(p);
}

Test(hot, no_more_are_parked_than_max)
{
    struct hot_park *p = hot_park_new(&config, 2);
    for (int i = 0; i < 5; i++) {
        hot_put(p, make(&key_a));
    }
    for (int i = 0; i < 2; i++) {
        struct hot *h = hot_take(p, &key_a);
        cr_assert_not_null(h);
        hot_drop(h);
    }
    cr_expect_null(hot_take(p, &key_a));
    hot_park_free(p);
}

/* Also when the slots never come to a rest. */
Test(hot, the_idle_are_dropped_when_another_is_parked)
{
    struct hot_park *p = hot_park_new(&config, 4);
    struct hot *old = make(&key_a);
    static const struct hot_key key_b = { "tenant", "batch-b", "python" };
    hot_put(p, old);
    old->parked_us -= (HOT_IDLE_MS + 1) * 1000;
    hot_put(p, make(&key_b));
    cr_expect_null(hot_take(p, &key_a));
    hot_park_free(p);
}

Test(hot, the_idle_are_dropped)
{
    struct hot_park *p = hot_park_new(&config, 4);
    hot_put(p, make(&key_a));
    struct hot *old = make(&key_a);
    hot_put(p, old);
    old->parked_us -= (HOT_IDLE_MS + 1) * 1000;
    hot_tidy(p, false);
    struct hot *h = hot_take(p, &key_a);
    cr_assert(h && h != old);
    cr_expect_null(hot_take(p, &key_a));
    hot_put(p, h);
    hot_tidy(p, true);
    cr_expect_null(hot_take(p, &key_a));
    hot_park_free(p);
}

static struct job_result good(void)
{
    return (struct job_result){ .verdict = VERDICT_ACCEPTED, .run = { .present = true } };
}

static bool stays(struct hot *h, struct job_result r)
{
    return hot_may_stay(&config, h, &r, mono_us());
}

Test(hot, any_sign_of_trouble_ends_a_machine)
{
    struct hot *h = make(&key_a);
    struct job_result r = good();
    cr_expect(stays(h, r));
    r.verdict = VERDICT_WRONG_ANSWER;
    cr_expect(stays(h, r), "a wrong answer is no trouble");
    r.verdict = VERDICT_RUNTIME_ERROR;
    cr_expect(stays(h, r));
    static const enum verdict bad[] = {
        VERDICT_NONE,         VERDICT_TIME_LIMIT, VERDICT_WALL_TIME_LIMIT, VERDICT_MEMORY_LIMIT,
        VERDICT_OUTPUT_LIMIT, VERDICT_DISK_LIMIT, VERDICT_PROCESS_LIMIT,   VERDICT_INFRA_ERROR
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        r = good();
        r.verdict = bad[i];
        cr_expect_not(stays(h, r), "verdict %d", (int)bad[i]);
    }
    r = good();
    r.verdict = VERDICT_COMPILE_ERROR;
    cr_expect(stays(h, r));
    memcpy(r.limit_name, "cpu_ms", sizeof "cpu_ms");
    cr_expect_not(stays(h, r), "set-up broke a limit");
    r = good();
    r.run.leftover_processes = 1;
    cr_expect_not(stays(h, r));
    r = good();
    r.run.oom_kills = 1;
    cr_expect_not(stays(h, r), "also when the program coped");
    r = good();
    r.setup = (struct run_result){ .present = true, .process_refusals = 1 };
    cr_expect_not(stays(h, r));
    h->session.stop = STOP_CPU;
    cr_expect_not(stays(h, good()));
    h->session.stop = STOP_NONE;
    h->session.state = SESSION_REFUSED;
    cr_expect_not(stays(h, good()));
    hot_drop(h);
}

Test(hot, it_grows_old)
{
    struct hot *h = make(&key_a);
    h->runs = 2;
    cr_expect(stays(h, good()));
    h->runs = 3;
    cr_expect_not(stays(h, good()), "worker.shared_runs_max");
    h->runs = 0;
    h->born_us -= 1000 * 1000;
    cr_expect_not(stays(h, good()), "worker.shared_age_ms");
    hot_drop(h);
    h = make(&(struct hot_key){ "tenant", "", "python" });
    cr_expect_not(stays(h, good()), "a job of no batch shares with nobody");
    hot_drop(h);
}
