/* Time that a session was not there: what counts as one, and that a run is not ended for it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/support/fake_guest.h"
#include "worker/absence.h"
#include "worker/session.h"

#define MS 1000

static int64_t now;

/* In poll, which was to end after due, and does after back. */
static void waits(struct absence *a, int64_t due, int64_t back)
{
    absence_waits(a, now);
    absence_back(a, due == INT64_MAX ? due : now + due, now + back);
    now += back;
}

Test(absence, what_counts)
{
    struct absence a;
    now = 5000 * MS;
    absence_begin(&a);
    waits(&a, INT64_MAX, 60000 * MS);
    cr_expect_eq(a.total_us, 0, "nothing happened for a minute");
    now += 249 * MS;
    waits(&a, 10 * MS, 100 * MS);
    cr_expect_eq(a.total_us, 0, "a busy host");
    now += 250 * MS;
    waits(&a, 10 * MS, 10 * MS);
    cr_expect_eq(a.total_us, 250 * MS + ABSENCE_AFTER_US, "something else was done for so long");
    waits(&a, 10 * MS, 1010 * MS);
    cr_expect_eq(a.total_us, 1250 * MS + 2 * ABSENCE_AFTER_US, "woken a second late");
    waits(&a, -900 * MS, 1 * MS);
    cr_expect_eq(a.total_us, 1250 * MS + 2 * ABSENCE_AFTER_US, "due long ago, and back at once");
    absence_begin(&a);
    now += 9000 * MS;
    waits(&a, 10 * MS, 10 * MS);
    cr_expect_eq(a.total_us, 0, "before the beginning is nothing");
}

static int64_t away_ms;

static void on_signal(int sig)
{
    (void)sig;
    sleep_ms(away_ms);
}

struct interruption {
    pthread_t whom;
    int after_ms;
};

static void *interrupt(void *arg)
{
    struct interruption *i = arg;
    sleep_ms(i->after_ms);
    (void)pthread_kill(i->whom, SIGUSR1);
    return NULL;
}

/* One run with a second's wall limit, whose session is not there for away milliseconds from its
 * 300th on. */
static void run(const char *json, int away, struct job_result *r)
{
    static const struct session_times patient = {
        .ready_ms = 15000, .start_ms = 15000, .kill_grace_ms = 200, .output_grace_ms = 100
    };
    struct sigaction act = { .sa_handler = on_signal };
    struct interruption i = { .whom = pthread_self(), .after_ms = 300 };
    struct session session;
    struct run_result before;
    struct run_facts setup, facts;
    struct job_spec *spec;
    struct err err;
    pthread_t thread;
    log_init("test", LOG_ERROR, 2);
    away_ms = away;
    cr_assert_eq(sigaction(SIGUSR1, &act, NULL), 0);
    cr_assert_eq(job_parse(json, strlen(json), &spec, &err), 0, "%s", err.text);
    session_init(&session);
    job_result_init(r);
    struct fake_guest *g = fake_guest_start(guest_script_shell, NULL);
    struct session_job job = { .channel_fd = g->host_fd,
                               .cpu_fd = g->cpu_fd,
                               .abort_fd = -1,
                               .vcpus = 1,
                               .spec = spec,
                               .lease_start_us = mono_us(),
                               .times = &patient };
    cr_assert_eq(pthread_create(&thread, NULL, interrupt, &i), 0);
    cr_assert_eq(session_run(&session, &job, r, &before, &setup, &facts, &err), 0, "%s", err.text);
    judge(spec, &setup, &facts, r);
    (void)pthread_join(thread, NULL);
    fake_guest_join(g);
    session_done(&session);
    job_spec_free(spec);
}

#define JOB(ms)                                                                                    \
    "{\"template\":\"t\",\"command\":[\"sleep\",\"" #ms "\"],\"limits\":{\"wall_ms\":1000}}"

/* It ends while nobody looks, long before its limit; what is seen of it is later. */
Test(absence, a_run_that_ended_in_time_did, .timeout = 30)
{
    struct job_result r;
    run(JOB(600), 1500, &r);
    cr_expect_eq(r.verdict, VERDICT_ACCEPTED, "%s", r.reason);
    cr_expect_geq(r.run.host_wait_us, 500 * MS);
    job_result_done(&r);
}

Test(absence, a_run_without_end_is_ended_all_the_same, .timeout = 30)
{
    struct job_result r;
    run(JOB(60000), 1500, &r);
    cr_expect_eq(r.verdict, VERDICT_WALL_TIME_LIMIT, "%s", r.reason);
    cr_expect_lt(r.run.wall_us, 20000 * MS);
    job_result_done(&r);
}
