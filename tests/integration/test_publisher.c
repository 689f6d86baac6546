/* What is shown of running jobs, with a real Redis: whole and in order, or ended; never with a
 * hole; and whoever hands it over never waits. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/support/fixture.h"
#include "worker/live.h"

FIXTURE_MAIN

static struct fixture f;
static struct err err;
static struct config config;
static struct publisher *publisher;

static void set_up(void)
{
    fixture_open(&f);
    (void)snprintf(config.redis_url, sizeof config.redis_url, "%s", f.redis_url);
    cr_assert_eq(publisher_start(&config, &publisher, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    publisher_stop(publisher);
    fixture_close(&f);
}

static const struct log_piece out = { .node = 3, .stream = 1 }, end = { .stream = 0 };

TestSuite(publisher, .init = set_up, .fini = tear_down, .timeout = 60);

/* The server takes what is sent, and answers nobody for so long. */
static void pause_redis(const char *ms)
{
    redisReply *r = redisCommand(f.queue.ctx, "CLIENT PAUSE %s ALL", ms);
    cr_assert(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
}

/* Pieces of the job until its end mark, or until nothing comes for wait_ms; their number, and all
 * their bytes in got. */
static int read_all(const struct id *job, int64_t wait_ms, struct buf *got, bool *ret_ended)
{
    char cursor[40] = "0";
    struct log_piece piece = { .stream = -1 };
    int n = 0;
    while (queue_log_next(&f.queue, job->text, cursor, wait_ms, got, &piece, &err) == 1 &&
           piece.stream != 0) {
        n++;
    }
    *ret_ended = piece.stream == 0;
    return n;
}

Test(publisher, all_of_it_in_order_then_the_mark)
{
    enum { N = 500 };
    struct id id = id_new();
    struct live live;
    char text[16];
    bool ended;
    struct buf got, sent;
    buf_init(&got, 1 << 20);
    buf_init(&sent, 1 << 20);
    live_start(&live, publisher, id.text, 0);
    for (int i = 0; i < N; i++) {
        int n = snprintf(text, sizeof text, "%d,", i);
        live_add(&live, 1 + i % 2, text, (size_t)n); /* each is a piece: the streams take turns */
        cr_assert_eq(buf_add(&sent, text, (size_t)n, &err), 0);
    }
    live_end(&live);
    int n = read_all(&id, 5000, &got, &ended);
    cr_expect_eq(n, N, "%d pieces, %zu of %zu bytes: %s", n, got.len, sent.len, err.text);
    cr_expect(ended);
    cr_expect(got.len == sent.len && memcmp(got.data, sent.data, got.len) == 0);
    buf_done(&got);
    buf_done(&sent);
}

Test(publisher, a_silent_redis_ends_what_is_shown_now_and_nothing_later)
{
    struct id before = id_new(), after = id_new();
    struct buf got;
    bool ended;
    buf_init(&got, 1 << 20);
    uint64_t era = publisher_era(publisher);
    cr_assert(publisher_put(publisher, era, before.text, &out, "a", 1));
    cr_assert_eq(read_all(&before, 500, &got, &ended), 1);
    pause_redis("7000"); /* longer than a command waits */
    bool on = true;
    for (int i = 0; on && i < 2000; i++) {
        on = publisher_put(publisher, era, before.text, &out, "b", 1);
        sleep_ms(5);
    }
    cr_assert(!on, "the view goes on");
    cr_assert(!publisher_put(publisher, era, before.text, &end, "", 0));
    era = publisher_era(publisher);
    cr_assert(publisher_put(publisher, era, after.text, &out, "c", 1));
    cr_assert(publisher_put(publisher, era, after.text, &end, "", 0));
    buf_reset(&got);
    cr_expect_eq(read_all(&after, 10000, &got, &ended), 1);
    cr_expect(ended && strcmp(got.data, "c") == 0);
    buf_done(&got);
}

Test(publisher, more_than_its_room_ends_the_view)
{
    enum { PIECE = 1 << 20 };
    struct id id = id_new();
    char *data = calloc(1, PIECE);
    uint64_t era = publisher_era(publisher);
    int taken = 0;
    pause_redis("2000");
    while (taken < 64 && publisher_put(publisher, era, id.text, &out, data, PIECE)) {
        taken++;
    }
    cr_expect(taken >= 15 && taken <= 17, "%d MiB were taken", taken); /* one may be on its way */
    cr_expect_neq(publisher_era(publisher), era);
    free(data);
}
