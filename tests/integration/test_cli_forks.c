/* `brood results`, `report`, `artifacts` and `snapshot` on what the store has of a job with
 * branches: the commands themselves, in this process, against a real Postgres. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/store/snapshots.h"
#include "tests/support/cli_run.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

static struct fixture f;
static struct err err;
static char job[ID_TEXT_BYTES], batch[ID_TEXT_BYTES];
static char home[64];

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define HEX(c) c c c c c c c c c c c c c c c c

static const char spec_json[] =
    "{\"template\":\"python\",\"command\":\"run\",\"setup\":\"make\",\"name\":\"tree\","
    "\"branches\":["
    "{\"name\":\"db\",\"tests\":[{\"name\":\"read\"},{\"name\":\"write\"}]},{\"name\":\"lint\"}]}";

static struct bytes copy(const char *s)
{
    return (struct bytes){ .data = strdup(s), .len = strlen(s) };
}

/* A job whose branch db/write printed bytes and failed, and that has three artifacts. */
static void commit_job(void)
{
    struct job_spec *spec = NULL;
    OK(job_parse(spec_json, strlen(spec_json), &spec, &err));
    struct submit_item one = { .spec = spec };
    struct id b = id_new();
    memcpy(batch, b.text, sizeof batch);
    OK(store_submit(&f.pg, "default", batch, NULL, 0, &one, 1, true, &err));
    struct dispatch_row row;
    cr_assert_eq(fixture_dispatch(&f.pg, 1, &row, &err), 1);
    memcpy(job, row.job_id, sizeof job);
    dispatch_rows_done(&row, 1);
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_PARTIAL;
    r.setup = (struct run_result){ .present = true, .wall_us = 3000000 };
    r.tree = (struct result_tree){ 5, 3, 2, 1, 0, 0, 666667, 3 };
    struct branch_result *branches = branch_results_new(spec->tree);
    const enum verdict verdicts[] = { VERDICT_PARTIAL, VERDICT_ACCEPTED, VERDICT_WRONG_ANSWER,
                                      VERDICT_ACCEPTED };
    for (int i = 0; i < 4; i++) {
        branches[i].result.verdict = verdicts[i];
        branches[i].score_micro = verdicts[i] == VERDICT_ACCEPTED ? 1000000 : i == 0 ? 500000 : 0;
        branches[i].tries = 1;
        branches[i].result.run.present = i > 0;
        branches[i].result.run.wall_us = 1000 * (i + 1);
        branches[i].result.run.out.head = copy("hello");
    }
    (void)snprintf(branches[2].result.reason, RESULT_REASON_MAX, "line 1 differs");
    branches[2].result.run.out.cut_bytes = 9;
    struct artifact *a;
    OK(manifest_add(&branches[2].artifacts, "big", 3, NULL, 0, &a, &err));
    a->size = 99;
    a->reason = ARTIFACT_TOO_LARGE;
    OK(manifest_add(&branches[2].artifacts, "l\x1b[2J", 5, "/etc/passwd", 11, &a, &err));
    a->type = ARTIFACT_LINK;
    a->stored = true;
    OK(manifest_add(&branches[2].artifacts, "\xff.log", 5, NULL, 0, &a, &err));
    a->size = 7;
    a->stored = true;
    (void)snprintf(a->sha256, sizeof a->sha256, "%s", HEX("aaaa"));
    job_result_take_manifest(&branches[2].result, &branches[2].artifacts);
    job_result_take_manifest(&r, &branches[2].artifacts);
    struct commit_item item = { .job_id = job,
                                .tenant = "default",
                                .template_name = "python",
                                .worker = "w",
                                .attempt = 1,
                                .result = &r,
                                .branches = branches,
                                .n_branches = 4 };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(item.ret_won);
    branch_results_free(branches, 4);
    job_result_done(&r);
    job_spec_free(spec);
}

static void set_up(void)
{
    fixture_open(&f);
    (void)snprintf(home, sizeof home, "/tmp/brood-cli-forks-%d", (int)getpid());
    setenv("BROOD_HOME", home, 1);
    setenv("BROOD_POSTGRES_URL", f.pg_url, 1);
    setenv("BROOD_REDIS_URL", f.redis_url, 1);
}

static void tear_down(void)
{
    fixture_close(&f);
}

TestSuite(cli_forks, .init = set_up, .fini = tear_down, .timeout = 120);

static json_t *json_of(const struct cli_run *o)
{
    json_error_t why;
    json_t *v = json_loads(o->out.data, 0, &why);
    cr_assert_not_null(v, "%s: %s / %s", why.text, o->out.data, o->err.data);
    return v;
}

static const char *text_at(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "(none)";
}

Test(cli_forks, results_have_branches_in_order)
{
    commit_job();
    cleanup_cli_run struct cli_run o;
    BROOD(&o, "results", batch);
    cr_assert_eq(o.exit_code, 0, "%s", o.err.data);
    json_t *row = json_of(&o);
    cr_assert_str_eq(text_at(row, "verdict"), "partial");
    const json_t *tree = json_object_get(row, "tree"), *list = json_object_get(row, "branches");
    cr_assert_eq(json_integer_value(json_object_get(tree, "score_micro")), 666667);
    cr_assert_eq(json_array_size(list), 4);
    const char *names[] = { "db", "db/read", "db/write", "lint" };
    for (size_t i = 0; i < 4; i++) {
        cr_assert_str_eq(text_at(json_array_get(list, i), "name"), names[i]);
    }
    const json_t *bad = json_array_get(list, 2);
    cr_assert_str_eq(text_at(bad, "verdict"), "wrong_answer");
    cr_assert_str_eq(text_at(bad, "reason"), "line 1 differs");
    cr_assert_str_eq(text_at(bad, "stdout"), "hello");
    cr_assert_eq(json_integer_value(json_object_get(bad, "stdout_cut_bytes")), 9);
    cr_assert_eq(json_integer_value(json_object_get(bad, "parent")), 1);
    const json_t *artifacts = json_object_get(bad, "artifacts");
    cr_assert_eq(json_array_size(artifacts), 3);
    cr_assert_str_eq(text_at(json_array_get(artifacts, 0), "reason"), "too_large");
    cr_assert_str_eq(text_at(json_array_get(artifacts, 1), "target"), "/etc/passwd");
    cr_assert_str_eq(text_at(json_array_get(artifacts, 2), "path_base64"), "/y5sb2c=");
    cr_assert_null(json_object_get(json_array_get(list, 0), "artifacts"));
    json_decref(row);
}

Test(cli_forks, report_of_a_job)
{
    commit_job();
    cleanup_cli_run struct cli_run o, j, b;
    BROOD(&o, "report", job);
    cr_assert_eq(o.exit_code, 0, "%s", o.err.data);
    cr_assert(strstr(o.out.data, "score      0.666667  (2 of 3 accepted, 1 failed"), "%s",
              o.out.data);
    cr_assert(strstr(o.out.data, "db/write"), "%s", o.out.data);
    cr_assert(strstr(o.out.data, "line 1 differs"), "%s", o.out.data);
    BROOD(&j, "report", job, "--json");
    json_t *v = json_of(&j);
    const json_t *list = json_object_get(v, "branches");
    cr_assert_eq(json_array_size(list), 4);
    cr_assert_eq(json_integer_value(json_object_get(json_array_get(list, 3), "wall_us")), 4000);
    json_decref(v);
    /* a batch is still a batch */
    BROOD(&b, "report", batch);
    cr_assert_eq(b.exit_code, 0);
    cr_assert(strstr(b.out.data, "problems           1"), "%s", b.out.data);
}

Test(cli_forks, report_of_a_job_with_an_expected_verdict)
{
    static const char *const wanted[] = { "partial|accepted", "accepted" };
    for (int i = 0; i < 2; i++) {
        cleanup_cli_run struct cli_run o, j;
        char sql[128], value[8];
        commit_job();
        (void)snprintf(sql, sizeof sql,
                       "UPDATE jobs SET labels = '{\"expected_verdict\":\"%s\"}' RETURNING 1",
                       wanted[i]);
        fixture_value(&f, sql, value, sizeof value);
        BROOD(&o, "report", job);
        cr_expect_eq(o.exit_code, i, "wanted %s: status %d", wanted[i], o.exit_code);
        cr_expect_eq(strstr(o.out.data, "wanted     accepted\n") != NULL, i, "%s", o.out.data);
        BROOD(&j, "report", job, "--json");
        json_t *v = json_of(&j);
        cr_expect_eq(j.exit_code, i);
        cr_expect_str_eq(text_at(v, "expected_verdict"), wanted[i]);
        json_decref(v);
    }
}

Test(cli_forks, artifacts_of_a_job)
{
    commit_job();
    cleanup_cli_run struct cli_run o, j, one, no, bad, none;
    BROOD(&o, "artifacts", job);
    cr_assert_eq(o.exit_code, 0, "%s", o.err.data);
    cr_assert(strstr(o.out.data, "(not stored: too_large)"), "%s", o.out.data);
    cr_assert(strstr(o.out.data, "\\x1b[2J -> /etc/passwd"), "%s", o.out.data);
    cr_assert(strstr(o.out.data, "\\xff.log") && !strchr(o.out.data, 0x1b), "%s", o.out.data);
    cr_assert(strstr(o.err.data, "3 listed, 2 stored, 7 bytes"), "%s", o.err.data);
    BROOD(&j, "artifacts", job, "--json");
    json_t *v = json_of(&j);
    cr_assert_eq(json_array_size(v), 3);
    cr_assert_str_eq(text_at(json_array_get(v, 0), "branch"), "db/write");
    json_decref(v);
    BROOD(&one, "artifacts", job, "--branch", "root/1", "--json");
    cr_assert_str_eq(one.out.data, "[]\n");
    BROOD(&no, "artifacts", job, "--branch", "nothing");
    cr_assert_eq(no.exit_code, 2, "%d %s", no.exit_code, no.err.data);
    cr_assert(strstr(no.err.data, "has no branch \"nothing\""), "%s", no.err.data);
    BROOD(&bad, "artifacts", "latest");
    cr_assert_eq(bad.exit_code, 2);
    BROOD(&none, "artifacts");
    cr_assert_eq(none.exit_code, 2);
    cr_assert(strstr(none.err.data, "which job?"), "%s", none.err.data);
}

static void keep(const char *name, const char *parent, char ret_id[ID_TEXT_BYTES])
{
    struct snapshot_row s = { .id = id_new(),
                              .vcpus = 1,
                              .memory_mib = 256,
                              .ttl_s = 7200,
                              .layer_bytes = 3 << 20,
                              .n_layers = 1 };
    (void)snprintf(s.tenant, sizeof s.tenant, "default");
    (void)snprintf(s.name, sizeof s.name, "%s", name);
    (void)snprintf(s.parent, sizeof s.parent, "%s", parent);
    (void)snprintf(s.digest, sizeof s.digest, "%s", HEX("abcd"));
    (void)snprintf(s.layers[0], sizeof s.layers[0], "%s", HEX("abcd"));
    (void)snprintf(s.template_name, sizeof s.template_name, "python");
    OK(store_snapshot_create(&f.pg, &s, NULL, &err));
    memcpy(ret_id, s.id.text, ID_TEXT_BYTES);
}

Test(cli_forks, snapshots)
{
    char base[ID_TEXT_BYTES], deps[ID_TEXT_BYTES], other[ID_TEXT_BYTES];
    cleanup_cli_run struct cli_run none, l, t, tj, s, rm, all, gone, usage, nobody;
    BROOD(&none, "snapshot", "list", "--json");
    cr_assert_str_eq(none.out.data, "[]\n");
    keep("base", "", base);
    keep("other", "", other);
    keep("deps", base, deps);
    keep("deep", deps, other);
    BROOD(&l, "snapshot", "list");
    cr_assert_eq(l.exit_code, 0, "%s", l.err.data);
    cr_assert(strstr(l.out.data, "\nbase ") && strstr(l.out.data, "\ndeep "), "%s", l.out.data);
    BROOD(&t, "snapshot", "tree");
    const char *a = strstr(t.out.data, "\nbase "), *b = strstr(t.out.data, "\n  deps "),
               *c = strstr(t.out.data, "\n    deep "), *d = strstr(t.out.data, "\nother ");
    cr_assert(a && b && c && d && a < b && b < c && c < d, "%s", t.out.data);
    BROOD(&tj, "snapshot", "tree", "--json");
    json_t *v = json_of(&tj);
    cr_assert_eq(json_array_size(v), 2);
    const json_t *below = json_object_get(json_array_get(v, 0), "below");
    cr_assert_str_eq(text_at(json_array_get(below, 0), "name"), "deps");
    json_decref(v);
    BROOD(&s, "snapshot", "show", "deps", "--json");
    v = json_of(&s);
    cr_assert_str_eq(text_at(v, "parent"), base);
    cr_assert_eq(json_integer_value(json_object_get(v, "children")), 1);
    json_decref(v);
    BROOD(&rm, "snapshot", "rm", "base");
    cr_assert_neq(rm.exit_code, 0);
    cr_assert(strstr(rm.err.data, "snapshot base has children: deps; --cascade deletes them too"),
              "%s", rm.err.data);
    BROOD(&all, "snapshot", "rm", "base", "--cascade");
    cr_assert_eq(all.exit_code, 0, "%s", all.err.data);
    cr_assert(strstr(all.out.data, "deleted deep"), "%s", all.out.data);
    BROOD(&gone, "snapshot", "show", "base");
    cr_assert_eq(gone.exit_code, 2, "%d", gone.exit_code);
    cr_assert(strstr(gone.err.data, "has no \"base\"; it has: other"), "%s", gone.err.data);
    BROOD(&usage, "snapshot", "list", "--cascade");
    cr_assert_eq(usage.exit_code, 2);
    BROOD(&nobody, "snapshot", "show", "other", "--tenant", "somebody");
    cr_assert(strstr(nobody.err.data, "tenant somebody has no \"other\""), "%s", nobody.err.data);
}

static int submit(const char *line, struct cli_run *o)
{
    char path[96];
    (void)snprintf(path, sizeof path, "/tmp/brood-cli-forks-%d.jsonl", (int)getpid());
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    (void)fprintf(file, "%s\n", line);
    cr_assert_eq(fclose(file), 0);
    BROOD(o, "submit", path);
    (void)unlink(path);
    return o->exit_code;
}

Test(cli_forks, a_job_starts_from_the_tenants_own_snapshot)
{
    char id[ID_TEXT_BYTES];
    cleanup_cli_run struct cli_run good, unknown, big, object, own;
    keep("deps", "", id);
    cr_assert_eq(submit("{\"template\":\"snapshot:deps\",\"command\":\"x\"}", &good), 0, "%s",
                 good.err.data);
    cr_assert_eq(fixture_number(&f, "SELECT count(*) FROM jobs WHERE template = 'snapshot:deps'"),
                 1);
    cr_assert_neq(submit("{\"template\":\"snapshot:nope\",\"command\":\"x\"}", &unknown), 0);
    cr_assert(strstr(unknown.err.data,
                     "template: snapshot: tenant default has no \"nope\"; it has: "
                     "deps"),
              "%s", unknown.err.data);
    cr_assert_neq(
        submit("{\"template\":\"snapshot:deps\",\"command\":\"x\",\"tests\":[{\"limits\":{"
               "\"memory_mib\":200}}]}",
               &big),
        0);
    cr_assert(strstr(big.err.data,
                     "tests[0].limits.memory_mib: 200, but template snapshot:deps has "
                     "at most 160 MiB"),
              "%s", big.err.data);
    cr_assert_neq(
        submit("{\"template\":\"python\",\"command\":\"x\",\"archive\":{\"format\":\"tar\","
               "\"object\":\"" HEX("eeee") "\"}}",
               &object),
        0);
    cr_assert(strstr(object.err.data, "archive.object: object eeee"), "%s", object.err.data);
    OK(store_upload_put(&f.pg, "default", HEX("eeee"), 10, 60, &err));
    cr_assert_eq(
        submit("{\"template\":\"python\",\"command\":\"x\",\"archive\":{\"format\":\"tar\","
               "\"object\":\"" HEX("eeee") "\"}}",
               &own),
        0, "%s", own.err.data);
}
