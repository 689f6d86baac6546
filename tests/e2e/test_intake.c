/* The intake stream: what a trusted client does without us, with redis-cli alone. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "common/base/id.h"
#include "tests/e2e/cli.h"

#define INTAKE_MS 120000

static const char *const hello =
    "{\"template\":\"python\",\"name\":\"by hand\",\"command\":[\"python3\",\"-c\",\"print(6*7)\"],"
    "\"expect\":{\"stdout\":\"42\\n\"}}";

static void xadd(const char *job, const char *batch, const char *tenant)
{
    cleanup_e2e_run struct e2e_run r;
    if (tenant) {
        E2E_REDIS(&r, "XADD", "brood:intake", "*", "job", job, "batch", batch, "tenant", tenant);
    } else {
        E2E_REDIS(&r, "XADD", "brood:intake", "*", "job", job, "batch", batch);
    }
    cr_assert_eq(r.exit_code, 0, "redis-cli: %s%s", r.out.data, r.err.data);
    cr_assert_not_null(strchr(r.out.data, '-'), "XADD: %s", r.out.data);
}

/* Waits until the batch has n ended jobs. */
static json_t *results_of(const char *batch, int n)
{
    cr_assert(e2e_sql_becomes(
                  n, INTAKE_MS,
                  "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict IS NOT NULL", batch),
              "the job never ended");
    return e2e_wait_results(batch, INTAKE_MS);
}

Test(intake, a_job_by_xadd_alone_ends_in_postgres_and_in_results)
{
    struct id batch = id_new();
    xadd(hello, batch.text, NULL);
    json_t *results = results_of(batch.text, 1);
    cr_assert_eq(json_array_size(results), 1);
    const json_t *result = json_array_get(results, 0);
    cr_expect_str_eq(e2e_verdict(result), "accepted");
    cleanup_buf struct buf out = { 0 };
    e2e_output(result, "stdout", &out);
    cr_expect_str_eq(out.data, "42\n");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records u JOIN jobs j ON j.id = u.job_id "
                         "WHERE j.batch_id = '%s'",
                         batch.text),
                 2);
    json_decref(results);
}

Test(intake, the_tenant_is_the_one_named)
{
    struct id batch = id_new();
    xadd(hello, batch.text, "acme");
    cr_assert(e2e_sql_becomes(1, E2E_BATCH_MS,
                              "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND state = "
                              "'completed'",
                              batch.text));
    struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "results", batch.text); /* as the tenant default */
    cr_expect_eq(r.out.len, 0, "another tenant's results are shown");
    cr_expect_neq(r.exit_code, 0);
    e2e_run_done(&r);
    (void)setenv("BROOD_TENANT_DEFAULT", "acme", 1);
    json_decref(results_of(batch.text, 1));
    char *path = e2e_temp_file("", 0);
    (void)unlink(path);
    E2E_BROOD(&r, E2E_SHORT_MS, "results", batch.text, "--out", path);
    cr_expect_eq(r.exit_code, 0);
    cr_expect_eq(access(path, R_OK), 0, "--out leaves no file");
    e2e_run_done(&r);
    (void)unlink(path);
    free(path);
    cr_expect_eq(
        e2e_sql("SELECT count(*) FROM jobs WHERE batch_id = '%s' AND tenant = 'acme'", batch.text),
        1);
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records u JOIN jobs j ON j.id = u.job_id "
                         "WHERE j.batch_id = '%s' "
                         "AND u.tenant = 'acme'",
                         batch.text),
                 2);
}

Test(intake, bad_entries_are_rejected_with_a_reason_and_block_nothing)
{
    static const struct {
        const char *job, *reason;
    } bad[] = {
        { "{\"template\":\"python\",", "" },
        { "{\"template\":\"python\",\"command\":[\"true\"],\"colour\":1}", "colour" },
        { "{\"template\":\"python\",\"command\":[\"true\"],\"files\":[{\"path\":\"../"
          "x\",\"text\":\"\"}]}",
          "files[0].path" },
        { "{\"template\":\"no-such\",\"command\":[\"true\"]}", "no-such" },
        { "{\"template\":\"python\",\"command\":[\"true\"],\"limits\":{\"cpu_ms\":1}}",
          "limits.cpu_ms" },
        { "", "" },
    };
    struct id batch = id_new();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        xadd(bad[i].job, batch.text, NULL);
    }
    xadd(hello, batch.text, "NOT A TENANT");
    xadd(hello, batch.text, NULL);
    json_t *results = results_of(batch.text, 1);
    cr_expect_eq(json_array_size(results), 1, "only the good one became a job");
    cr_expect_str_eq(e2e_verdict(json_array_get(results, 0)), "accepted");
    json_decref(results);

    cleanup_e2e_run struct e2e_run r;
    E2E_REDIS(&r, "XRANGE", "brood:rejected", "-", "+");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_not_null(strstr(r.out.data, bad[i].reason), "no reason names %s", bad[i].reason);
    }
    cr_expect_not_null(strstr(r.out.data, "tenant"));
    cleanup_e2e_run struct e2e_run pending;
    E2E_REDIS(&pending, "XPENDING", "brood:intake", "scheduler");
    cr_expect_eq(strtol(pending.out.data, NULL, 10), 0, "nothing stays unacknowledged: %s",
                 pending.out.data);
}
