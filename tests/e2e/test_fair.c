/* Everyone served, with real machines: a flood of sleepers, a newcomer, and taking the flood back.
 * What is asserted is order and money, not speed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

#define FLOOD 300
#define FLOOD_MS 120000

static void xadd(const char *tenant, const char *job)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_REDIS(&r, "XADD", "brood:intake", "*", "job", job, "tenant", tenant);
    cr_assert_eq(r.exit_code, 0, "redis-cli: %s%s", r.out.data, r.err.data);
}

Test(fair, b131_a_newcomer_passes_a_flood_and_the_flood_is_taken_back_and_billed)
{
    json_t *jobs = json_array();
    for (int i = 0; i < FLOOD; i++) {
        (void)json_array_append_new(jobs, e2e_shell("sleep 1.5"));
    }
    char *batch = e2e_submit(jobs);
    json_decref(jobs);
    cr_assert(
        e2e_sql_becomes(1, FLOOD_MS,
                        "SELECT (count(*) > 3)::int FROM jobs WHERE batch_id = '%s' AND state = "
                        "'completed'",
                        batch),
        "the flood does not run");
    xadd("newcomer", "{\"template\":\"python\",\"command\":[\"true\"]}");
    cr_assert(e2e_sql_becomes(1, FLOOD_MS,
                              "SELECT count(*) FROM jobs WHERE tenant = 'newcomer' AND state = "
                              "'completed'"),
              "the newcomer never ended");
    int64_t slots = e2e_config()->worker_slots > 0 ? e2e_config()->worker_slots : 2;
    int64_t before =
        e2e_sql("SELECT count(*) FROM jobs f, jobs n WHERE f.batch_id = '%s' AND n.tenant = "
                "'newcomer' AND f.finished_at BETWEEN n.submitted_at AND n.finished_at",
                batch);
    cr_assert_leq(before, 2 * slots + 1, "%d jobs of the flood ended while the newcomer waited",
                  (int)before);
    cleanup_e2e_run struct e2e_run status, cancel;
    E2E_BROOD(&status, E2E_SHORT_MS, "status", "--json");
    json_t *s = json_loads(status.out.data, 0, NULL);
    cr_assert_gt(json_array_size(e2e_at(s, "tenants")), 0, "%s", status.out.data);
    json_decref(s);

    static const char accepted[] =
        "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict = 'accepted'";
    int64_t accepted_before = e2e_sql(accepted, batch);
    E2E_BROOD(&cancel, E2E_SHORT_MS, "cancel", batch, "--json");
    cr_assert_eq(cancel.exit_code, 0, "%s", cancel.err.data);
    json_t *said = json_loads(cancel.out.data, 0, NULL);
    int64_t at_once = json_integer_value(e2e_at(said, "cancelled")),
            ending = json_integer_value(e2e_at(said, "ending"));
    json_decref(said);
    cr_assert_gt(at_once, FLOOD / 2);
    cr_assert(ending >= 1 && ending <= slots, "%d were running", (int)ending);
    cr_assert(e2e_sql_becomes(
                  FLOOD, FLOOD_MS,
                  "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict IS NOT NULL", batch),
              "what was taken back has not ended");
    int64_t billed =
        e2e_sql("SELECT count(DISTINCT j.id) FROM jobs j JOIN usage_records u ON u.job_id = j.id "
                "WHERE j.batch_id = '%s' AND j.verdict = 'cancelled'",
                batch);
    int64_t ended_first = e2e_sql(accepted, batch) - accepted_before; /* before they were told */
    cr_assert(
        billed <= ending && billed + ended_first >= ending,
        "%d of %d that ran are billed up to then (%d ended by themselves); what waited is not",
        (int)billed, (int)ending, (int)ended_first);
    cr_assert_eq(e2e_sql("SELECT count(*) FROM jobs WHERE batch_id = '%s' AND state NOT IN "
                         "('completed','cancelled')",
                         batch),
                 0);
    free(batch);
}
