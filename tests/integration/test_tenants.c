/* Two tenants, one database: for every way to name something of another's, the answer is that there
 * is no such thing. Snapshots are in test_store_forks.c (no_tenant_sees_anothers) and here where a
 * page or a base is asked for. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/cancel.h"
#include "common/store/usage.h"
#include "common/store/snapshots.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

static struct fixture f;
static struct err err;

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define HEX(c) c c c c c c c c c c c c c c c c
#define SHA_A HEX("aaaa")
#define SHA_B HEX("bbbb")
#define MINE "mine"
#define THEIRS "theirs"

static void set_up(void)
{
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(tenants, .init = set_up, .fini = tear_down, .timeout = 120);

static const char job_json[] =
    "{\"template\":\"python\",\"command\":\"run\",\"idempotency_key\":\"k\",\"branches\":["
    "{\"name\":\"a\"}]}";

static struct id submit(const char *tenant, const char *batch, const char *id, const char *json,
                        struct submit_item *ret_item)
{
    cleanup_job_spec struct job_spec *spec = NULL;
    OK(job_parse(json, strlen(json), &spec, &err));
    struct submit_item item = { .spec = spec, .id = id };
    OK(store_submit(&f.pg, tenant, batch, NULL, 0, &item, 1, false, &err));
    if (ret_item) {
        *ret_item = item;
        ret_item->spec = NULL;
    }
    return item.ret_id;
}

static void commit(const char *tenant, const char *job)
{
    cleanup_job_spec struct job_spec *spec = NULL;
    OK(job_parse(job_json, strlen(job_json), &spec, &err));
    struct dispatch_row row;
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
    cr_assert_str_eq(row.job_id, job);
    struct job_result result;
    struct manifest files = { 0 };
    struct artifact *a;
    job_result_init(&result);
    result.verdict = VERDICT_ACCEPTED;
    result.vcpus = 1;
    result.memory_mib = 256;
    result.leased_wall_ms = 1700000000000;
    result.measured_ms = 100;
    OK(manifest_add(&files, "secret.txt", 10, NULL, 0, &a, &err));
    a->stored = true;
    a->size = 7;
    (void)snprintf(a->sha256, sizeof a->sha256, "%s", SHA_A);
    struct branch_result *branches = branch_results_new(spec->tree);
    branches[0].result.verdict = VERDICT_ACCEPTED;
    struct commit_item item = { .job_id = job,
                                .tenant = tenant,
                                .template_name = "python@d1",
                                .worker = "w",
                                .attempt = row.attempt,
                                .result = &result,
                                .billed = true,
                                .branches = branches,
                                .n_branches = 1,
                                .artifacts = &files };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(item.ret_won);
    branch_results_free(branches, 1);
    manifest_done(&files);
    job_result_done(&result);
    dispatch_rows_done(&row, 1);
}

static int count_row(void *ctx, const struct result_row *row, struct err *e)
{
    (void)row;
    (void)e;
    ++*(int *)ctx;
    return 0;
}

/* How many of the ways to look at this finished job lead to something. */
static int ways_in(const char *viewer, const char *batch, const char *job)
{
    int found = 0, rows = 0;
    struct result_row row;
    struct batch_counts counts;
    struct branch_result branch;
    struct artifact_row file;
    f.pg.viewer = viewer;
    int rc = store_job(&f.pg, job, &row, &err);
    if (rc == 0) {
        found++;
        result_row_done(&row);
    } else {
        cr_expect_eq(rc, -ERR_NOT_FOUND, "%s", err.text);
        cr_expect(!strstr(err.text, MINE), "whose it is, is told: %s", err.text);
    }
    rc = store_batch_counts(&f.pg, batch, &counts, &err);
    cr_expect(rc == 0 || rc == -ERR_NOT_FOUND, "%s", err.text);
    found += rc == 0;
    OK(store_results(&f.pg, batch, count_row, &rows, &err));
    found += rows;
    if (store_branches(&f.pg, job, 0, 1, true, &branch, &err) == 1) {
        found++;
        branch_result_done(&branch);
    }
    if (store_branches(&f.pg, job, 0, 1, false, &branch, &err) == 1) {
        found++;
        branch_result_done(&branch);
    }
    if (store_artifacts(&f.pg, job, -1, -1, 0, 1, &file, &err) == 1) {
        found++;
        artifact_row_done(&file);
    }
    f.pg.viewer = NULL;
    return found;
}

static int no_sum(void *ctx, const struct usage_sum *s, struct err *e)
{
    (void)ctx;
    (void)s;
    (void)e;
    return 0;
}

Test(tenants, results_branches_and_artifacts)
{
    struct id batch = id_new();
    struct id job = submit(MINE, batch.text, NULL, job_json, NULL);
    commit(MINE, job.text);
    cr_expect_eq(ways_in(MINE, batch.text, job.text), 6);
    cr_expect_eq(ways_in(NULL, batch.text, job.text), 6, "the service itself");
    cr_expect_eq(ways_in(THEIRS, batch.text, job.text), 0);
    struct id latest;
    cr_expect_eq(store_latest_batch(&f.pg, THEIRS, &latest, &err), -ERR_NOT_FOUND);
    struct usage_query usage = { .tenant = THEIRS, .by = USAGE_BY_TENANT };
    cr_expect_eq(store_usage(&f.pg, &usage, no_sum, NULL, &err), 0);
    usage.tenant = MINE;
    cr_expect_eq(store_usage(&f.pg, &usage, no_sum, NULL, &err), 1);
}

Test(tenants, taking_back)
{
    struct id batch = id_new(), ids[2];
    struct cancelled gone[2];
    struct id job = submit(MINE, batch.text, NULL, job_json, NULL);
    f.pg.viewer = THEIRS;
    cr_expect_eq(store_cancel(&f.pg, batch.text, NULL, 2, gone, &err), 0);
    cr_expect_eq(store_cancel(&f.pg, NULL, job.text, 2, gone, &err), 0);
    cr_expect_eq(store_open_batches(&f.pg, THEIRS, "ci", 2, ids, &err), 0);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE state = 'queued'"), 1);
    f.pg.viewer = MINE;
    cr_expect_eq(store_cancel(&f.pg, batch.text, NULL, 2, gone, &err), 1);
}

Test(tenants, idempotency_keys)
{
    struct submit_item one, again;
    struct id mine = submit(MINE, NULL, NULL, job_json, NULL);
    (void)submit(THEIRS, NULL, NULL, job_json, &one);
    cr_expect_str_neq(one.ret_id.text, mine.text, "a key leads to another tenant's job");
    cr_expect(!one.ret_duplicate);
    (void)submit(THEIRS, NULL, NULL, job_json, &again);
    cr_expect_str_eq(again.ret_id.text, one.ret_id.text);
    cr_expect(again.ret_duplicate);
    /* other content under the same key: a conflict of one's own only */
    (void)submit(THEIRS, NULL, NULL,
                 "{\"template\":\"python\",\"command\":\"other\",\"idempotency_key\":\"k\"}",
                 &again);
    cr_expect_eq(again.ret_error.code, ERR_CONFLICT);
    cr_expect(!strstr(again.ret_error.text, mine.text), "%s", again.ret_error.text);
}

/* An id is not a way to another's job either, nor to what it holds. */
Test(tenants, job_ids)
{
    struct submit_item item;
    struct id mine = submit(MINE, NULL, NULL, job_json, NULL);
    (void)submit(THEIRS, NULL, mine.text, job_json, &item);
    cr_expect_eq(item.ret_error.code, ERR_CONFLICT, "the same content counts as the same job");
    cr_expect(!item.ret_duplicate);
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM jobs"), 1);
    (void)submit(MINE, NULL, mine.text, job_json, &item);
    cr_expect(item.ret_duplicate, "one's own call may be repeated");
}

Test(tenants, batches)
{
    struct id batch = id_new();
    (void)submit(MINE, batch.text, NULL, job_json, NULL);
    cleanup_job_spec struct job_spec *spec = NULL;
    OK(job_parse(job_json, strlen(job_json), &spec, &err));
    struct submit_item item = { .spec = spec };
    cr_expect_eq(store_submit(&f.pg, THEIRS, batch.text, NULL, 0, &item, 1, true, &err),
                 -ERR_CONFLICT);
    cr_expect(!strstr(err.text, MINE), "%s", err.text);
    cr_expect_eq(fixture_number(&f, "SELECT jobs FROM batches"), 1);
}

/* Content-addressed: the object is there once, and who has not put it there cannot name it. */
Test(tenants, uploads_and_artifacts_by_digest)
{
    static const char json[] = "{\"template\":\"python\",\"command\":\"run\",\"archive\":{"
                               "\"object\":\"" SHA_B "\",\"format\":\"tar\"}}";
    cleanup_job_spec struct job_spec *spec = NULL;
    OK(job_parse(json, strlen(json), &spec, &err));
    OK(store_upload_put(&f.pg, MINE, SHA_B, 10, 60, &err));
    OK(store_job_check(&f.pg, MINE, spec, &err));
    cr_expect_eq(store_job_check(&f.pg, THEIRS, spec, &err), -ERR_NOT_FOUND);
    char known[sizeof err.text], unknown[sizeof err.text];
    (void)snprintf(known, sizeof known, "%s", err.text);
    OK(fixture_number(&f, "WITH d AS (DELETE FROM uploads RETURNING 1) SELECT count(*) FROM d"));
    cr_expect_eq(store_job_check(&f.pg, THEIRS, spec, &err), -ERR_NOT_FOUND);
    (void)snprintf(unknown, sizeof unknown, "%s", err.text);
    cr_expect_str_eq(known, unknown, "the answer tells that somebody has it");
    OK(store_upload_put(&f.pg, THEIRS, SHA_B, 10, 60, &err));
    OK(store_job_check(&f.pg, THEIRS, spec, &err));
    /* an artifact of a job is its tenant's */
    struct id job = submit(MINE, NULL, NULL, job_json, NULL);
    commit(MINE, job.text);
    cr_expect_eq(store_upload_check(&f.pg, MINE, SHA_A, NULL, &err), 0, "%s", err.text);
    cr_expect_eq(store_upload_check(&f.pg, THEIRS, SHA_A, NULL, &err), -ERR_NOT_FOUND);
}

static struct snapshot_row keep(const char *tenant, const char *name)
{
    struct snapshot_row s = {
        .id = id_new(), .vcpus = 1, .memory_mib = 256, .ttl_s = 3600, .n_layers = 1
    };
    (void)snprintf(s.tenant, sizeof s.tenant, "%s", tenant);
    (void)snprintf(s.name, sizeof s.name, "%s", name);
    (void)snprintf(s.digest, sizeof s.digest, "%s", SHA_A);
    (void)snprintf(s.layers[0], sizeof s.layers[0], "%s", SHA_A);
    (void)snprintf(s.template_name, sizeof s.template_name, "python");
    (void)snprintf(s.template_digest, sizeof s.template_digest, "d1");
    (void)snprintf(s.engine, sizeof s.engine, "qemu-tcg");
    OK(store_snapshot_create(&f.pg, &s, NULL, &err));
    return s;
}

Test(tenants, snapshots)
{
    struct snapshot_row mine = keep(MINE, "deps"), theirs = keep(THEIRS, "deps"), got[4];
    struct template_info t;
    /* a page behind another's id: as behind nothing that there is */
    cr_expect_eq(store_snapshot_list(&f.pg, THEIRS, mine.id.text, 4, got, &err), 0);
    cr_expect_eq(store_snapshot_list(&f.pg, THEIRS, NULL, 4, got, &err), 1);
    cr_expect_str_eq(got[0].id.text, theirs.id.text);
    /* one name, two tenants: each starts from its own */
    OK(store_base_get(&f.pg, THEIRS, "snapshot:deps", &t, &err));
    OK(store_snapshot_resolve(&f.pg, THEIRS, "deps", &got[0], &err));
    cr_expect_str_eq(got[0].id.text, theirs.id.text);
    char by_id[64];
    (void)snprintf(by_id, sizeof by_id, "snapshot:%s", mine.id.text);
    cr_expect_eq(store_base_get(&f.pg, THEIRS, by_id, &t, &err), -ERR_NOT_FOUND);
    cr_expect(!strstr(err.text, "deps\" of " MINE), "%s", err.text);
}
