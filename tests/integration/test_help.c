/* Tickets for branches that another worker runs, over a real Redis: each is had by one, gives at
 * most one result, and is found again when whoever had it is gone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/store/queue_help.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define IS(want, call) cr_assert_eq((call), (want), "%s: %s", #call, err.text)

static struct fixture f;
static struct err err;

static void set_up(void)
{
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(help, .init = set_up, .fini = tear_down, .timeout = 120);

static struct help_ticket ticket(int node)
{
    struct help_ticket t = { .attempt = 2, .node = node, .tries = 1, .n_layers = 4 };
    struct id id = id_new();
    (void)snprintf(t.job_id, sizeof t.job_id, "%s", id.text);
    (void)snprintf(t.tenant, sizeof t.tenant, "acme");
    (void)snprintf(t.claim, sizeof t.claim, "17-4");
    for (int i = 0; i < t.n_layers; i++) {
        memset(t.layers[i], 'a' + i, HELP_DIGEST_MAX);
    }
    return t;
}

static void redis(const char *line)
{
    redisReply *r = redisCommand(f.queue.ctx, line);
    cr_assert_not_null(r);
    cr_assert_neq(r->type, REDIS_REPLY_ERROR, "%s", r->str);
    freeReplyObject(r);
}

Test(help, a_ticket_goes_there_and_its_result_comes_back)
{
    struct help_ticket t = ticket(3), got;
    char bytes[] = { 0, ':', 'x', 0, 7 };
    cleanup_buf struct buf out = { 0 };
    int node, tries;
    buf_init(&out, 100);
    OK(queue_help_offer(&f.queue, &t, &err));
    IS(1, queue_help_alive(&f.queue, &t, &err));
    IS(1, queue_help_take(&f.queue, "other", &got, &err));
    cr_expect_str_eq(got.job_id, t.job_id);
    cr_expect_str_eq(got.tenant, "acme");
    cr_expect_str_eq(got.claim, "17-4");
    cr_expect_eq(got.attempt, 2);
    cr_expect_eq(got.node, 3);
    cr_expect_eq(got.tries, 1);
    cr_assert_eq(got.n_layers, 4);
    cr_expect_eq(memcmp(got.layers, t.layers, sizeof got.layers[0] * 4), 0);
    IS(0, queue_help_take(&f.queue, "third", &got, &err));
    IS(1, queue_help_alive(&f.queue, &t, &err));
    IS(1, queue_help_mark(&f.queue, &t, "other", &err));
    IS(0, queue_help_result(&f.queue, &t, &node, &tries, &out, &err));
    IS(1, queue_help_done(&f.queue, &t, bytes, sizeof bytes, &err));
    IS(1, queue_help_alive(&f.queue, &t, &err));
    IS(1, queue_help_result(&f.queue, &t, &node, &tries, &out, &err));
    cr_expect_eq(node, 3);
    cr_expect_eq(tries, 1);
    cr_assert_eq(out.len, sizeof bytes);
    cr_expect_eq(memcmp(out.data, bytes, sizeof bytes), 0);
    IS(0, queue_help_result(&f.queue, &t, &node, &tries, &out, &err));
    IS(0,
       queue_help_done(&f.queue, &t, bytes, sizeof bytes, &err)); /* a second result of one try */
    OK(queue_help_end(&f.queue, &t, &err));
}

Test(help, what_is_taken_back_is_had_by_nobody)
{
    struct help_ticket a = ticket(1), b = a, got;
    b.node = 2;
    OK(queue_help_offer(&f.queue, &a, &err));
    OK(queue_help_offer(&f.queue, &b, &err));
    IS(1, queue_help_withdraw(&f.queue, &a, &err));
    IS(0, queue_help_withdraw(&f.queue, &a, &err));
    IS(1, queue_help_take(&f.queue, "other", &got, &err));
    cr_expect_eq(got.node, 2);
    IS(0, queue_help_withdraw(&f.queue, &b, &err)); /* somebody has it */
    IS(0, queue_help_take(&f.queue, "other", &got, &err));
}

Test(help, what_is_wanted_no_more_gives_no_result)
{
    struct help_ticket t = ticket(1), got;
    int node, tries;
    cleanup_buf struct buf out = { 0 };
    buf_init(&out, 100);
    OK(queue_help_offer(&f.queue, &t, &err));
    IS(1, queue_help_take(&f.queue, "other", &got, &err));
    IS(1, queue_help_unwant(&f.queue, &t, &err));
    IS(0, queue_help_mark(&f.queue, &t, "other", &err));
    IS(0, queue_help_done(&f.queue, &t, "r", 1, &err));
    IS(0, queue_help_result(&f.queue, &t, &node, &tries, &out, &err));
}

Test(help, a_ticket_whose_owner_is_gone_is_passed_over)
{
    struct help_ticket dead = ticket(1), alive = ticket(2), got;
    OK(queue_help_offer(&f.queue, &dead, &err));
    OK(queue_help_offer(&f.queue, &alive, &err));
    OK(queue_help_end(&f.queue, &dead, &err)); /* as its expiry does */
    IS(1, queue_help_take(&f.queue, "other", &got, &err));
    cr_expect_str_eq(got.job_id, alive.job_id);
    IS(0, queue_help_renew(&f.queue, &dead, &err));
    IS(1, queue_help_renew(&f.queue, &alive, &err));
}

Test(help, a_helper_that_died_is_noticed)
{
    struct help_ticket t = ticket(1), got;
    char line[200];
    OK(queue_help_offer(&f.queue, &t, &err));
    IS(1, queue_help_take(&f.queue, "other", &got, &err));
    IS(1, queue_help_alive(&f.queue, &t, &err));
    (void)snprintf(line, sizeof line, "DEL brood:help:have:%s:2:1:1", t.job_id); /* it expires */
    redis(line);
    IS(0, queue_help_alive(&f.queue, &t, &err));
}

Test(help, a_redis_that_lost_its_data_has_nothing)
{
    struct help_ticket t = ticket(1), got;
    OK(queue_help_offer(&f.queue, &t, &err));
    redis("FLUSHALL");
    IS(0, queue_help_alive(&f.queue, &t, &err));
    IS(0, queue_help_take(&f.queue, "other", &got, &err));
    IS(0, queue_help_renew(&f.queue, &t, &err));
}

/* Whoever can write to Redis is trusted, but what is no ticket must not stop those behind it. */
Test(help, what_is_no_ticket_is_dropped)
{
    static const char *const bad[] = {
        "LPUSH brood:help {", "LPUSH brood:help 7", "LPUSH brood:help {\"job\":1,\"attempt\":1}",
        "LPUSH brood:help {}",
        "LPUSH brood:help {\"job\":\"x\",\"attempt\":\"a\",\"node\":1,\"tries\":1}"
    };
    struct help_ticket t = ticket(1), got;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        redis(bad[i]);
    }
    OK(queue_help_offer(&f.queue, &t, &err));
    IS(1, queue_help_take(&f.queue, "other", &got, &err));
    cr_expect_str_eq(got.job_id, t.job_id);
    IS(0, queue_help_take(&f.queue, "other", &got, &err));
}

Test(help, free_places_of_others_count)
{
    struct worker_info a = { .name = "self", .slots = 8 },
                       b = { .name = "b", .slots = 4, .busy = 1 },
                       c = { .name = "c", .slots = 2, .busy = 2 };
    int places = -1;
    OK(queue_worker_beat(&f.queue, &a, 60000, &err));
    OK(queue_worker_beat(&f.queue, &b, 60000, &err));
    OK(queue_worker_beat(&f.queue, &c, 60000, &err));
    OK(queue_help_places(&f.queue, "self", &places, &err));
    cr_expect_eq(places, 3);
}
