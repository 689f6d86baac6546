/* Shares, caps, priorities, times: the scheduler against a real Redis and a real Postgres, the
 * workers played by the test. */
#include <time.h>

#include "common/store/budgets.h"
#include "tests/integration/fair_case.h"

FIXTURE_MAIN

TestSuite(fair, .init = set_up, .fini = tear_down, .timeout = 180);

/* n jobs that wait, written by SQL: a hundred thousand in a second. */
static void flood(const char *tenant, int n)
{
    char sql[700];
    (void)snprintf(
        sql, sizeof sql,
        "WITH a AS (INSERT INTO jobs (id, tenant, template, spec, spec_hash) SELECT "
        "gen_random_uuid(), '%s', 'python', '{\"command\":[\"true\"],\"template\":"
        "\"python\"}', '' FROM generate_series(1, %d) RETURNING tenant, priority),"
        " c AS (INSERT INTO queue_counts SELECT tenant, priority, count(*) FROM a GROUP BY "
        "1, 2) SELECT count(*) FROM a",
        tenant, n);
    cr_assert_eq(fixture_number(&f, sql), n);
    OK(queue_wake(&f.queue, &err));
}

/* Takes what is ready and ends it, each job after slot_us by its worker's notice. Returns the
 * tenant of the claim, "" when nothing is ready. */
static const char *work(int64_t slot_us, char job[ID_TEXT_BYTES])
{
    static char tenant[JOB_TENANT_MAX + 1];
    struct claim c;
    int rc = queue_claim(&f.queue, "w", 0, &c, &err);
    OK(rc);
    if (rc == 0) {
        return "";
    }
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    struct commit_item item = { .job_id = c.job_id,
                                .tenant = c.tenant,
                                .template_name = "python",
                                .worker = "w",
                                .attempt = c.attempt,
                                .result = &r };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(item.ret_won);
    job_result_done(&r);
    const char *ids[] = { c.stream_id };
    OK(queue_claim_ack(&f.queue, ids, 1, &err));
    struct intake_note note = { .priority = PRIORITY_NORMAL, .jobs = 1, .slot_us = slot_us };
    memcpy(note.tenant, c.tenant, sizeof note.tenant);
    OK(queue_done_add(&f.queue, &note, 1, &err));
    memcpy(tenant, c.tenant, sizeof tenant);
    if (job) {
        memcpy(job, c.job_id, ID_TEXT_BYTES);
    }
    claim_done(&c);
    return tenant;
}

Test(fair, b131_who_fills_the_queue_meets_its_own_cap_and_others_are_served)
{
    struct tenant_row caps = { .name = "a",
                               .weight = TENANT_UNSET,
                               .in_flight_max = TENANT_UNSET,
                               .queued_max = 100,
                               .submit_per_minute_max = TENANT_UNSET };
    OK(store_tenant_set(&f.pg, &caps, &err));
    for (int i = 0; i < 150; i++) {
        OK(queue_intake_add(&f.queue, JOB_OF(""), strlen(JOB_OF("")), "a", NULL, 0, &err));
    }
    OK(queue_intake_add(&f.queue, JOB_OF(""), strlen(JOB_OF("")), "b", NULL, 0, &err));
    turns(3);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE tenant = 'a'"), 100,
                 "what was refused leaves no row");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE tenant = 'b'"), 1);
    redisReply *r = redisCommand(f.queue.ctx, "XRANGE brood:rejected - +");
    cr_assert(r && r->type == REDIS_REPLY_ARRAY && r->elements == 50, "50 are refused");
    freeReplyObject(r);
    r = redisCommand(f.queue.ctx, "XREVRANGE brood:events + - COUNT 1");
    bool limit = false, when = false;
    const redisReply *fields = r->element[0]->element[1];
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const char *name = fields->element[i]->str, *value = fields->element[i + 1]->str;
        limit = limit || (strcmp(name, "code") == 0 && strcmp(value, "limit") == 0);
        when = when || (strcmp(name, "retry_after_ms") == 0 && strtol(value, NULL, 10) >= 1000);
    }
    freeReplyObject(r);
    cr_assert(limit && when, "the event says that it is a cap and when to come back");
    int until_b = 0;
    for (; until_b < 20 && strcmp(work(100000, NULL), "b") != 0; until_b++) {
        turns(2);
    }
    cr_assert_leq(until_b, 4, "b had to wait for %d jobs of a", until_b);
    counts_are_right();
}

Test(fair, a_flood_of_100000_rows_leaves_a_newcomer_the_next_place)
{
    flood("a", 100000);
    OK(scheduler_connect(&s, &err)); /* it had said nothing for long: its session was ended */
    turns(2);
    for (int i = 0; i < 10; i++) {
        cr_assert_str_eq(work(200000, NULL), "a");
        turns(2);
    }
    submit_to("b", JOB_OF(""), 1, NULL);
    turns(2);
    int until_b = 0;
    for (; until_b < 20 && strcmp(work(200000, NULL), "b") != 0; until_b++) {
        turns(2);
    }
    /* No worker says it is alive: two slots, so at most three jobs are ready. */
    cr_assert_leq(until_b, PICK_SLOTS_WHEN_NONE + 1, "%d jobs of a came before", until_b);
    counts_are_right();
}

Test(fair, weights_divide_slot_time_whatever_the_jobs_take)
{
    struct tenant_row w = { .name = "heavy",
                            .weight = 3,
                            .in_flight_max = TENANT_UNSET,
                            .queued_max = TENANT_UNSET,
                            .submit_per_minute_max = TENANT_UNSET };
    OK(store_tenant_set(&f.pg, &w, &err));
    flood("heavy", 2000);
    flood("light", 2000);
    turns(2);
    int64_t us[2] = { 0 };
    for (int i = 0; i < 600; i++) {
        struct claim peek;
        int rc = queue_claim(&f.queue, "w", 0, &peek, &err);
        OK(rc);
        if (rc == 1) { /* back under the same name: read by the group's pending list below */
            bool heavy = strcmp(peek.tenant, "heavy") == 0;
            int64_t took = heavy ? 300000 : 50000;
            us[heavy] += i >= 100 ? took : 0;
            const char *ids[] = { peek.stream_id };
            OK(queue_claim_ack(&f.queue, ids, 1, &err));
            struct intake_note note = { .priority = PRIORITY_NORMAL, .jobs = 1, .slot_us = took };
            memcpy(note.tenant, peek.tenant, sizeof note.tenant);
            OK(queue_done_add(&f.queue, &note, 1, &err));
            claim_done(&peek);
        }
        turns(1);
    }
    double share = (double)us[1] / (double)(us[0] + us[1]);
    cr_assert_float_eq(share, 0.75, 0.05 * 0.75, "heavy has %.3f of the slot time", share);
}

Test(fair, high_comes_first_and_bulk_last_but_comes)
{
    submit_to("a", JOB_OF(",\"priority\":\"bulk\""), 30, NULL);
    submit_to("a", JOB_OF(""), 30, NULL);
    submit_to("a", JOB_OF(",\"priority\":\"high\""), 30, NULL);
    turns(2);
    char job[ID_TEXT_BYTES], sql[128];
    int high = 0, bulk = 0;
    for (int i = 0; i < 21; i++) {
        cr_assert_str_eq(work(100000, job), "a");
        (void)snprintf(sql, sizeof sql, "SELECT priority FROM jobs WHERE id = '%s'", job);
        long p = fixture_number(&f, sql);
        high += p == PRIORITY_HIGH;
        bulk += p == PRIORITY_BULK;
        turns(2);
    }
    cr_assert(high >= 13 && high <= 18, "%d of 21 were high", high);
    cr_assert(bulk >= 1 && bulk <= 2, "%d of 21 were bulk", bulk);
    counts_are_right();
}

static void time_text(int64_t at_ms, char out[40])
{
    time_t t = (time_t)(at_ms / 1000);
    struct tm tm;
    (void)gmtime_r(&t, &tm);
    size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, 40 - n, ".%03dZ", (int)(at_ms % 1000));
}

/* B101 of the field cases: a job that waits for its time is held by nobody meanwhile, and runs
 * once. */
Test(fair, b101_a_job_runs_once_and_not_before_its_time)
{
    char at[40], json[200];
    time_text(wall_ms() + 3600000, at);
    (void)snprintf(json, sizeof json, JOB_OF(",\"not_before\":\"%s\""), at);
    submit_to("a", json, 20, NULL);
    turns(3);
    cr_assert_str_eq(work(1000, NULL), "", "nothing is due");
    /* The hour is over, so to speak: no test can wait for it. */
    sql("UPDATE jobs SET not_before = clock_timestamp() + interval '300 ms'");
    s.due_at_ms = mono_ms();
    int done = 0;
    for (int64_t end = mono_ms() + WAIT_MS; done < 20 && mono_ms() < end;) {
        turns(1);
        done += *work(1000, NULL) != 0;
    }
    cr_assert_eq(done, 20);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE scheduled_at < not_before"), 0,
                 "started before its time");
    cr_assert_eq(
        fixture_number(&f, "SELECT count(*) FROM jobs WHERE attempt = 1 AND state = 'completed'"),
        20);
    counts_are_right();
}

Test(fair, a_deadline_that_passes_expires_what_waits_and_nothing_else)
{
    char at[40], json[200];
    time_text(wall_ms() + 3600000, at);
    (void)snprintf(json, sizeof json, JOB_OF(",\"deadline\":\"%s\""), at);
    struct tenant_row cap = { .name = "a",
                              .weight = TENANT_UNSET,
                              .in_flight_max = 1,
                              .queued_max = TENANT_UNSET,
                              .submit_per_minute_max = TENANT_UNSET };
    OK(store_tenant_set(&f.pg, &cap, &err));
    s.terms_at_ms = 0;
    submit_to("a", json, 3, NULL);
    turns(2);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'scheduled'"), 1,
                 "one in flight is the cap");
    sql("UPDATE jobs SET deadline = clock_timestamp()");
    for (int64_t end = mono_ms() + WAIT_MS;
         mono_ms() < end &&
         fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'expired'") < 2;) {
        turns(1);
        sleep_ms(20);
    }
    cr_assert_eq(
        fixture_number(&f, "SELECT count(*) FROM jobs j JOIN results r ON r.job_id = j.id WHERE "
                           "state = 'expired' AND j.verdict = 'skipped' AND r.verdict = "
                           "'skipped'"),
        2);
    cr_assert_str_eq(work(1000, NULL), "a", "what was dispatched in time runs");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records"), 0);
    counts_are_right();
}

Test(fair, a_stopped_tenant_is_refused_and_not_served_until_it_is_let_go)
{
    submit_to("a", JOB_OF(""), 5, NULL);
    OK(store_tenant_stop(&f.pg, "a", "spending limit of November", -1, &err));
    s.terms_at_ms = 0;
    turns(3);
    cr_assert_str_eq(work(1000, NULL), "");
    struct job_spec *spec;
    OK(job_parse(JOB_OF(""), strlen(JOB_OF("")), &spec, &err));
    struct submit_item item = { .spec = spec };
    cr_assert_eq(store_submit(&f.pg, "a", NULL, NULL, 0, &item, 1, true, &err), -ERR_LIMIT);
    cr_assert(strstr(err.text, "spending limit of November"), "%s", err.text);
    job_spec_free(spec);
    OK(store_tenant_stop(&f.pg, "a", NULL, -1, &err));
    s.terms_at_ms = 0;
    s.announced = true;
    turns(2);
    cr_assert_str_eq(work(1000, NULL), "a");
}

/* What was spent is compared by the keeper; here the test is the keeper. */
Test(fair, a_budget_that_is_spent_stops_new_work_and_when_asked_what_runs)
{
    struct budget b = {
        .tenant = "a", .period = BUDGET_DAY, .warn_percent = 80, .cancel_running = false
    };
    struct claim c;
    struct id id;
    submit_to("a", JOB_OF(""), 1, &id);
    turns(2);
    cr_assert_eq(queue_claim(&f.queue, "w", WAIT_MS, &c, &err), 1, "%s", err.text);
    submit_to("a", JOB_OF(""), 1, NULL);
    OK(store_budget_put(&f.pg, &b, &err));
    cr_assert_eq(store_budgets_look(&f.pg, &err), 2, "of nothing all is spent: %s", err.text);
    s.terms_at_ms = s.ends_at_ms = 0;
    turns(2);
    cr_assert_str_eq(work(1000, NULL), "", "what waits goes on waiting");
    struct job_spec *spec;
    OK(job_parse(JOB_OF(""), strlen(JOB_OF("")), &spec, &err));
    struct submit_item item = { .spec = spec };
    cr_assert_eq(store_submit(&f.pg, "a", NULL, NULL, 0, &item, 1, true, &err), -ERR_LIMIT);
    cr_assert(strstr(err.text, "budget"), "%s", err.text);
    cr_assert(err.retry_after_ms > 0 && err.retry_after_ms <= DAY_MS, "%ld", err.retry_after_ms);
    cr_assert_eq(store_submit(&f.pg, "b", NULL, NULL, 0, &item, 1, true, &err), 0, "%s", err.text);
    job_spec_free(spec);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE cancel_at IS NOT NULL"), 0,
                 "what runs goes on when nobody asked for more");
    b.cancel_running = true;
    OK(store_budget_put(&f.pg, &b, &err));
    char cursor[QUEUE_STREAM_ID_MAX] = "0", told[ID_TEXT_BYTES];
    s.ends_at_ms = 0;
    turns(2);
    cr_assert_eq(queue_cancel_next(&f.queue, cursor, WAIT_MS, told, &err), 1, "%s", err.text);
    cr_assert_str_eq(told, id.text);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE cancel_at IS NOT NULL"), 1);
    b.limit_nanousd = 1000000000;
    OK(store_budget_put(&f.pg, &b, &err));
    cr_assert_eq(store_budgets_look(&f.pg, &err), 1, "there is room again");
    s.terms_at_ms = 0;
    s.announced = true;
    turns(2);
    cr_assert_str_neq(work(1000, NULL), "", "and work goes on");
    counts_are_right();
    claim_done(&c);
}

static void sixty_a_minute(void)
{
    struct tenant_row rate = { .name = "a",
                               .weight = TENANT_UNSET,
                               .in_flight_max = TENANT_UNSET,
                               .queued_max = TENANT_UNSET,
                               .submit_per_minute_max = 60 };
    OK(store_tenant_set(&f.pg, &rate, &err));
}

Test(fair, a_rate_is_kept_and_says_when_there_is_room)
{
    sixty_a_minute();
    struct job_spec *spec;
    OK(job_parse(JOB_OF(""), strlen(JOB_OF("")), &spec, &err));
    struct submit_item items[60];
    for (int i = 0; i < 60; i++) {
        items[i] = (struct submit_item){ .spec = spec };
    }
    OK(store_submit(&f.pg, "a", NULL, NULL, 0, items, 60, true, &err));
    cr_assert_eq(store_submit(&f.pg, "a", NULL, NULL, 0, items, 60, true, &err), -ERR_LIMIT);
    cr_assert(err.retry_after_ms >= 1000 && err.retry_after_ms <= 60000, "%ld ms",
              err.retry_after_ms);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 60);
    job_spec_free(spec);
}

/* Postgres' clock went back by an hour while a job ran: it is as if it had just begun. */
Test(fair, a_running_job_that_was_scheduled_in_the_future_is_no_reason_to_end)
{
    struct claim c;
    submit_to("a", JOB_OF(""), 2, NULL);
    turns(2);
    cr_assert_eq(queue_claim(&f.queue, "w", 0, &c, &err), 1, "%s", err.text);
    OK(store_mark_running(&f.pg, c.job_id, c.attempt, &err));
    sql("UPDATE jobs SET scheduled_at = clock_timestamp() + interval '1 hour' WHERE state ="
        " 'running'");
    s.recount_at_ms = s.counts_at_ms = 0;
    turns(2);
    struct pick_view v;
    int i = pick_tenant(s.pick, "a");
    cr_assert(pick_look(s.pick, i, &v));
    cr_assert_eq(v.in_flight, 2);
    counts_are_right();
    claim_done(&c);
}

/* Of a transaction that was open while the clock went back by an hour: its job is of the old time,
 * and is seen only after the leader has repaired what it saw. */
Test(fair, a_job_that_was_being_submitted_when_the_clock_went_back_does_not_wait_for_its_old_time)
{
    turns(2);
    cr_assert(s.clock_known);
    s.clock_ahead_ms += 3600000;
    s.beat_at_ms = 0;
    turns(1);
    cr_assert_gt(s.clock_looks, 0, "the step is seen");
    submit_to("a", JOB_OF(""), 1, NULL);
    sql("UPDATE jobs SET state = 'queued', not_before = clock_timestamp() + interval '1 hour',"
        " submitted_at = clock_timestamp() + interval '1 hour'");
    s.clock_look_at_ms = s.beat_at_ms = 0;
    const char *who = "";
    for (int64_t end = mono_ms() + WAIT_MS; !*who && mono_ms() < end;) {
        turns(1);
        who = work(1000, NULL);
    }
    cr_assert_str_eq(who, "a");
    cr_assert_eq(s.clock_looks, SCHED_CLOCK_LOOKS - 1);
    cr_assert_gt(s.clock_look_at_ms, mono_ms() + 20000, "and once more");
}

/* The clock goes back by an hour, by what is written in rows: they have times of an hour later. */
static void step_back(const char *rows)
{
    turns(2);
    cr_assert(s.clock_known);
    sql(rows);
    s.clock_ahead_ms += 3600000;
    s.beat_at_ms = 0;
    turns(1);
}

#define OWED "SELECT ceil(extract(epoch from tat - clock_timestamp())) FROM submit_rates"

Test(fair, a_rate_is_kept_and_refuses_no_longer_when_the_clock_goes_back)
{
    sixty_a_minute();
    submit_to("a", JOB_OF(""), 60, NULL); /* owes a minute */
    step_back("UPDATE submit_rates SET tat = tat + interval '1 hour'");
    long owed = fixture_number(&f, OWED);
    cr_assert(owed > -3600 && owed <= 61, "%ld s", owed);
    s.clock_look_at_ms = s.beat_at_ms = 0;
    sql("UPDATE submit_rates SET tat = clock_timestamp() + interval '1 minute'");
    turns(1);
    cr_assert_geq(fixture_number(&f, OWED), 1, "the later looks forgive nothing");
    sql("UPDATE submit_rates SET tat = clock_timestamp() + interval '10 days'");
    s.clock_known = false; /* it went back while nobody led: more than one submission owes */
    s.beat_at_ms = 0;
    turns(1);
    cr_assert_leq(fixture_number(&f, OWED), SUBMIT_MAX);
}

Test(fair, a_cancel_that_was_missed_is_told_again_when_the_clock_went_back)
{
    struct cancelled gone;
    struct id id;
    char cursor[QUEUE_STREAM_ID_MAX] = "0", told[ID_TEXT_BYTES];
    struct claim c;
    submit_to("a", JOB_OF(""), 1, &id);
    turns(2);
    cr_assert_eq(queue_claim(&f.queue, "w", 0, &c, &err), 1, "%s", err.text);
    cr_assert_eq(store_cancel(&f.pg, NULL, id.text, 1, &gone, &err), 1, "%s", err.text);
    step_back("UPDATE jobs SET cancel_at = cancel_at + interval '1 hour'");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE cancel_at > now()"), 0);
    int heard = 0;
    for (int64_t end = mono_ms() + WAIT_MS; heard == 0 && mono_ms() < end;) {
        turns(1);
        heard = queue_cancel_next(&f.queue, cursor, 10, told, &err);
        OK(heard);
    }
    cr_assert_str_eq(told, id.text);
    claim_done(&c);
}

/* A leader that is stopped while it waits for entries is given one by Redis, and does not lead any
 * more when it goes on. */
Test(fair, an_entry_that_a_former_leader_was_given_is_taken)
{
    turns(3);
    cr_assert(!s.recover);
    redisReply *r = redisCommand(f.queue.ctx, "XADD brood:intake * tenant a job %s", JOB_OF(""));
    freeReplyObject(r);
    r = redisCommand(f.queue.ctx, "XREADGROUP GROUP scheduler scheduler STREAMS brood:intake >");
    cr_assert(r && r->type == REDIS_REPLY_ARRAY);
    freeReplyObject(r);
    turns(2);
    s.recover_at_ms = 0;
    turns(3);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 1);
}

/* The same job sent again is found, not refused, although the queue is full. */
Test(fair, a_repeated_key_is_answered_when_the_queue_is_full)
{
    struct id first, again;
    submit_to("a", JOB_OF(",\"idempotency_key\":\"k\""), 1, &first);
    struct tenant_row cap = { .name = "a",
                              .weight = TENANT_UNSET,
                              .in_flight_max = TENANT_UNSET,
                              .queued_max = 1,
                              .submit_per_minute_max = TENANT_UNSET };
    OK(store_tenant_set(&f.pg, &cap, &err));
    submit_to("a", JOB_OF(",\"idempotency_key\":\"k\""), 1, &again);
    cr_assert_str_eq(first.text, again.text);
    counts_are_right();
}

/* B134 of the field cases: taking back works in every state, twice, and the cap's room is back. */
Test(fair, b134_cancel_in_every_state_and_twice)
{
    struct id id[4];
    struct cancelled gone[4];
    struct id ended[1];
    struct claim c;
    submit_to("a", JOB_OF(""), 1, &id[0]); /* claimed, later running */
    turns(2);
    cr_assert_eq(queue_claim(&f.queue, "w", 0, &c, &err), 1, "%s", err.text);
    OK(store_mark_running(&f.pg, c.job_id, c.attempt, &err));
    submit_to("a", JOB_OF(""), 1, &id[1]); /* on the ready stream */
    turns(2);
    submit_to("a", JOB_OF(",\"not_before\":\"2999-01-01T00:00:00Z\""), 1, &id[2]); /* queued */
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(store_cancel(&f.pg, NULL, id[i].text, 4, gone, &err), 1, "job %d", i);
        cr_assert_eq(gone[0].ended, i == 2, "job %d", i);
        if (!gone[0].ended) {
            cr_assert_eq(cancel_tell(&f.pg, &f.queue, &gone[0].id, 1, &err), i == 1, "%s",
                         err.text);
        }
        cr_assert_eq(store_cancel(&f.pg, NULL, id[i].text, 4, gone, &err), 0,
                     "twice: nothing more");
    }
    /* The worker of the first is lost: it waits again, and ends instead of running anew. */
    struct retry_policy policy = retry_policy_of(&config);
    OK(store_attempt_failed(&f.pg, c.job_id, c.attempt, "w", RETRY_WORKER_LOST, "lost", &policy,
                            NULL, &err));
    cr_assert_eq(store_cancel_marked(&f.pg, NULL, 0, 1, ended, &err), 1, "%s", err.text);
    cr_assert_eq(fixture_number(&f,
                                "SELECT count(*) FROM jobs WHERE state = 'cancelled' AND verdict = "
                                "'cancelled'"),
                 3);
    counts_are_right();
    claim_done(&c);
}

/* A flaky test of the user's: each try is billed and visible, and apart from faults of ours. */
Test(fair, retries_on_request_go_on_until_accepted_or_used_up)
{
    struct id flaky, bad;
    submit_to("a", JOB_OF(",\"retries\":2"), 1, &flaky);
    turns(2);
    commit_verdict(VERDICT_RUNTIME_ERROR, true);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM results"), 0, "it has not ended");
    ledger_agrees();
    turns(2);
    commit_verdict(VERDICT_ACCEPTED, false);
    struct result_row row;
    OK(store_job(&f.pg, flaky.text, &row, &err));
    cr_assert_eq(row.result.verdict, VERDICT_ACCEPTED);
    cr_assert_eq(row.attempt, 2);
    cr_assert_eq(row.charged_ms, 2000, "both tries are billed");
    cr_assert(row.tries && strstr(row.tries, "runtime_error"), "%s",
              row.tries ? row.tries : "none");
    result_row_done(&row);
    submit_to("a", JOB_OF(",\"retries\":1"), 1, &bad);
    turns(2);
    commit_verdict(VERDICT_WRONG_ANSWER, true);
    turns(2);
    commit_verdict(VERDICT_WRONG_ANSWER, false);
    submit_to("a", JOB_OF(",\"retries\":1"), 1, NULL);
    turns(2);
    commit_verdict(VERDICT_JUDGE_ERROR, false); /* the submitter's harness: not the program's */
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM attempts WHERE outcome = 'retried'"), 2);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'completed'"), 3);
    ledger_agrees();
    counts_are_right();
}

/* The database's own table of states is that of common/model/job_step.def: every pair is tried. */
Test(fair, the_database_takes_the_steps_of_the_table_and_no_others)
{
    bool may[STATE_COUNT][STATE_COUNT] = { { false } };
#define JOB_STEP(from, event, to) may[STATE_##from][STATE_##to] = true;
#include "common/model/job_step.def"
    struct id id;
    submit_to("a", JOB_OF(""), 1, &id);
    for (int from = 0; from < STATE_COUNT; from++) {
        for (int to = 0; to < STATE_COUNT; to++) {
            char sql[700];
            const char *a = job_state_word((enum job_state)from),
                       *b = job_state_word((enum job_state)to);
            (void)snprintf(
                sql, sizeof sql,
                "BEGIN; ALTER TABLE jobs DISABLE TRIGGER jobs_step; UPDATE jobs SET state = "
                "'%s', verdict = %s; ALTER TABLE jobs ENABLE TRIGGER jobs_step; UPDATE jobs SET "
                "state = '%s', verdict = %s; ROLLBACK",
                a, job_state_terminal((enum job_state)from) ? "'skipped'" : "NULL", b,
                job_state_terminal((enum job_state)to) ? "'skipped'" : "NULL");
            PGresult *r = PQexec(f.pg.conn, sql);
            bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
            const char *code = PQresultErrorField(r, PG_DIAG_SQLSTATE);
            cr_assert(ok || (code && strcmp(code, "23001") == 0), "%s", PQresultErrorMessage(r));
            PQclear(r);
            if (!ok) {
                PQclear(PQexec(f.pg.conn, "ROLLBACK"));
            }
            cr_assert_eq(ok, from == to || may[from][to], "%s -> %s", a, b);
        }
    }
}
