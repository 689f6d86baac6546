/* The streams in Redis beside intake and claims: an entry that is no job's, live output, events. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "tests/support/fixture.h"

FIXTURE_MAIN

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)

static struct fixture f;
static struct err err;

static void set_up(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* as every program of ours does */
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(streams, .init = set_up, .fini = tear_down, .timeout = 120);

Test(streams, malformed_ready_entry_is_skipped)
{
    redisReply *r = redisCommand(f.queue.ctx, "XADD brood:ready * job nonsense attempt x");
    freeReplyObject(r);
    struct claim c;
    cr_assert_eq(queue_claim(&f.queue, "w", 10, &c, &err), 0);
    r = redisCommand(f.queue.ctx, "XLEN brood:ready");
    cr_assert(r && r->type == REDIS_REPLY_INTEGER && r->integer == 0);
    freeReplyObject(r);
}

/* One turn of a scheduler that is handed 1000 bytes a job: what it got, as notices and jobs. */
static void takes(bool recover, int64_t block_ms, int notices, int jobs)
{
    enum { MAX = 100, BYTES_MAX = 2500 };
    struct intake_entry e[MAX];
    int got[2] = { 0 };
    int n = queue_intake_read(&f.queue, "s", recover, MAX, BYTES_MAX, block_ms, e, &err);
    OK(n);
    for (int i = 0; i < n; i++) {
        got[e[i].job != NULL]++;
        cr_assert(!e[i].job || (e[i].job_len == 1000 && e[i].job[999] == 'x'));
    }
    cr_expect(got[0] == notices && got[1] == jobs,
              "recover %d, block %d: %d notices and %d jobs, not %d and %d", recover, (int)block_ms,
              got[0], got[1], notices, jobs);
    if (n > 0) {
        OK(queue_intake_ack(&f.queue, e, n, &err));
    }
    intake_entries_done(e, n);
}

/* However little what came before weighed, and also what a scheduler left that died: else it dies
 * of the same entries again and again. */
Test(streams, entries_of_intake_are_taken_until_they_weigh_enough)
{
    char job[1000];
    memset(job, 'x', sizeof job);
    takes(false, 0, 0, 0);
    for (int i = 0; i < 20; i++) {
        if (i < 3 || i == 13) {
            OK(queue_wake(&f.queue, &err));
        }
        OK(queue_intake_add(&f.queue, job, sizeof job, "a", NULL, 0, &err));
    }
    takes(false, 0, 3, 3);
    takes(false, 1000, 0, 3);
    redisReply *r =
        redisCommand(f.queue.ctx, "XREADGROUP GROUP scheduler dead COUNT 8 STREAMS brood:intake >");
    cr_assert(r && r->type == REDIS_REPLY_ARRAY);
    redisReply *gone = redisCommand(f.queue.ctx, "XDEL brood:intake %s",
                                    r->element[0]->element[1]->element[0]->element[0]->str);
    freeReplyObject(gone);
    freeReplyObject(r);
    takes(true, 0, 0, 3);
    takes(true, 0, 0, 3);
    takes(true, 0, 1, 0);
    takes(true, 0, 0, 0);
    takes(false, 1000, 0, 3);
    takes(false, 1000, 0, 3);
    takes(false, 10, 0, 1);
    takes(false, 10, 0, 0);
}

/* A connection that is cut between the two would leave an entry that is acknowledged and stays:
 * nobody is given it again, nobody deletes it, and it counts as waiting for good. */
Test(streams, acknowledging_and_deleting_are_one_transaction)
{
    const char *const ids[] = { "1-1", "1-2" };
    struct intake_entry entry = { .stream_id = "1-3" };
    redisReply *r = redisCommand(f.queue.ctx, "CONFIG RESETSTAT");
    freeReplyObject(r);
    OK(queue_claim_ack(&f.queue, ids, 2, &err));
    OK(queue_intake_ack(&f.queue, &entry, 1, &err));
    r = redisCommand(f.queue.ctx, "INFO commandstats");
    cr_assert(r && r->type == REDIS_REPLY_STRING);
    cr_assert(strstr(r->str, "cmdstat_xack:calls=2,") && strstr(r->str, "cmdstat_xdel:calls=2,") &&
                  strstr(r->str, "cmdstat_exec:calls=2,"),
              "%s", r->str);
    freeReplyObject(r);
}

/* Each position of a stream once, whatever attempts say; and nothing behind a hole. */
Test(streams, a_reader_of_live_output_sees_each_byte_once)
{
    static const struct {
        uint64_t at, shown;
        size_t len;
        int skip; /* -1: a hole */
    } rows[] = { { 0, 0, 3, 0 }, { 3, 3, 3, 0 },  { 0, 2, 3, 2 }, { 0, 3, 3, 3 },
                 { 0, 9, 3, 3 }, { 4, 3, 3, -1 }, { 5, 6, 0, 0 }, { UINT64_MAX, 0, 1, -1 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct log_piece p = { .stream = 1, .at = rows[i].at };
        const char *text = "abc", *data = text;
        size_t len = rows[i].len;
        bool ok = log_piece_new(&p, rows[i].shown, &data, &len);
        cr_expect_eq(ok, rows[i].skip >= 0, "row %zu", i);
        cr_expect(!ok || (data - text == rows[i].skip && len == rows[i].len - (size_t)rows[i].skip),
                  "row %zu: %zu bytes from %td", i, len, data - text);
    }
}

Test(streams, live_output_and_events)
{
    struct id job = id_new();
    const struct log_piece first = { .node = 0, .stream = 1, .at = 1ull << 40 };
    const struct log_piece second = { .node = 3, .stream = 2 };
    OK(queue_log_add(&f.queue, job.text, &first, "a\0b", 3, &err));
    OK(queue_log_add(&f.queue, job.text, &second, "\xff", 1, &err));
    OK(queue_log_end(&f.queue, job.text, &err));
    char cursor[40] = "0";
    struct buf out;
    buf_init(&out, 1024);
    struct log_piece log, order[3];
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(queue_log_next(&f.queue, job.text, cursor, 1000, &out, &log, &err), 1);
        order[i] = log;
    }
    cr_assert(order[0].stream == 1 && order[1].stream == 2 && order[2].stream == 0);
    cr_assert(order[0].node == 0 && order[1].node == 3);
    cr_assert(order[0].at == first.at && order[1].at == 0);
    cr_assert(out.len == 4 && memcmp(out.data, "a\0b\xff", 4) == 0);
    cr_assert_eq(queue_log_next(&f.queue, job.text, cursor, 10, &out, &log, &err), 0);
    buf_done(&out);
    char at[40] = "$";
    struct event e;
    OK(queue_event(&f.queue, "before", "j", "", &err));
    cr_assert_eq(queue_event_next(&f.queue, at, 10, &e, &err), 0);
    const struct finished_event two[] = { { .job_id = "j1", .verdict = "accepted" },
                                          { .job_id = "j2", .verdict = "partial" } };
    OK(queue_events_finished(&f.queue, two, 2, &err));
    cr_assert_eq(queue_event_next(&f.queue, at, 10, &e, &err), 1);
    cr_assert_str_eq(e.job_id, "j1");
    cr_assert_eq(queue_event_next(&f.queue, at, 10, &e, &err), 1);
    cr_assert_str_eq(e.verdict, "partial");
}
