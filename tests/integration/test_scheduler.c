/* The scheduler against a real Redis and a real Postgres: turn by turn where the order matters, as
 * a process of its own where being killed does. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "scheduler/scheduler.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

#define WAIT_MS_MAX 60000
#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define JOB "{\"template\":\"python\",\"command\":[\"python3\",\"-c\",\"print(1)\"]}"

static struct fixture f;
static struct err err;
static struct config config;
static struct scheduler s;
static pid_t child;

static void set_up(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* as every program of ours does */
    fixture_open(&f);
    log_init("test", LOG_ERROR, STDERR_FILENO);
    OK(config_load(&config, "/tmp/brood-test-nowhere", NULL, &err));
    (void)snprintf(config.redis_url, sizeof config.redis_url, "%s", f.redis_url);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "%s", f.pg_url);
    config.sched_lease_ms =
        3600000; /* a loaded machine must not let a claim expire that a test holds */
    config.sched_retry_base_ms = 1;
    scheduler_init(&s, &config);
}

static void tear_down(void)
{
    if (child > 0) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    scheduler_done(&s);
    fixture_close(&f);
}

TestSuite(scheduler, .init = set_up, .fini = tear_down, .timeout = 180);

static void connect_here(void)
{
    OK(scheduler_connect(&s, &err));
}

static void turns(int n)
{
    for (int i = 0; i < n; i++) {
        OK(scheduler_turn(&s, 1, &err));
    }
}

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
    (void)sig;
    stop = 1;
}

/* The scheduler as a process. */
static void start_scheduler(void)
{
    pid_t parent = getpid();
    child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        (void)signal(SIGTERM, on_term);
        struct scheduler own;
        scheduler_init(&own, &config);
        scheduler_run(&own, &stop);
        scheduler_done(&own);
        _exit(0);
    }
}

static void xadd(const char *job)
{
    OK(queue_intake_add(&f.queue, job, strlen(job), NULL, NULL, 0, &err));
}

static long long redis_number(const char *command)
{
    redisReply *r = redisCommand(f.queue.ctx, command);
    cr_assert(r && r->type == REDIS_REPLY_INTEGER, "%s", command);
    long long v = r->integer;
    freeReplyObject(r);
    return v;
}

static void wait_number(const char *sql, long want)
{
    int64_t until = mono_ms() + WAIT_MS_MAX;
    long have;
    while ((have = fixture_number(&f, sql)) != want && mono_ms() < until) {
        sleep_ms(20);
    }
    cr_assert_eq(have, want, "%s: %ld, not %ld", sql, have, want);
}

static struct claim claim_one(const char *worker)
{
    struct claim c;
    int rc = queue_claim(&f.queue, worker, WAIT_MS_MAX, &c, &err);
    cr_assert_eq(rc, 1, "claim: %s", rc < 0 ? err.text : "nothing came");
    return c;
}

static void commit(const struct claim *c, const char *worker, bool want_won)
{
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    struct commit_item item = { .job_id = c->job_id,
                                .tenant = c->tenant,
                                .template_name = "python",
                                .worker = worker,
                                .attempt = c->attempt,
                                .result = &r };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert_eq(item.ret_won, want_won);
    job_result_done(&r);
}

/* ---- intake ---- */

Test(scheduler, raw_xadd_becomes_a_row_and_ready)
{
    redisReply *r = redisCommand(f.queue.ctx, "XADD brood:intake * job %s", JOB);
    freeReplyObject(r);
    connect_here();
    turns(2);
    cr_assert_eq(
        fixture_number(
            &f, "SELECT count(*) FROM jobs WHERE tenant = 'default' AND state = 'scheduled'"),
        1);
    cr_assert_eq(redis_number("XLEN brood:intake"), 0);
    struct claim c = claim_one("w1");
    cr_assert_eq(c.attempt, 1);
    struct job_spec *spec = NULL;
    OK(job_parse(c.spec, c.spec_len, &spec, &err));
    cr_assert_str_eq(spec->command.argv[0], "python3");
    job_spec_free(spec);
    commit(&c, "w1", true);
    claim_done(&c);
}

Test(scheduler, bad_intake_is_refused_and_the_rest_goes_on)
{
    static const char *const bad[][4] = {
        { "job", "{\"template\":", "tenant", "default" },
        { "job", "{\"template\":\"ruby\",\"command\":\"true\"}", "tenant", "default" },
        { "job", JOB, "tenant", "No Such/Tenant" },
        { "job", JOB, "batch", "not-a-uuid" },
        { "job", JOB, "seq", "-4" },
        { "job", "{\"template\":\"python\",\"command\":\"true\",\"limits\":{\"memory_mib\":500}}",
          "tenant", "default" },
        { "nojob", "x", "tenant", "default" },
        { "job", "{\"template\":\"python\",\"command\":\"true\",\"surprise\":1}", "tenant",
          "default" },
    };
    static const char *const says[] = { "",    "template",   "tenant", "batch",
                                        "seq", "memory_mib", "job",    "surprise" };
    const int n = sizeof bad / sizeof bad[0];
    for (int i = 0; i < n; i++) {
        redisReply *r = redisCommand(f.queue.ctx, "XADD brood:intake * %s %s %s %s", bad[i][0],
                                     bad[i][1], bad[i][2], bad[i][3]);
        freeReplyObject(r);
        xadd(JOB);
    }
    connect_here();
    turns(3);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), n);
    cr_assert_eq(redis_number("XLEN brood:intake"), 0);
    redisReply *r = redisCommand(f.queue.ctx, "XRANGE brood:rejected - +");
    cr_assert_eq(r->elements, (size_t)n);
    for (int i = 0; i < n; i++) {
        const redisReply *fields = r->element[i]->element[1];
        const char *reason = "";
        for (size_t k = 0; k + 1 < fields->elements; k += 2) {
            reason = strcmp(fields->element[k]->str, "reason") == 0 ? fields->element[k + 1]->str
                                                                    : reason;
        }
        cr_assert(strstr(reason, says[i]) && reason[0], "entry %d: \"%s\" does not name \"%s\"", i,
                  reason, says[i]);
    }
    freeReplyObject(r);
}

Test(scheduler, batch_and_seq_of_intake)
{
    struct id batch = id_new();
    for (int seq = 4; seq >= 0; seq--) {
        OK(queue_intake_add(&f.queue, JOB, strlen(JOB), "default", batch.text, seq, &err));
    }
    OK(queue_intake_add(&f.queue, JOB, strlen(JOB), "mallory", batch.text, 9, &err));
    connect_here();
    turns(2);
    cr_assert_eq(
        fixture_number(&f, "SELECT count(DISTINCT seq) FROM jobs WHERE batch_id IS NOT NULL"), 5);
    cr_assert_eq(fixture_number(&f, "SELECT jobs FROM batches"), 5);
    cr_assert_eq(redis_number("XLEN brood:rejected"), 1);
}

Test(scheduler, same_key_other_content_is_refused)
{
    xadd("{\"template\":\"python\",\"command\":\"echo 1\",\"idempotency_key\":\"k\"}");
    xadd("{\"template\":\"python\",\"command\":\"echo 1\",\"idempotency_key\":\"k\"}");
    xadd("{\"template\":\"python\",\"command\":\"echo 2\",\"idempotency_key\":\"k\"}");
    connect_here();
    turns(2);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 1);
    cr_assert_eq(redis_number("XLEN brood:rejected"), 1);
}

Test(scheduler, entry_taken_twice_is_one_job)
{
    for (int i = 0; i < 20; i++) {
        xadd(JOB);
    }
    /* One scheduler dies between the rows and the acknowledgement ... */
    connect_here();
    struct intake_taken taken;
    s.recover = false;
    OK(scheduler_intake(&s, 10, &taken, &err));
    cr_assert_eq(taken.n, 20);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 20);
    scheduler_done(&s);
    /* ... and the next one finds the entries again. */
    scheduler_init(&s, &config);
    connect_here();
    turns(3);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 20);
    cr_assert_eq(redis_number("XLEN brood:intake"), 0);
    intake_entries_done(taken.entries, taken.n);
    free(taken.entries);
}

Test(scheduler, job_ids_sort_like_stream_ids)
{
    static const char *const stream[] = { "1795987488123-0", "1795987488123-1",
                                          "1795987488123-4095", "1795987488124-0" };
    uint8_t hash[32] = { 1 };
    struct id last = { "" };
    for (int i = 0; i < 4; i++) {
        struct id id = scheduler_job_id(stream[i], hash);
        cr_assert(id_valid(id.text));
        cr_assert_eq(id.text[14], '7');
        cr_assert_gt(strcmp(id.text, last.text), 0);
        last = id;
    }
    hash[0] = 2;
    struct id other = scheduler_job_id(stream[3], hash);
    cr_assert_str_neq(other.text, last.text, "other content is another job");
    (void)scheduler_job_id("18446744073709551615-18446744073709551615", hash);
}

/* ---- what brood status asks ---- */

Test(scheduler, who_leads_and_what_intake_lags)
{
    struct leader_view v;
    int64_t entries, oldest_ms;
    OK(store_leader(&f.pg, &v, &err));
    cr_assert_str_eq(v.who, "");
    cr_assert_eq(v.since_ms, -1);
    connect_here();
    OK(store_leader(&f.pg, &v, &err));
    char pid[16];
    (void)snprintf(pid, sizeof pid, ":%d", (int)getpid());
    cr_assert(strstr(v.who, pid), "%s", v.who);
    cr_assert_geq(v.since_ms, 0);
    cr_assert_eq(v.waiting, 0);
    struct pg other = { 0 };
    OK(pg_open(&other, f.pg_url, &err));
    cr_assert_eq(store_lead(&other, &err), 0, "there is one");
    OK(store_leader(&f.pg, &v, &err));
    cr_assert_eq(v.waiting, 1);
    pg_close(&other);
    OK(queue_intake_lag(&f.queue, &entries, &oldest_ms, &err));
    cr_assert_eq(entries, 0);
    cr_assert_eq(oldest_ms, -1);
    xadd(JOB);
    sleep_ms(5);
    OK(queue_intake_lag(&f.queue, &entries, &oldest_ms, &err));
    cr_assert_eq(entries, 1);
    cr_assert_geq(oldest_ms, 4);
    turns(2);
    OK(queue_intake_lag(&f.queue, &entries, &oldest_ms, &err));
    cr_assert_eq(entries, 0);
}

/* ---- dispatch ---- */

Test(scheduler, ready_stays_as_deep_as_the_workers_need)
{
    for (int i = 0; i < 50; i++) {
        xadd(JOB);
    }
    config.sched_ready_depth = 3;
    connect_here();
    turns(5);
    cr_assert_eq(redis_number("XLEN brood:ready"), 3, "no worker: two slots, and one to follow");
    const struct worker_info w = {
        .name = "w1", .slots = 5, .pid = 1, .spooled = 3, .spool_bytes = 4000000000
    };
    OK(queue_worker_beat(&f.queue, &w, 60000, &err));
    s.slots_at_ms = 0;
    turns(5);
    cr_assert_eq(redis_number("XLEN brood:ready"), 6);
    struct claim c = claim_one("w1");
    turns(2);
    cr_assert_eq(redis_number("XLEN brood:ready"), 6,
                 "one slot is busy: five wait for it and four");
    const char *ids[] = { c.stream_id };
    OK(queue_claim_ack(&f.queue, ids, 1, &err));
    claim_done(&c);
    turns(2);
    cr_assert_eq(redis_number("XLEN brood:ready"), 6, "an end makes room for one");
    struct worker_info rows[4];
    cr_assert_eq(queue_workers(&f.queue, rows, 4, &err), 1);
    cr_assert_eq(rows[0].slots, 5);
    cr_assert_eq(rows[0].spooled, 3);
    cr_assert_eq(rows[0].spool_bytes, 4000000000);
    OK(queue_worker_gone(&f.queue, "w1", &err));
    cr_assert_eq(queue_workers(&f.queue, rows, 4, &err), 0);
}

/* brood up waits for its own among as many as share a Redis. */
Test(scheduler, one_worker_is_found_among_many)
{
    struct worker_info w = { .slots = 1 };
    for (w.pid = 1; w.pid <= 300; w.pid++) {
        queue_worker_name("", w.pid, w.name);
        OK(queue_worker_beat(&f.queue, &w, 60000, &err));
    }
    queue_worker_name("", 300, w.name);
    cr_expect_eq(queue_worker_alive(&f.queue, w.name, 300, &err), 1);
    cr_expect_eq(queue_worker_alive(&f.queue, w.name, 299, &err), 0, "of that name, and dead");
    queue_worker_name("", 301, w.name);
    cr_expect_eq(queue_worker_alive(&f.queue, w.name, 301, &err), 0);
    queue_worker_name("mine", 7, w.name);
    cr_expect_str_eq(w.name, "mine");
}

Test(scheduler, wake_dispatches_rows_of_others)
{
    start_scheduler();
    struct submit_item item = { .spec = fixture_job("true", NULL) };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    OK(queue_wake(&f.queue, &err));
    struct claim c = claim_one("w1");
    cr_assert_str_eq(c.job_id, item.ret_id.text);
    claim_done(&c);
}

Test(scheduler, rows_are_found_without_a_wake)
{
    start_scheduler();
    sleep_ms(200);
    struct submit_item item = { .spec = fixture_job("true", NULL) };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    struct claim c = claim_one("w1");
    claim_done(&c);
}

/* ---- claims ---- */

Test(scheduler, renewed_claim_stays_expired_claim_is_given_on)
{
    xadd(JOB);
    connect_here();
    turns(2);
    struct claim c = claim_one("w1");
    const char *ids[] = { c.stream_id, "1-1" };
    bool owned[2];
    for (int i = 0; i < 6; i++) {
        sleep_ms(10);
        OK(queue_claim_renew(&f.queue, "w1", ids, 2, owned, &err));
        cr_assert(owned[0] && !owned[1]);
    }
    OK(queue_claim_renew(&f.queue, "w2", ids, 1, owned, &err));
    cr_assert(!owned[0], "another's claim cannot be renewed");
    OK(scheduler_expire_claims(&s, &err));
    OK(queue_claim_renew(&f.queue, "w1", ids, 1, owned, &err));
    cr_assert(owned[0], "its lease is an hour");
    config.sched_lease_ms = 20;
    for (int i = 0; i < 4; i++) { /* a look counts for at most half a lease */
        sleep_ms(40);
        OK(scheduler_expire_claims(&s, &err));
        OK(queue_claim_renew(&f.queue, "w1", ids, 1, owned, &err));
        cr_assert(owned[0], "it is renewed between the looks");
    }
    OK(scheduler_expire_claims(&s, &err));
    sleep_ms(40);
    OK(scheduler_expire_claims(&s, &err));
    OK(queue_claim_renew(&f.queue, "w1", ids, 1, owned, &err));
    cr_assert(owned[0], "one look is not enough, however late it comes");
    for (int i = 0; i < 3; i++) {
        OK(scheduler_expire_claims(&s, &err));
        sleep_ms(40);
    }
    config.sched_lease_ms = 3600000;
    OK(queue_claim_renew(&f.queue, "w1", ids, 1, owned, &err));
    cr_assert(!owned[0]);
    commit(&c, "w1", false);
    sleep_ms(5);
    turns(2);
    struct claim again = claim_one("w2");
    cr_assert_str_eq(again.job_id, c.job_id);
    cr_assert_eq(again.attempt, 2);
    commit(&again, "w2", true);
    cr_assert_eq(fixture_number(
                     &f, "SELECT count(*) FROM attempts WHERE outcome = 'lost' AND worker = 'w1'"),
                 1);
    claim_done(&c);
    claim_done(&again);
}

Test(scheduler, attempts_exhausted_is_dead_with_the_reason)
{
    config.sched_lease_ms = 100;
    config.sched_infra_attempts_max = 2;
    xadd(JOB);
    start_scheduler();
    for (int attempt = 1; attempt <= 2; attempt++) {
        struct claim c = claim_one("w1");
        cr_assert_eq(c.attempt, attempt);
        claim_done(&c); /* and silence */
    }
    wait_number("SELECT count(*) FROM jobs WHERE state = 'dead' AND verdict = 'infra_error'", 1);
    char id[ID_TEXT_BYTES];
    fixture_value(&f, "SELECT id::text FROM jobs", id, sizeof id);
    struct result_row row;
    OK(store_job(&f.pg, id, &row, &err));
    cr_assert(strstr(row.result.reason, "w1"), "%s", row.result.reason);
    result_row_done(&row);
    char cursor[40] = "0";
    struct event e;
    cr_assert_eq(queue_event_next(&f.queue, cursor, WAIT_MS_MAX, &e, &err), 1);
    cr_assert_str_eq(e.type, "job.finished");
    cr_assert_str_eq(e.verdict, "infra_error");
}

/* ---- workers that are no more, a scheduler that is there ---- */

static int consumers(void)
{
    redisReply *r = redisCommand(f.queue.ctx, "XINFO CONSUMERS brood:ready workers");
    cr_assert(r && r->type == REDIS_REPLY_ARRAY);
    int n = (int)r->elements;
    freeReplyObject(r);
    return n;
}

static void take_one(const char *worker, bool ack)
{
    xadd(JOB);
    turns(2);
    struct claim c = claim_one(worker);
    const char *id = c.stream_id;
    if (ack) {
        OK(queue_claim_ack(&f.queue, &id, 1, &err));
    }
    claim_done(&c);
}

Test(scheduler, consumers_of_dead_workers_are_forgotten_but_not_their_claims)
{
    connect_here();
    take_one("dead", true);
    take_one("alive", true);
    take_one("holds", false);
    const struct worker_info w = { .name = "alive", .slots = 1, .pid = 1 };
    OK(queue_worker_beat(&f.queue, &w, 60000, &err));
    cr_assert_eq(consumers(), 3);
    cr_assert_eq(queue_consumers_tidy(&f.queue, 3600000, &err), 0, "asked a moment ago");
    sleep_ms(5);
    cr_assert_eq(queue_consumers_tidy(&f.queue, 1, &err), 1, "%s", err.text);
    cr_assert_eq(consumers(), 2);
    cr_assert_eq(redis_number("XLEN brood:ready"), 1);

    /* the claim of the one that held it is found as ever, and then it may go too */
    struct pending_claim held;
    struct expired_claim e;
    cr_assert_eq(queue_pending(&f.queue, NULL, &held, 1, &err), 1);
    cr_assert_eq(queue_take_over(&f.queue, &held, &e, &err), 1);
    cr_assert_eq(queue_take_over(&f.queue, &held, &e, &err), 0, "it does not stand so any more");
    cr_assert_str_eq(e.worker, "holds");
    sleep_ms(5);
    cr_assert_eq(queue_consumers_tidy(&f.queue, 1, &err), 1);
    cr_assert_eq(consumers(), 2, "alive, and the scheduler that holds what expired");

    /* a worker that was only silent goes on as before */
    const char *id = e.stream_id;
    OK(queue_claim_ack(&f.queue, &id, 1, &err));
    take_one("dead", false);
    cr_assert_eq(consumers(), 3);
    /* without the stream there is nothing to do */
    redisReply *r = redisCommand(f.queue.ctx, "DEL brood:ready");
    freeReplyObject(r);
    cr_assert_eq(queue_consumers_tidy(&f.queue, 1, &err), 0, "%s", err.text);
}

Test(scheduler, it_is_ready_when_both_servers_have_answered)
{
    char good[sizeof config.postgres_url];
    memcpy(good, config.postgres_url, sizeof good);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "host=/nowhere dbname=x");
    start_scheduler();
    sleep_ms(500);
    cr_assert_eq(queue_scheduler_alive(&f.queue, child, &err), 0, "without Postgres");
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);

    memcpy(config.postgres_url, good, sizeof good);
    start_scheduler();
    int alive = 0;
    for (int64_t end = mono_ms() + WAIT_MS_MAX; alive == 0 && mono_ms() < end; sleep_ms(10)) {
        alive = queue_scheduler_alive(&f.queue, child, &err);
    }
    cr_assert_eq(alive, 1, "%s", err.text);
    (void)kill(child, SIGTERM);
    (void)waitpid(child, NULL, 0);
    cr_assert_eq(queue_scheduler_alive(&f.queue, child, &err), 0);
    child = 0;
}

/* ---- losses ---- */

Test(scheduler, flushall_requeues_once)
{
    start_scheduler();
    for (int i = 0; i < 10; i++) {
        xadd(JOB);
    }
    wait_number("SELECT count(*) FROM jobs", 10);
    struct claim c = claim_one("w1");
    claim_done(&c);
    redisReply *r = redisCommand(f.queue.ctx, "FLUSHALL");
    freeReplyObject(r);
    char seen[10][ID_TEXT_BYTES];
    for (int i = 0; i < 10; i++) {
        struct claim again = claim_one("w2");
        for (int k = 0; k < i; k++) {
            cr_assert_str_neq(seen[k], again.job_id);
        }
        memcpy(seen[i], again.job_id, ID_TEXT_BYTES);
        commit(&again, "w2", true);
        const char *ids[] = { again.stream_id };
        OK(queue_claim_ack(&f.queue, ids, 1, &err));
        claim_done(&again);
    }
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'completed'"), 10);
    cr_assert_leq(fixture_number(&f, "SELECT max(attempt) FROM jobs"), 2);
    xadd(JOB); /* and work goes on */
    wait_number("SELECT count(*) FROM jobs", 11);
}

Test(scheduler, killed_again_and_again_loses_and_doubles_nothing)
{
    enum { N = 300 };
    for (int i = 0; i < N; i++) {
        char job[128];
        (void)snprintf(job, sizeof job, "{\"template\":\"python\",\"command\":\"echo %d\"}", i);
        xadd(job);
    }
    config.sched_intake_batch_max = 20;
    for (int round = 0; round < 8; round++) {
        start_scheduler();
        sleep_ms(10 + 7 * round);
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    start_scheduler();
    wait_number("SELECT count(*) FROM jobs", N);
    for (int64_t until = mono_ms() + WAIT_MS_MAX;
         redis_number("XLEN brood:intake") > 0 && mono_ms() < until;) {
        sleep_ms(20);
    }
    cr_assert_eq(redis_number("XLEN brood:intake"), 0);
    cr_assert_eq(fixture_number(&f, "SELECT count(DISTINCT spec) FROM jobs"), N);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), N);
}

/* Two of them: one works, the other takes its place. */
Test(scheduler, the_second_takes_over_when_the_leader_is_killed)
{
    pid_t first, second;
    start_scheduler();
    first = child;
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 1);
    start_scheduler();
    second = child;
    int alive = 0;
    for (int64_t end = mono_ms() + WAIT_MS_MAX; alive == 0 && mono_ms() < end; sleep_ms(10)) {
        alive = queue_scheduler_alive(&f.queue, second, &err);
    }
    cr_assert_eq(alive, 1, "one that waits says that it is there");
    (void)kill(second, SIGSTOP); /* it has no part in the work */
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 2);
    (void)kill(second, SIGCONT);
    (void)kill(first, SIGKILL);
    (void)waitpid(first, NULL, 0);
    int64_t killed_ms = mono_ms();
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 3);
    (void)fprintf(stderr, "taken over after %d ms\n", (int)(mono_ms() - killed_ms));

    /* A leader that stands still loses its session, and learns so when it goes on. */
    start_scheduler();
    (void)kill(second, SIGSTOP);
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 4);
    (void)kill(second, SIGCONT);
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 5);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                                    "granted AND database = (SELECT oid FROM pg_database WHERE "
                                    "datname = current_database())"),
                 1);
    (void)kill(second, SIGKILL);
    (void)waitpid(second, NULL, 0);
}

Test(scheduler, term_ends_it_with_0)
{
    start_scheduler();
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 1);
    (void)kill(child, SIGTERM);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    child = 0;
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Servers of the test's own, to be ended and started again. */
Test(scheduler, outages_of_both_servers)
{
    struct server redis = { .pid = 0 }, pg = { .pid = 0 };
    cr_assert_eq(redis_start(&redis), 0);
    cr_assert_eq(postgres_start(&pg), 0);
    (void)snprintf(config.redis_url, sizeof config.redis_url, "%s", redis.url);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "%s dbname=postgres", pg.url);
    fixture_close(&f);
    OK(pg_open(&f.pg, config.postgres_url, &err));
    OK(queue_open(&f.queue, config.redis_url, &err));
    (void)snprintf(f.pg_url, sizeof f.pg_url, "%s", config.postgres_url);
    start_scheduler(); /* before there is a schema: waits for it */
    sleep_ms(100);
    OK(pg_migrate(&f.pg, &err));
    const struct template_info t = {
        .name = "python", .digest = "d", .memory_mib = 512, .vcpus = 1
    };
    OK(store_template_put(&f.pg, &t, &err));
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 1);

    server_end(&pg, SIGQUIT);
    xadd(JOB);
    sleep_ms(300);
    cr_assert_eq(postgres_start(&pg), 0);
    wait_number("SELECT count(*) FROM jobs", 2);

    server_end(&redis, SIGTERM);
    sleep_ms(300);
    cr_assert_eq(queue_ping(&f.queue, &err), -ERR_UNAVAILABLE);
    cr_assert(strstr(err.text, redis.dir) && strstr(err.text, "brood up"), "%s", err.text);
    cr_assert_eq(redis_start(&redis), 0);
    xadd(JOB);
    wait_number("SELECT count(*) FROM jobs", 3);
    (void)kill(child, SIGTERM);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    child = 0;
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    server_remove(&redis);
    server_remove(&pg);
}
