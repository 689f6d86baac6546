/* From a plan to the job: what job_parse makes of it. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/ci_job.h"
#include "cli/ci_options.h"
#include "common/model/tree.h"
#include "common/report/shard.h"

#define OBJECT "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void plan_of(const char *text, struct brood_json *plan)
{
    struct brood_json file;
    struct err err = { 0 };
    memset(plan, 0, sizeof *plan);
    cr_assert_eq(brood_json_parse(text, strlen(text), &file, &err), 0, "%s", err.text);
    cr_assert_eq(ci_plan_merge(plan, &file, &err), 0, "%s", err.text);
    brood_json_done(&file);
}

static struct job_spec *job_of(const struct brood_json *plan, const struct ci_deal *deal)
{
    struct job_spec *spec = NULL;
    struct err err = { 0 };
    cr_assert_eq(ci_job_make(plan, OBJECT, deal, &spec, &err), 0, "%s", err.text);
    return spec;
}

static const char *env_of(const struct tree_node *n, const char *name)
{
    for (int i = 0; i < n->n_env; i++) {
        if (strcmp(n->env[i].key, name) == 0) {
            return n->env[i].value;
        }
    }
    return "";
}

Test(ci_job, shards_are_branches_behind_one_setup)
{
    struct brood_json plan;
    plan_of("{\"setup\":[\"make\",\"make data\"],\"test\":[\"./t\",\"--shard={shard}/{shards}\"],"
            "\"shards\":4,\"reports\":[\"r.xml\"],\"artifacts\":[\"out/\",\"r.xml\"],"
            "\"env\":{\"A\":\"1\"},\"limits\":{\"cpu_ms\":5000},"
            "\"setup_limits\":{\"memory_mib\":100}}",
            &plan);
    struct ci_deal deal = { .shards = 4 };
    cleanup_job_spec struct job_spec *spec = job_of(&plan, &deal);
    cr_expect_str_eq(spec->template_name, "python");
    cr_expect_str_eq(spec->archive.object, OBJECT);
    cr_expect_eq(spec->archive.format, ARCHIVE_TAR_ZST);
    cr_expect_eq(spec->stop, JOB_STOP_ALL);
    cr_expect_eq(spec->n_steps, 2);
    cr_expect_eq(spec->steps[1].limits.memory_mib, 100);
    cr_expect_eq(spec->steps[1].limits.cpu_ms, CI_CPU_MS_DEFAULT);
    cr_assert_eq(spec->tree->n, 5);
    for (int i = 1; i <= 4; i++) {
        const struct tree_node *n = &spec->tree->nodes[i];
        char want[32];
        cr_assert(n->leaf);
        cr_expect_eq(ci_shard_of_node(&deal, i), i - 1);
        (void)snprintf(want, sizeof want, "%d-of-4", i);
        cr_expect_str_eq(n->name, want);
        (void)snprintf(want, sizeof want, "--shard=%d/4", i);
        cr_assert_eq(n->command.argc, 2);
        cr_expect_str_eq(n->command.argv[1], want);
        cr_expect_eq(n->command.limits.cpu_ms, 5000);
        cr_expect_eq(n->command.limits.output_bytes, CI_OUTPUT_BYTES_DEFAULT);
        (void)snprintf(want, sizeof want, "%d", i - 1);
        cr_expect_str_eq(env_of(n, "TEST_SHARD_INDEX"), want);
        cr_expect_str_eq(env_of(n, "CI_NODE_TOTAL"), "4");
        cr_expect_str_eq(env_of(n, "A"), "1");
        cr_assert_eq(n->n_artifacts, 2, "each glob once");
        cr_expect_str_eq(n->artifacts[0], "r.xml");
        cr_expect_str_eq(n->artifacts[1], "out/");
    }
    cr_expect_str_eq(env_of(&spec->tree->nodes[0], "A"), "1", "setup has the variables too");
    cr_expect_eq(ci_shard_of_node(&deal, 0), -1);
    cr_expect_eq(ci_shard_of_node(&deal, 5), -1);
    brood_json_done(&plan);
}

Test(ci_job, one_shard_is_a_plain_job)
{
    struct brood_json plan;
    plan_of("{\"test\":\"make check {shard}\"}", &plan);
    struct ci_deal deal = { .shards = plan.shards };
    cleanup_job_spec struct job_spec *spec = job_of(&plan, &deal);
    cr_assert_eq(spec->tree->n, 1);
    cr_expect_eq(spec->n_steps, 0);
    cr_expect(spec->stream);
    cr_expect_str_eq(spec->command.argv[2], "make check 1");
    cr_expect_str_eq(env_of(&spec->tree->nodes[0], "BROOD_SHARD_TOTAL"), "1");
    cr_expect_eq(ci_shard_of_node(&deal, 0), 0);
    brood_json_done(&plan);
}

Test(ci_job, dealt_files_are_arguments)
{
    struct brood_json plan;
    plan_of("{\"test\":\"exec ./t \\\"$@\\\"\",\"shards\":2}", &plan);
    const char *files[] = { "a", "b", "c" };
    unsigned shard[] = { 1, 0, 1 };
    struct ci_deal deal = { .shards = 2, .files = files, .shard = shard, .n = 3 };
    cleanup_job_spec struct job_spec *spec = job_of(&plan, &deal);
    const struct job_command *first = &spec->tree->nodes[1].command,
                             *second = &spec->tree->nodes[2].command;
    cr_assert_eq(first->argc, 5);
    cr_expect_str_eq(first->argv[4], "b");
    cr_assert_eq(second->argc, 6);
    cr_expect_str_eq(second->argv[4], "a");
    cr_expect_str_eq(second->argv[5], "c");
    brood_json_done(&plan);
}

Test(ci_job, the_jobs_rules_hold)
{
    struct brood_json plan;
    struct job_spec *spec = NULL;
    struct err err = { 0 };
    struct ci_deal deal = { .shards = SHARDS_MAX };
    plan_of("{\"test\":[\"t\"],\"shards\":1024}", &plan);
    cr_assert_eq(ci_job_make(&plan, OBJECT, &deal, &spec, &err), 0, "%s", err.text);
    job_spec_free(spec);
    cr_expect_eq(ci_job_make(&plan, "no digest", &deal, &spec, &err), -ERR_INVALID);
    cr_expect(strstr(err.text, "archive.object"), "%s", err.text);
    string_list_add(&plan.test, "\xff");
    cr_expect_eq(ci_job_make(&plan, OBJECT, &deal, &spec, &err), -ERR_INVALID);
    cr_expect(strstr(err.text, "test: must be UTF-8"), "%s", err.text);
    brood_json_done(&plan);
}

Test(ci_plan, the_command_line_wins)
{
    struct brood_json plan = { .shards = 3, .env = json_pack("{s:s}", "A", "line") }, file;
    struct err err = { 0 };
    static const char text[] =
        "{\"template\":\"c\",\"shards\":8,\"test\":\"make check\",\"setup\":\"make\","
        "\"reports\":[\"a\"],\"env\":{\"A\":\"file\",\"B\":\"2\"}}";
    string_list_add(&plan.test, "./t");
    string_list_add(&plan.reports, "b");
    cr_assert_eq(brood_json_parse(text, sizeof text - 1, &file, &err), 0, "%s", err.text);
    cr_assert_eq(ci_plan_merge(&plan, &file, &err), 0, "%s", err.text);
    cr_expect_eq(plan.shards, 3);
    cr_expect_str_eq(plan.template_name, "c");
    cr_expect_str_eq(plan.test.items[0], "./t");
    cr_expect_not(plan.test_is_shell);
    cr_expect_str_eq(plan.setup.items[0], "make");
    cr_expect_eq(plan.reports.n, 1);
    cr_expect_str_eq(plan.reports.items[0], "b");
    cr_expect_str_eq(json_string_value(json_object_get(plan.env, "A")), "line");
    cr_expect_str_eq(json_string_value(json_object_get(plan.env, "B")), "2");
    brood_json_done(&file);
    brood_json_done(&plan);
}

Test(ci_plan, a_command_is_needed)
{
    struct brood_json plan = { 0 }, file = { 0 };
    struct err err = { 0 };
    cr_expect_eq(ci_plan_merge(&plan, &file, &err), -ERR_USAGE);
    cr_expect(strstr(err.text, "which command"), "%s", err.text);
    brood_json_done(&plan);
}

Test(ci_deal, by_past_times_and_never_an_empty_shard)
{
    struct checkout_file rows[] = { { .path = "tests/test_a.py" },
                                    { .path = "tests/test_b.py" },
                                    { .path = "tests/test_c.py" },
                                    { .path = "tests/test_d.py" },
                                    { .path = "tests/util.py" } };
    struct checkout c = { .files = rows, .n = 5 };
    char *glob[] = { (char *)(uintptr_t) "tests/test_*.py", NULL };
    struct string_list globs = { .items = glob, .n = 1 };
    static const char past_text[] =
        "<testsuite name='s'><testcase classname='tests.test_b.T' name='x' time='9'/>"
        "<testcase classname='tests.test_a.T' name='x' time='1'/>"
        "<testcase classname='tests.test_c.T' name='x' time='1'/>"
        "<testcase classname='tests.test_d.T' name='x' time='0'/></testsuite>";
    cleanup_report struct report *past = NULL;
    struct err err = { 0 };
    struct ci_deal d;
    cr_assert_eq(report_read(REPORT_FORMAT_UNKNOWN, past_text, sizeof past_text - 1, &past, &err),
                 0, "%s", err.text);
    cr_assert_eq(ci_deal_make(&c, &globs, 2, past, &d, &err), 0, "%s", err.text);
    cr_assert_eq(d.n, 4);
    cr_expect_eq(d.timed, 4);
    cr_expect_neq(d.shard[0], d.shard[1], "the long one is alone");
    cr_expect_eq(d.shard[0], d.shard[2]);
    cr_expect_eq(d.shard[0], d.shard[3]);
    ci_deal_done(&d);
    /* More shards than files. */
    cr_assert_eq(ci_deal_make(&c, &globs, 100, NULL, &d, &err), 0, "%s", err.text);
    cr_expect_eq(d.shards, 4);
    unsigned seen = 0;
    for (size_t i = 0; i < d.n; i++) {
        seen |= 1u << d.shard[i];
    }
    cr_expect_eq(seen, 15u);
    ci_deal_done(&d);
    glob[0] = (char *)(uintptr_t) "nothing";
    cr_expect_eq(ci_deal_make(&c, &globs, 2, NULL, &d, &err), -ERR_INVALID);
    cr_expect(strstr(err.text, "no file of the checkout matches"), "%s", err.text);
}
