/* Branches, artifacts, snapshots and uploads against a real Postgres. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/model/score.h"
#include "common/store/snapshots.h"
#include "common/store/cancel.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

static struct fixture f;
static struct err err;

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define HEX(c) c c c c c c c c c c c c c c c c
#define SHA_A HEX("aaaa")
#define SHA_B HEX("bbbb")
#define SHA_C HEX("cccc")

static void set_up(void)
{
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(forks, .init = set_up, .fini = tear_down, .timeout = 120);

/* ---- a job with branches ---- */

static const char tree_job[] =
    "{\"template\":\"python\",\"command\":\"run\",\"setup\":\"make\",\"branches\":[{\"name\":\"a\","
    "\"setup\":\"x\",\"tests\":[{\"name\":\"one\"},{\"name\":\"two\",\"weight\":3}]},{\"name\":"
    "\"b\"}]}";

static const struct retry_policy at_once = { .attempts_max = 5, .waits_max = 5 };

/* Everything that a worker hands over of one attempt. */
struct handed {
    struct job_spec *spec;
    char job[ID_TEXT_BYTES];
    struct job_result result;
    struct branch_result *branches;
    struct manifest artifacts;
    struct snapshot_row snapshots[2];
    struct commit_item item;
};

static struct bytes copy(const char *s, size_t n)
{
    struct bytes b = { .data = malloc(n + 1), .len = n };
    memcpy(b.data, s, n);
    b.data[n] = 0;
    return b;
}

static struct snapshot_row a_snapshot(const char *name, const char *digest)
{
    struct snapshot_row s = { .id = id_new(),
                              .vcpus = 1,
                              .memory_mib = 256,
                              .ram_bytes = 268435456,
                              .layer_bytes = 31457280,
                              .ttl_s = 3600,
                              .n_layers = 2 };
    (void)snprintf(s.tenant, sizeof s.tenant, "default");
    (void)snprintf(s.name, sizeof s.name, "%s", name);
    (void)snprintf(s.digest, sizeof s.digest, "%s", digest);
    (void)snprintf(s.layers[0], sizeof s.layers[0], "%s", digest);
    (void)snprintf(s.layers[1], sizeof s.layers[1], "%s", SHA_C);
    (void)snprintf(s.template_name, sizeof s.template_name, "python");
    (void)snprintf(s.template_digest, sizeof s.template_digest, "d1");
    (void)snprintf(s.engine, sizeof s.engine, "qemu-tcg");
    (void)snprintf(s.engine_version, sizeof s.engine_version, "7.2.9");
    (void)snprintf(s.cpu_model, sizeof s.cpu_model, "qemu64");
    (void)snprintf(s.kernel_digest, sizeof s.kernel_digest, "k1");
    return s;
}

static struct artifact *add_artifact(struct manifest *m, const char *path, size_t n,
                                     const char *sha)
{
    struct artifact *a;
    OK(manifest_add(m, path, n, NULL, 0, &a, &err));
    a->size = 7;
    a->mode = 0640;
    a->stored = sha != NULL;
    a->reason = sha ? ARTIFACT_OK : ARTIFACT_TOO_LARGE;
    (void)snprintf(a->sha256, sizeof a->sha256, "%s", sha ? sha : "");
    return a;
}

/* One job of this JSON, dispatched, and what its attempt found. */
static void run_tree(struct handed *h, const char *json)
{
    memset(h, 0, sizeof *h);
    OK(job_parse(json, strlen(json), &h->spec, &err));
    struct submit_item one = { .spec = h->spec };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &one, 1, true, &err));
    struct dispatch_row row;
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
    memcpy(h->job, row.job_id, sizeof h->job);
    int attempt = row.attempt;
    dispatch_rows_done(&row, 1);

    const struct tree *t = h->spec->tree;
    job_result_init(&h->result);
    h->result.setup = (struct run_result){ .present = true, .cpu_us = 5000 };
    h->result.tree = (struct result_tree){ .nodes = t->n, .leaves = t->n_leaves };
    h->result.verdict = VERDICT_PARTIAL;
    h->result.vcpus = 1;
    h->result.memory_mib = 256;
    h->result.leased_wall_ms = 1700000000000;
    h->result.measured_ms = 100;
    h->branches = branch_results_new(t);
    for (int i = 1; i < t->n; i++) {
        struct branch_result *b = &h->branches[i - 1];
        char out[32];
        int n = snprintf(out, sizeof out, "out of %d\xff\n", i);
        b->tries = 1;
        b->score_micro = 1000000;
        b->billed = true;
        b->result.verdict = VERDICT_ACCEPTED;
        b->result.run.present = true;
        b->result.run.cpu_us = 1000 * i;
        b->result.run.exit_code = 0;
        b->result.run.out.head = copy(out, (size_t)n);
        b->result.run.out.total_bytes = (uint64_t)n;
        b->result.vcpus = 1;
        b->result.memory_mib = 256;
        b->result.leased_wall_ms = 1700000000100;
        b->result.measured_ms = 50;
    }
    h->item = (struct commit_item){ .job_id = h->job,
                                    .tenant = "default",
                                    .template_name = "python@d1",
                                    .worker = "w1",
                                    .attempt = attempt,
                                    .result = &h->result,
                                    .billed = true,
                                    .branches = h->branches,
                                    .n_branches = t->n - 1,
                                    .artifacts = &h->artifacts };
}

static void handed_done(struct handed *h)
{
    branch_results_free(h->branches, h->spec->tree->n - 1);
    manifest_done(&h->artifacts);
    job_result_done(&h->result);
    job_spec_free(h->spec);
}

/* What the tables hold, as one line. */
static void rows_are(const char *want)
{
    char got[128];
    fixture_value(
        &f,
        "SELECT (SELECT count(*) FROM results) || ' ' || (SELECT count(*) FROM attempts) ||"
        " ' ' || (SELECT count(*) FROM branch_results) || ' ' || (SELECT count(*) FROM "
        "artifacts) || ' ' || (SELECT count(*) FROM snapshots) || ' ' || (SELECT count(*) "
        "FROM usage_records)",
        got, sizeof got);
    cr_assert_str_eq(got, want);
}

Test(forks, one_transaction_for_everything)
{
    struct handed h;
    run_tree(&h, tree_job);
    add_artifact(&h.artifacts, "build.log", 9, SHA_A);
    add_artifact(&h.branches[1].artifacts, "out/big", 7, NULL);
    add_artifact(&h.branches[1].artifacts, "out/\xff\xfe.txt", 10, SHA_B);
    h.snapshots[0] = a_snapshot("deps", SHA_A);
    memcpy(h.snapshots[0].job_id, h.job, sizeof h.job);
    h.item.snapshots = h.snapshots;
    h.item.n_snapshots = 1;
    OK(store_commit(&f.pg, &h.item, 1, &err));
    cr_assert(h.item.ret_won);
    rows_are("1 1 4 3 1 10");
    /* the answer was lost: the same call again changes nothing and counts as won */
    OK(store_commit(&f.pg, &h.item, 1, &err));
    cr_assert(h.item.ret_won);
    rows_are("1 1 4 3 1 10");
    /* another worker's late attempt writes nothing at all */
    struct commit_item late = h.item;
    late.worker = "w2";
    h.snapshots[0].id = id_new();
    OK(store_commit(&f.pg, &late, 1, &err));
    cr_assert(!late.ret_won);
    rows_are("1 1 4 3 1 10");
    handed_done(&h);
}

Test(forks, an_attempt_that_was_given_up_writes_nothing)
{
    struct handed h;
    run_tree(&h, tree_job);
    h.snapshots[0] = a_snapshot("deps", SHA_A);
    memcpy(h.snapshots[0].job_id, h.job, sizeof h.job);
    h.item.snapshots = h.snapshots;
    h.item.n_snapshots = 1;
    add_artifact(&h.artifacts, "x", 1, SHA_A);
    OK(store_attempt_failed(&f.pg, h.job, h.item.attempt, "w1", RETRY_WORKER_LOST, "gone", &at_once,
                            NULL, &err));
    OK(store_commit(&f.pg, &h.item, 1, &err));
    cr_assert(!h.item.ret_won);
    rows_are("0 1 0 0 0 0");
    handed_done(&h);
}

Test(forks, many_jobs_in_one_commit_know_their_own_answers)
{
    static struct handed h[3];
    struct commit_item items[3];
    for (int i = 0; i < 3; i++) {
        run_tree(&h[i], tree_job);
        items[i] = h[i].item;
    }
    OK(store_attempt_failed(&f.pg, h[1].job, h[1].item.attempt, "w1", RETRY_BROKEN, "ours",
                            &at_once, NULL, &err));
    OK(store_commit(&f.pg, items, 3, &err));
    cr_assert(items[0].ret_won && !items[1].ret_won && items[2].ret_won);
    rows_are("2 3 8 0 0 20");
    for (int i = 0; i < 3; i++) {
        handed_done(&h[i]);
    }
}

Test(forks, usage_of_every_sandbox)
{
    struct handed h;
    run_tree(&h, tree_job);
    h.branches[3].billed = false; /* as one that was skipped */
    OK(store_commit(&f.pg, &h.item, 1, &err));
    char got[256];
    fixture_value(&f,
                  "SELECT string_agg(branch || ':' || charged_ms, ' ' ORDER BY branch) FROM "
                  "usage_records WHERE meter = 'vcpu_seconds'",
                  got, sizeof got);
    cr_assert_str_eq(got, ":1000 root/0:1000 root/0/0:1000 root/0/1:1000");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM usage_records WHERE template <> "
                                    "'python@d1'"),
                 0);
    struct result_row row;
    OK(store_job(&f.pg, h.job, &row, &err));
    cr_assert_eq(row.measured_ms, 100 + 3 * 50);
    cr_assert_eq(row.charged_ms, 4000);
    cr_assert_eq(row.result.tree.nodes, 5);
    result_row_done(&row);
    handed_done(&h);
}

Test(forks, branches_come_back_page_by_page)
{
    struct handed h;
    run_tree(&h, tree_job);
    h.branches[0].result.setup = (struct run_result){ .present = true, .exit_code = 0 };
    h.branches[0].result.setup.out.head = copy("compiled", 8);
    job_result_warn(&h.branches[2].result, "artifacts[0]: \"*.xml\" matched nothing");
    h.branches[2].tries = 2;
    OK(store_commit(&f.pg, &h.item, 1, &err));
    static struct branch_result rows[BRANCHES_PAGE_MAX];
    cr_assert_eq(store_branches(&f.pg, h.job, 0, 3, true, rows, &err), 3, "%s", err.text);
    const char *names[] = { "a", "a/one", "a/two" };
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(rows[i].node, i + 1);
        cr_assert_eq(rows[i].parent, i ? 1 : 0);
        cr_assert_eq(rows[i].leaf, i > 0);
        cr_assert_str_eq(rows[i].name_path, names[i]);
        cr_assert_eq(rows[i].result.verdict, VERDICT_ACCEPTED);
        cr_assert_eq(rows[i].result.run.cpu_us, 1000 * (i + 1));
        cr_assert_eq(rows[i].result.run.out.head.len, 10);
        cr_assert_eq(memcmp(rows[i].result.run.out.head.data, "out of ", 7), 0);
    }
    cr_assert_str_eq(rows[2].path, "root/0/1");
    cr_assert(rows[2].weight == 3 && rows[2].tries == 2 && rows[2].result.n_warnings == 1);
    cr_assert_eq(rows[0].result.setup.out.head.len, 8);
    for (int i = 0; i < 3; i++) {
        branch_result_done(&rows[i]);
    }
    cr_assert_eq(store_branches(&f.pg, h.job, 3, 256, false, rows, &err), 1);
    cr_assert(rows[0].node == 4 && rows[0].result.run.out.head.len == 0);
    cr_assert_eq(rows[0].result.run.out.total_bytes, 10);
    branch_result_done(&rows[0]);
    cr_assert_eq(store_branches(&f.pg, h.job, 4, 256, true, rows, &err), 0);
    cr_assert_eq(store_branches(&f.pg, "x", 0, 1, true, rows, &err), -ERR_INVALID);
    handed_done(&h);
}

Test(forks, artifacts_come_back_as_bytes)
{
    struct handed h;
    run_tree(&h, tree_job);
    struct artifact *link;
    OK(manifest_add(&h.artifacts, "a link", 6, "../../etc/passwd", 16, &link, &err));
    link->type = ARTIFACT_LINK;
    link->mode = 0777;
    link->stored = true;
    add_artifact(&h.branches[1].artifacts, "n/\xff", 3, SHA_B)->change = ARTIFACT_GREW;
    char name[32];
    for (int i = 0; i < 600; i++) { /* more than one statement's */
        int n = snprintf(name, sizeof name, "many/%04d", i);
        add_artifact(&h.branches[2].artifacts, name, (size_t)n, i % 2 ? SHA_A : NULL);
    }
    OK(store_commit(&f.pg, &h.item, 1, &err));
    static struct artifact_row rows[ARTIFACTS_PAGE_MAX];
    int n = store_artifacts(&f.pg, h.job, -1, -1, 0, 100, rows, &err);
    cr_assert_eq(n, 100, "%s", err.text);
    cr_assert(rows[2].ord == 0 && rows[99].ord == 97);
    cr_assert(rows[0].node == 0 && rows[0].artifact.type == ARTIFACT_LINK);
    cr_assert_eq(rows[0].artifact.target_len, 16);
    cr_assert_str_eq(rows[0].artifact.sha256, "");
    cr_assert(rows[1].node == 2 && rows[1].artifact.path_len == 3);
    cr_assert_eq(memcmp(rows[1].artifact.path, "n/\xff", 3), 0);
    cr_assert_str_eq(rows[1].artifact.sha256, SHA_B);
    cr_assert(rows[1].artifact.mode == 0640 && rows[1].artifact.size == 7);
    cr_assert(!rows[2].artifact.stored && rows[2].artifact.reason == ARTIFACT_TOO_LARGE);
    cr_assert(rows[1].artifact.change == ARTIFACT_GREW && rows[2].artifact.change == ARTIFACT_SAME);
    int total = n, node = rows[n - 1].node;
    int ord = rows[n - 1].ord;
    for (int i = 0; i < n; i++) {
        artifact_row_done(&rows[i]);
    }
    n = store_artifacts(&f.pg, h.job, -1, node, ord, 1000, rows, &err);
    cr_assert_eq(total + n, 602);
    for (int i = 0; i < n; i++) {
        artifact_row_done(&rows[i]);
    }
    cr_assert_eq(store_artifacts(&f.pg, h.job, 2, -1, 0, 1000, rows, &err), 1);
    artifact_row_done(&rows[0]);
    handed_done(&h);
}

Test(forks, the_largest_tree)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    OK(buf_add_str(&b, "{\"template\":\"python\",\"command\":\"x\",\"branches\":[", &err));
    for (int i = 0; i < 4; i++) {
        OK(buf_add_str(&b, i ? ",{\"tests\":[{}" : "{\"tests\":[{}", &err));
        for (int k = 1; k < (i < 3 ? 1023 : 1022); k++) {
            OK(buf_add_str(&b, ",{}", &err));
        }
        OK(buf_add_str(&b, "]}", &err));
    }
    OK(buf_add_str(&b, "]}", &err));
    struct handed h;
    run_tree(&h, b.data);
    cr_assert_eq(h.item.n_branches, JOB_TREE_NODES_MAX - 1);
    OK(store_commit(&f.pg, &h.item, 1, &err));
    cr_assert(h.item.ret_won);
    rows_are("1 1 4095 0 0 8192");
    static struct branch_result rows[BRANCHES_PAGE_MAX];
    int seen = 0, n, last = 0;
    while ((n = store_branches(&f.pg, h.job, last, BRANCHES_PAGE_MAX, false, rows, &err)) > 0) {
        seen += n;
        last = rows[n - 1].node;
        for (int i = 0; i < n; i++) {
            branch_result_done(&rows[i]);
        }
    }
    OK(n);
    cr_assert_eq(seen, 4095);
    buf_done(&b);
    handed_done(&h);
}

Test(forks, cancelled_jobs_have_no_branches)
{
    struct job_spec *spec = NULL;
    OK(job_parse(tree_job, strlen(tree_job), &spec, &err));
    struct submit_item one = { .spec = spec };
    struct id batch = id_new();
    struct cancelled ids[4];
    OK(store_submit(&f.pg, "default", batch.text, NULL, 0, &one, 1, true, &err));
    cr_assert_eq(store_cancel(&f.pg, batch.text, NULL, 4, ids, &err), 1);
    rows_are("1 0 0 0 0 0");
    job_spec_free(spec);
}

/* ---- snapshots ---- */

static struct snapshot_row keep(const char *tenant, const char *name, const char *parent)
{
    struct snapshot_row s = a_snapshot(name, SHA_A);
    (void)snprintf(s.tenant, sizeof s.tenant, "%s", tenant);
    (void)snprintf(s.parent, sizeof s.parent, "%s", parent);
    OK(store_snapshot_create(&f.pg, &s, NULL, &err));
    return s;
}

Test(forks, a_snapshot_comes_back_as_it_was_kept)
{
    struct snapshot_row s = keep("default", "deps", ""), got;
    OK(store_snapshot_get(&f.pg, "default", "deps", &got, &err));
    cr_assert_str_eq(got.id.text, s.id.text);
    cr_assert_str_eq(got.digest, SHA_A);
    cr_assert_eq(got.n_layers, 2);
    cr_assert_str_eq(got.layers[1], SHA_C);
    cr_assert_str_eq(got.template_name, "python");
    cr_assert_str_eq(got.engine_version, "7.2.9");
    cr_assert_str_eq(got.kernel_digest, "k1");
    cr_assert(got.memory_mib == 256 && got.vcpus == 1 && got.ram_bytes == 268435456);
    cr_assert(got.layer_bytes == 31457280 && got.ttl_s == 3600 && !got.pinned);
    cr_assert_eq(got.expires_ms / 1000, (got.created_ms + 3600000) / 1000);
    cr_assert_str_eq(got.parent, "");
    cr_assert_str_eq(got.job_id, "");
    OK(store_snapshot_get(&f.pg, "default", s.id.text, &got, &err));
    cr_assert_str_eq(got.name, "deps");
    /* the same id again is the same row */
    struct id replaced;
    OK(store_snapshot_create(&f.pg, &s, &replaced, &err));
    cr_assert_str_eq(replaced.text, "");
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM snapshots"), 1);
}

Test(forks, no_tenant_sees_anothers)
{
    struct snapshot_row mine = keep("default", "deps", ""), got;
    keep("other", "theirs", "");
    cr_assert_eq(store_snapshot_get(&f.pg, "other", "deps", &got, &err), -ERR_NOT_FOUND);
    cr_assert(strstr(err.text, "tenant other has no \"deps\"; it has: theirs"), "%s", err.text);
    cr_assert_eq(store_snapshot_get(&f.pg, "other", mine.id.text, &got, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_snapshot_resolve(&f.pg, "other", mine.id.text, &got, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_snapshot_touch(&f.pg, "other", "deps", 60, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_snapshot_remove(&f.pg, "other", "deps", true, NULL, 0, &err),
                 -ERR_NOT_FOUND);
    cr_assert_eq(store_snapshot_list(&f.pg, "other", NULL, 10, &got, &err), 1);
    /* nor builds on it */
    struct snapshot_row child = a_snapshot("child", SHA_B);
    (void)snprintf(child.tenant, sizeof child.tenant, "other");
    memcpy(child.parent, mine.id.text, sizeof child.parent);
    cr_assert_eq(store_snapshot_create(&f.pg, &child, NULL, &err), -ERR_NOT_FOUND);
    struct template_info t;
    cr_assert_eq(store_base_get(&f.pg, "other", "snapshot:deps", &t, &err), -ERR_NOT_FOUND);
    cr_assert(strstr(err.text, "template: "), "%s", err.text);
}

Test(forks, children_refuse_deletion_and_are_named)
{
    struct snapshot_row base = keep("default", "base", "");
    struct snapshot_row deps = keep("default", "deps", base.id.text);
    keep("default", "data", base.id.text);
    keep("default", "deep", deps.id.text);
    struct snapshot_row rows[8];
    cr_assert_eq(store_snapshot_remove(&f.pg, "default", "base", false, rows, 8, &err),
                 -ERR_CONFLICT);
    cr_assert(strstr(err.text, "snapshot base has children: deps, data"), "%s", err.text);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM snapshots"), 4);
    cr_assert_eq(store_snapshot_list(&f.pg, "default", NULL, 8, rows, &err), 4);
    cr_assert_str_eq(rows[0].name, "base");
    cr_assert(rows[0].children == 2 && rows[1].children == 1);
    cr_assert_str_eq(rows[3].parent, deps.id.text);
    struct snapshot_row page[2];
    cr_assert_eq(store_snapshot_list(&f.pg, "default", rows[2].id.text, 2, page, &err), 1);
    cr_assert_str_eq(page[0].name, "deep");
    cr_assert_eq(store_snapshot_remove(&f.pg, "default", "deep", false, rows, 8, &err), 1);
    cr_assert_str_eq(rows[0].name, "deep");
    cr_assert_eq(store_snapshot_remove(&f.pg, "default", "base", true, rows, 8, &err), 3);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM snapshots"), 0);
    cr_assert_eq(store_snapshot_remove(&f.pg, "default", "base", true, NULL, 0, &err),
                 -ERR_NOT_FOUND);
}

Test(forks, a_name_moves_to_the_new_state)
{
    struct snapshot_row first = keep("default", "deps", "");
    keep("default", "child", first.id.text);
    struct snapshot_row second = a_snapshot("deps", SHA_B), got;
    struct id replaced;
    OK(store_snapshot_create(&f.pg, &second, &replaced, &err));
    cr_assert_str_eq(replaced.text, first.id.text);
    OK(store_snapshot_get(&f.pg, "default", "deps", &got, &err));
    cr_assert_str_eq(got.id.text, second.id.text);
    OK(store_snapshot_get(&f.pg, "default", first.id.text, &got, &err));
    cr_assert_str_eq(got.name, "");
    /* the old one lives for its child, then goes */
    cr_assert_eq(store_snapshots_expire(&f.pg, 10, &err), 0);
    cr_assert_eq(store_snapshot_remove(&f.pg, "default", "child", false, NULL, 0, &err), 1);
    cr_assert_eq(store_snapshots_expire(&f.pg, 10, &err), 1);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM snapshots"), 1);
}

Test(forks, a_late_repetition_does_not_take_the_name_back)
{
    struct handed h;
    run_tree(&h, tree_job);
    h.snapshots[0] = a_snapshot("deps", SHA_A);
    memcpy(h.snapshots[0].job_id, h.job, sizeof h.job);
    h.item.snapshots = h.snapshots;
    h.item.n_snapshots = 1;
    struct snapshot_row before = keep("default", "deps", ""), got;
    OK(store_commit(&f.pg, &h.item, 1, &err));
    OK(store_snapshot_get(&f.pg, "default", "deps", &got, &err));
    cr_assert_str_eq(got.id.text, h.snapshots[0].id.text);
    cr_assert_str_eq(got.job_id, h.job);
    OK(store_snapshot_get(&f.pg, "default", before.id.text, &got, &err));
    struct snapshot_row later = keep("default", "deps", "");
    OK(store_commit(&f.pg, &h.item, 1, &err));
    OK(store_snapshot_get(&f.pg, "default", "deps", &got, &err));
    cr_assert_str_eq(got.id.text, later.id.text);
    handed_done(&h);
}

Test(forks, expiry_and_pins)
{
    struct snapshot_row got, pinned = a_snapshot("pinned", SHA_B);
    keep("default", "deps", "");
    pinned.pinned = true;
    pinned.ttl_s = 0;
    OK(store_snapshot_create(&f.pg, &pinned, NULL, &err));
    OK(store_snapshot_get(&f.pg, "default", "pinned", &got, &err));
    cr_assert(got.pinned && got.expires_ms == -1 && got.ttl_s == 0);
    fixture_number(&f,
                   "WITH u AS (UPDATE snapshots SET expires_at = now() - interval '1 s' WHERE NOT "
                   "pinned RETURNING 1) SELECT count(*) FROM u");
    cr_assert_eq(store_snapshot_resolve(&f.pg, "default", "deps", &got, &err), -ERR_NOT_FOUND);
    cr_assert(strstr(err.text, "it has: pinned"), "%s", err.text);
    OK(store_snapshot_get(&f.pg, "default", "deps", &got, &err)); /* it can still be shown */
    OK(store_snapshot_touch(&f.pg, "default", "deps", 600, &err));
    OK(store_snapshot_resolve(&f.pg, "default", "deps", &got, &err));
    cr_assert_eq(got.ttl_s, 600);
    cr_assert_eq(store_snapshots_expire(&f.pg, 10, &err), 0);
    OK(store_snapshot_touch(&f.pg, "default", "deps", 0, &err));
    OK(store_snapshot_get(&f.pg, "default", "deps", &got, &err));
    cr_assert(got.pinned && got.expires_ms == -1);
    cr_assert_eq(store_snapshot_touch(&f.pg, "default", "deps", -1, &err), -ERR_INVALID);
    struct template_info t;
    OK(store_base_get(&f.pg, "default", "snapshot:deps", &t, &err));
    cr_assert(t.memory_mib == 256 && t.vcpus == 1 && !strcmp(t.digest, SHA_A));
    cr_assert_str_eq(t.name, "snapshot:deps");
    OK(store_base_get(&f.pg, "default", "python", &t, &err));
    cr_assert_eq(t.memory_mib, 512);
}

Test(forks, what_is_no_snapshot_is_refused)
{
    struct snapshot_row s = a_snapshot("a/b", SHA_A);
    cr_assert_eq(store_snapshot_create(&f.pg, &s, NULL, &err), -ERR_INVALID);
    s = a_snapshot("ok", "abc");
    cr_assert_eq(store_snapshot_create(&f.pg, &s, NULL, &err), -ERR_INVALID);
    s = a_snapshot("ok", SHA_A);
    s.n_layers = 0;
    cr_assert_eq(store_snapshot_create(&f.pg, &s, NULL, &err), -ERR_INVALID);
    s = a_snapshot("ok", SHA_A);
    s.ttl_s = 0;
    cr_assert_eq(store_snapshot_create(&f.pg, &s, NULL, &err), -ERR_INVALID);
    s = a_snapshot("ok", SHA_A);
    s.n_layers = SNAPSHOT_LAYERS_MAX;
    for (int i = 0; i < SNAPSHOT_LAYERS_MAX; i++) {
        memcpy(s.layers[i], SHA_B, sizeof s.layers[i]);
    }
    OK(store_snapshot_create(&f.pg, &s, NULL, &err));
    struct snapshot_row got;
    OK(store_snapshot_get(&f.pg, "default", "ok", &got, &err));
    cr_assert_eq(got.n_layers, SNAPSHOT_LAYERS_MAX);
    cr_assert_str_eq(got.layers[SNAPSHOT_LAYERS_MAX - 1], SHA_B);
}

/* ---- uploads and objects ---- */

Test(forks, uploads_belong_to_their_tenant)
{
    int64_t size = 0;
    OK(store_upload_put(&f.pg, "default", SHA_A, 42, 3600, &err));
    OK(store_upload_check(&f.pg, "default", SHA_A, &size, &err));
    cr_assert_eq(size, 42);
    cr_assert_eq(store_upload_check(&f.pg, "other", SHA_A, NULL, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_upload_check(&f.pg, "default", SHA_B, NULL, &err), -ERR_NOT_FOUND);
    cr_assert_eq(store_upload_check(&f.pg, "default", "abc", NULL, &err), -ERR_INVALID);
    /* a stored artifact of one's own job may be named too, but not one that waits for the store */
    struct handed h;
    run_tree(&h, tree_job);
    add_artifact(&h.artifacts, "x.tar", 5, SHA_B);
    add_artifact(&h.artifacts, "y.tar", 5, HEX("eeee"));
    h.artifacts.files[1].stored = false;
    h.artifacts.files[1].reason = ARTIFACT_PENDING;
    OK(store_commit(&f.pg, &h.item, 1, &err));
    cr_expect_eq(store_upload_check(&f.pg, "default", HEX("eeee"), NULL, &err), -ERR_NOT_FOUND);
    OK(store_upload_check(&f.pg, "default", SHA_B, &size, &err));
    cr_assert_eq(size, 7);
    cr_assert_eq(store_upload_check(&f.pg, "other", SHA_B, NULL, &err), -ERR_NOT_FOUND);
    fixture_number(&f,
                   "WITH u AS (UPDATE uploads SET expires_at = now() RETURNING 1) SELECT count(*) "
                   "FROM u");
    cr_assert_eq(store_upload_check(&f.pg, "default", SHA_A, NULL, &err), -ERR_NOT_FOUND);
    keep("default", "deps", "");
    const char *digests[] = { HEX("dddd"), SHA_A, SHA_B, SHA_C };
    bool wanted[4];
    OK(store_objects_wanted(&f.pg, digests, 4, wanted, &err));
    cr_assert(!wanted[0] && wanted[1] && wanted[2] && wanted[3]);
    OK(store_snapshot_remove(&f.pg, "default", "deps", false, NULL, 0, &err));
    OK(store_objects_wanted(&f.pg, digests, 4, wanted, &err));
    cr_assert(!wanted[0] && !wanted[1] && wanted[2] && !wanted[3]);
    handed_done(&h);
}
