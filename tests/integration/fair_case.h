/* What the tests of shares and of ends by the clock share: a scheduler whose turns the test takes,
 * jobs, a worker that the test plays. Included once by each program. */
#pragma once
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/cancel.h"
#include "common/store/ledger_check.h"
#include "common/store/tenants.h"
#include "scheduler/scheduler.h"
#include "tests/support/fixture.h"

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define WAIT_MS 30000
#define JOB_OF(more) "{\"template\":\"python\",\"command\":[\"true\"]" more "}"

static struct fixture f;
static struct err err;
static struct config config;
static struct scheduler s;

static void set_up(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    fixture_open(&f);
    log_init("test", LOG_ERROR, STDERR_FILENO);
    OK(config_load(&config, "/tmp/brood-test-nowhere", NULL, &err));
    (void)snprintf(config.redis_url, sizeof config.redis_url, "%s", f.redis_url);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "%s", f.pg_url);
    config.sched_lease_ms = 3600000;
    scheduler_init(&s, &config);
    OK(scheduler_connect(&s, &err));
}

static void tear_down(void)
{
    scheduler_done(&s);
    fixture_close(&f);
}

static inline void turns(int n)
{
    for (int i = 0; i < n; i++) {
        OK(scheduler_turn(&s, 1, &err));
    }
}

static inline void submit_to(const char *tenant, const char *json, int n, struct id *ret_first)
{
    struct job_spec *spec;
    struct submit_item items[200];
    cr_assert_leq(n, 200);
    OK(job_parse(json, strlen(json), &spec, &err));
    for (int i = 0; i < n; i++) {
        items[i] = (struct submit_item){ .spec = spec };
    }
    OK(store_submit(&f.pg, tenant, NULL, NULL, 0, items, n, true, &err));
    OK(queue_wake(&f.queue, &err));
    if (ret_first) {
        *ret_first = items[0].ret_id;
    }
    job_spec_free(spec);
}

static inline void sql(const char *text)
{
    PGresult *res = PQexec(f.pg.conn, text);
    cr_assert_eq(PQresultStatus(res), PGRES_COMMAND_OK, "%s: %s", text, PQerrorMessage(f.pg.conn));
    PQclear(res);
}

static inline void counts_are_right(void)
{
    cr_assert_eq(store_recount(&f.pg, &err), 0, "a statement forgot the count of waiting jobs");
}

static inline void commit_verdict(enum verdict v, bool want_again)
{
    struct claim c;
    cr_assert_eq(queue_claim(&f.queue, "w", WAIT_MS, &c, &err), 1, "%s", err.text);
    struct job_result r;
    job_result_init(&r);
    r.verdict = v;
    r.vcpus = 1;
    r.memory_mib = 256;
    r.leased_wall_ms = wall_ms() - 30;
    r.ended_wall_ms = r.leased_wall_ms + 30;
    r.measured_ms = 30;
    struct commit_item item = { .job_id = c.job_id,
                                .tenant = c.tenant,
                                .template_name = "python",
                                .worker = "w",
                                .attempt = c.attempt,
                                .result = &r,
                                .billed = job_result_billed(&r) };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(item.ret_won);
    cr_assert_eq(item.ret_again, want_again);
    OK(store_commit(&f.pg, &item, 1, &err)); /* its answer was lost: sent again */
    cr_assert(item.ret_won);
    cr_assert_eq(item.ret_again, want_again, "so that no end is told of");
    const char *ids[] = { c.stream_id };
    OK(queue_claim_ack(&f.queue, ids, 1, &err));
    OK(queue_wake(&f.queue, &err));
    job_result_done(&r);
    claim_done(&c);
}

static void on_finding(void *ctx, const struct ledger_finding *finding)
{
    (void)ctx;
    cr_assert(false, "%s %s: %s", finding->what, finding->line, finding->text);
}

static inline void ledger_agrees(void)
{
    struct ledger_check c;
    OK(store_ledger_check(&f.pg, on_finding, NULL, &c, &err));
    free(c.heads);
}
