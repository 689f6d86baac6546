/* Branches, tests, setup steps, keep, artifacts, archive: what is read, what is inherited, and what
 * is refused with which words. */
#include "common/model/tree.h"
#include "tests/unit/common/job_case.h"

#define T "{\"template\":\"python\""

static const struct tree_node *node(const struct job_spec *s, int i)
{
    cr_assert_lt(i, s->tree->n);
    return &s->tree->nodes[i];
}

Test(branches, a_plain_job_is_a_tree_of_one_leaf)
{
    cleanup_job_spec struct job_spec *s = parse(
        HEAD ",\"args\":[\"x\"],\"setup\":\"make\",\"files\":[{\"path\":\"a\",\"text\":\"\"}],"
             "\"stdin\":\"in\",\"env\":{\"A\":\"1\"},\"limits\":{\"cpu_ms\":70}}");
    cr_assert_eq(s->tree->n, 1);
    const struct tree_node *n = node(s, 0);
    cr_assert(n->leaf && n->parent == -1 && n->end == 1 && n->depth == 0 && s->tree->n_leaves == 1);
    cr_assert_str_eq(n->path, "root");
    cr_assert_str_eq(n->name_path, "");
    cr_assert_str_eq(tree_usage_branch(n), "");
    cr_assert_eq(n->command.argc, 2);
    cr_assert_eq(n->command.limits.cpu_ms, 70);
    cr_assert_eq(n->n_setup, 1);
    cr_assert_eq(n->setup, s->steps);
    cr_assert_eq(s->setup.argv, s->steps[0].argv);
    cr_assert_eq(n->n_files, 1);
    cr_assert_eq(n->stdin_data->len, 2);
    cr_assert_eq(n->n_env, 1);
    cr_assert(!n->has_expect && !n->keep && !n->archive);
    cr_assert_eq(s->parallel, JOB_PARALLEL_MAX);
    cr_assert_eq(s->stop, JOB_STOP_ALL);
    cr_assert_eq(s->isolation, ISOLATION_VM);
}

/*          root
 *         /    \
 *      build    plain(1)
 *      /   \
 *    fast  slow                 indexes: 0 root, 1 build, 2 fast, 3 slow, 4 plain */
static const char family[] = T
    ",\"command\":[\"run\",\"all\"],\"limits\":{\"cpu_ms\":1000,\"processes\":9},\"stdin\":\"job\","
    "\"env\":{\"A\":\"1\",\"B\":\"2\"},\"expect\":{\"stdout\":\"yes\"},\"artifacts\":[\"out/**\"],"
    "\"setup\":[{\"command\":\"one\"},{\"command\":[\"two\"],\"limits\":{\"cpu_ms\":5000}}],"
    "\"branches\":[{\"name\":\"build\",\"setup\":\"make\",\"env\":{\"B\":\"3\",\"C\":\"4\"},"
    "\"limits\":{\"wall_ms\":77},\"branches\":[{\"name\":\"fast\",\"args\":[\"-O2\"],\"weight\":3},"
    "{\"name\":\"slow\",\"command\":\"other\",\"stdin\":\"\",\"expect\":{\"exit_code\":2},"
    "\"limits\":{\"cpu_ms\":50},\"artifacts\":[]}]},{\"keep\":{\"name\":\"base\",\"ttl_s\":60}}]}";

Test(branches, nodes_in_depth_first_order)
{
    cleanup_job_spec struct job_spec *s = parse(family);
    const struct {
        int parent, end, depth, ordinal;
        bool leaf;
        const char *path, *name_path;
    } want[] = { { -1, 5, 0, 0, false, "root", "" },
                 { 0, 4, 1, 0, false, "root/0", "build" },
                 { 1, 3, 2, 0, true, "root/0/0", "build/fast" },
                 { 1, 4, 2, 1, true, "root/0/1", "build/slow" },
                 { 0, 5, 1, 1, true, "root/1", "1" } };
    cr_assert_eq(s->tree->n, 5);
    cr_assert_eq(s->tree->n_leaves, 3);
    cr_assert_eq(s->tree->depth, 2);
    for (int i = 0; i < 5; i++) {
        const struct tree_node *n = node(s, i);
        cr_assert_eq(n->index, i);
        cr_assert_eq(n->parent, want[i].parent);
        cr_assert_eq(n->end, want[i].end, "%d: %d", i, n->end);
        cr_assert_eq(n->depth, want[i].depth);
        cr_assert_eq(n->ordinal, want[i].ordinal);
        cr_assert_eq(n->leaf, want[i].leaf);
        cr_assert_str_eq(n->path, want[i].path);
        cr_assert_str_eq(n->name_path, want[i].name_path);
        cr_assert_str_eq(tree_usage_branch(n), i ? want[i].path : "");
    }
}

Test(branches, what_is_inherited)
{
    cleanup_job_spec struct job_spec *s = parse(family);
    const struct tree_node *root = node(s, 0), *build = node(s, 1), *fast = node(s, 2),
                           *slow = node(s, 3), *plain = node(s, 4);
    /* inner nodes set up and run nothing else */
    cr_assert(root->command.argc == 0 && build->command.argc == 0 && root->n_artifacts == 0);
    cr_assert_eq(root->n_setup, 2);
    cr_assert_eq(root->setup[0].limits.cpu_ms, 30000);
    cr_assert_eq(root->setup[1].limits.cpu_ms, 5000);
    cr_assert_eq(fast->n_setup, 0);
    /* command and args */
    cr_assert_eq(fast->command.argc, 3);
    cr_assert_str_eq(fast->command.argv[1], "all");
    cr_assert_str_eq(fast->command.argv[2], "-O2");
    cr_assert_null(fast->command.argv[3]);
    cr_assert_str_eq(slow->command.argv[2], "other");
    cr_assert_eq(plain->command.argc, 2);
    /* limits: own over the parent's over the job's over defaults; wall follows what is in force */
    cr_assert_eq(fast->command.limits.cpu_ms, 1000);
    cr_assert_eq(fast->command.limits.wall_ms, 77);
    cr_assert_eq(fast->command.limits.processes, 9);
    cr_assert_eq(slow->command.limits.cpu_ms, 50);
    cr_assert_eq(slow->command.limits.wall_ms, 77);
    cr_assert_eq(plain->command.limits.wall_ms, 7000);
    cr_assert_eq(plain->command.limits.memory_mib, 256);
    /* stdin, expect, artifacts: an empty one is one's own */
    cr_assert_eq(fast->stdin_data->len, 3);
    cr_assert_eq(slow->stdin_data->len, 0);
    cr_assert(fast->expect->has_stdout && fast->has_expect);
    cr_assert(!slow->expect->has_stdout && slow->expect->exit_code == 2);
    cr_assert_eq(fast->n_artifacts, 1);
    cr_assert_eq(slow->n_artifacts, 0);
    /* env: merged, own wins */
    cr_assert_eq(plain->n_env, 2);
    cr_assert_eq(fast->n_env, 3);
    bool seen = false;
    for (int i = 0; i < fast->n_env; i++) {
        seen = seen || (strcmp(fast->env[i].key, "B") == 0 && strcmp(fast->env[i].value, "3") == 0);
        cr_assert(strcmp(fast->env[i].key, "B") != 0 || strcmp(fast->env[i].value, "2") != 0);
    }
    cr_assert(seen);
    cr_assert(fast->has_weight && fast->weight == 3 && !slow->has_weight && slow->weight == 1);
    cr_assert_str_eq(plain->keep->name, "base");
    cr_assert_eq(plain->keep->ttl_s, 60);
}

Test(branches, tests_are_leaves_under_another_name)
{
    cleanup_job_spec struct job_spec *s = parse(
        HEAD ",\"parallel\":3,\"stop\":\"first_failure\",\"tests\":[{\"stdin\":\"1\",\"expect\":"
             "{\"stdout\":\"2\"},\"files\":[{\"path\":\"h\",\"text\":\"x\"}],\"weight\":0},"
             "{\"name\":\"two\"}]}");
    cr_assert_eq(s->tree->n, 3);
    cr_assert(node(s, 1)->test && node(s, 1)->leaf && node(s, 1)->n_files == 1);
    cr_assert(node(s, 1)->has_weight && node(s, 1)->weight == 0);
    cr_assert_str_eq(node(s, 2)->name, "two");
    cr_assert_eq(node(s, 2)->n_files, 0);
    cr_assert_eq(node(s, 2)->stdin_data->len, 0);
    cr_assert_eq(s->parallel, 3);
    cr_assert_eq(s->stop, JOB_STOP_FIRST_FAILURE);
    char at[TREE_FIELD_MAX];
    tree_field(s->tree, 2, at);
    cr_assert_str_eq(at, "tests[1]");
}

Test(branches, fields_by_level)
{
    refused(HEAD ",\"tests\":[{\"keep\":{\"name\":\"a\"}}]}", ERR_INVALID,
            "tests[0].keep: unknown field; known here: name, files, env, command, args, stdin");
    refused(HEAD ",\"branches\":[{},{\"branches\":[{\"tests\":[{\"cmd\":1}]}]}]}", ERR_INVALID,
            "branches[1].branches[0].tests[0].cmd: unknown field");
    refused(HEAD ",\"branches\":[{\"template\":\"c\"}]}", ERR_INVALID,
            "branches[0].template: unknown field");
    refused(HEAD ",\"branches\":[{\"files\":[{\"path\":\"../x\",\"text\":\"\"}]}]}", ERR_INVALID,
            "branches[0].files[0].path: \"../x\": must be relative");
    refused(HEAD ",\"branches\":[{\"files\":[{\"path\":\"x\",\"text\":\"\"},{\"path\":\"x/"
                 "y\",\"text\":\"\"}]}]}",
            ERR_INVALID,
            "branches[0].files[0].path: \"x\" is a file and the folder of "
            "branches[0].files[1]");
    refused(HEAD ",\"branches\":[{\"env\":{\"1A\":\"\"}}]}", ERR_INVALID,
            "branches[0].env.1A: a v");
    refused(HEAD ",\"branches\":[{\"expect\":{\"compare\":\"exact\"}}]}", ERR_INVALID,
            "branches[0].expect.compare: only together with branches[0].expect.stdout");
    refused(HEAD ",\"tests\":[{\"limits\":{\"cpu_ms\":1}}]}", ERR_INVALID,
            "tests[0].limits.cpu_ms: must be a whole number from 10 to 3600000");
    refused(HEAD ",\"branches\":[{\"setup\":[{\"command\":\"a\"},{\"command\":[]}]}]}", ERR_INVALID,
            "branches[0].setup[1].command: must be a list");
    refused(HEAD ",\"branches\":[{\"stdin\":{\"base64\":\"?\"}}]}", ERR_INVALID,
            "branches[0].stdin.base64: must be base64");
    refused(HEAD ",\"tests\":[{\"weight\":-1}]}", ERR_INVALID,
            "tests[0].weight: must be a whole number from 0 to 1000000");
    refused(HEAD ",\"tests\":[{\"weight\":1000001}]}", ERR_INVALID, "tests[0].weight: must be");
    refused(HEAD ",\"tests\":[{}],\"branches\":[{}]}", ERR_INVALID,
            "tests: either branches or tests, not both");
    refused(HEAD ",\"tests\":[]}", ERR_INVALID, "tests: must hold at least one");
    refused(HEAD ",\"branches\":{}}", ERR_INVALID, "branches: must be a list of objects");
    refused(HEAD ",\"branches\":[1]}", ERR_INVALID, "branches[0]: must be an object");
    refused(HEAD ",\"weight\":1}", ERR_INVALID, "weight: unknown field");
}

Test(branches, names_are_unique_among_siblings)
{
    refused(HEAD ",\"tests\":[{\"name\":\"a\"},{},{\"name\":\"a\"}]}", ERR_INVALID,
            "tests[2].name: \"a\" is also the name of tests[0]");
    refused(HEAD ",\"branches\":[{\"branches\":[{\"name\":\"1\"},{}]}]}", ERR_INVALID,
            "branches[0].branches[1].name: \"1\" is also the name of branches[0].branches[0]");
    refused(HEAD ",\"tests\":[{\"name\":\"a/b\"}]}", ERR_INVALID,
            "tests[0].name: must not hold a '/'");
    refused(HEAD ",\"tests\":[{\"name\":\"\"}]}", ERR_INVALID, "tests[0].name: must not be empty");
    fits(HEAD ",\"tests\":[{\"name\":\"", "n", JOB_NAME_MAX, "\"}]}");
    too_much(HEAD ",\"tests\":[{\"name\":\"", "n", JOB_NAME_MAX + 1, "\"}]}", ERR_TOO_LARGE,
             "tests[0].name: 129 bytes");
    cleanup_job_spec struct job_spec *s = parse(
        HEAD ",\"branches\":[{\"name\":\"a\",\"branches\":[{\"name\":\"a\"}]},{\"name\":\"b\","
             "\"branches\":[{\"name\":\"a\"}]}]}");
    cr_assert_str_eq(node(s, 4)->name_path, "b/a");
}

Test(branches, a_leaf_needs_a_command)
{
    refused(T "}", ERR_INVALID, "command: missing");
    refused(T ",\"tests\":[{\"command\":\"x\"},{}]}", ERR_INVALID,
            "tests[1].command: missing, and there is none to inherit");
    refused(T ",\"branches\":[{\"setup\":\"x\",\"branches\":[{\"name\":\"deep\"}]}]}", ERR_INVALID,
            "branches[0].branches[0].command: missing");
    refused(T ",\"args\":[\"x\"],\"tests\":[{\"command\":\"x\"}]}", ERR_INVALID,
            "args: only together with a command");
    refused(T ",\"tests\":[{\"args\":[\"x\"]}]}", ERR_INVALID,
            "tests[0].args: there is no command that they belong to");
    cleanup_job_spec struct job_spec *s =
        parse(T ",\"branches\":[{\"command\":\"mid\",\"tests\":[{},{\"args\":[]}]}]}");
    cr_assert_str_eq(node(s, 2)->command.argv[2], "mid");
    /* nothing but a state to keep */
    cleanup_job_spec struct job_spec *k = parse(T ",\"setup\":\"x\",\"keep\":{\"name\":\"k\"}}");
    cr_assert_eq(node(k, 0)->command.argc, 0);
    cr_assert_eq(k->keep.ttl_s, JOB_KEEP_TTL_S_DEFAULT);
}

Test(branches, inherited_arguments_and_env_have_maxima)
{
    char job[256];
    (void)snprintf(job, sizeof job, "%s", T ",\"command\":[\"x\"],\"tests\":[{\"args\":[\"\"");
    fits(job, ",\"\"", JOB_ARGS_MAX - 2, "]}]}");
    too_much(job, ",\"\"", JOB_ARGS_MAX - 1, "]}]}", ERR_TOO_LARGE,
             "tests[0].args: more than 512 arguments together with the command");
    too_much(T ",\"command\":[\"12345678\"],\"tests\":[{\"args\":[\"", "a", JOB_ARGV_BYTES_MAX - 9,
             "\"]}]}", ERR_TOO_LARGE, "tests[0].args: more than 36000 bytes of arguments");
    too_much(HEAD ",\"env\":{\"B\":\"1\"},\"tests\":[{\"env\":{\"A\":\"", "a",
             JOB_ENV_BYTES_MAX - 3 - 3, "\"}}]}", ERR_TOO_LARGE,
             "tests[0].env: with what it inherits");
}

Test(branches, setup_steps)
{
    cleanup_job_spec struct job_spec *a = parse(HEAD ",\"setup\":[\"gcc\",\"x\"]}");
    cr_assert_eq(a->n_steps, 1);
    cr_assert_eq(a->setup.argc, 2);
    refused(HEAD ",\"setup\":[]}", ERR_INVALID, "setup: must be a list of strings (at least one)");
    refused(HEAD ",\"setup\":[{\"command\":\"a\"},\"b\"]}", ERR_INVALID,
            "setup[1]: must be an object with command");
    refused(HEAD ",\"setup\":[\"a\",{\"command\":\"a\"}]}", ERR_INVALID,
            "setup[1]: must be a string");
    refused(HEAD ",\"setup\":[{\"limits\":{}}]}", ERR_INVALID, "setup[0].command: missing");
    fits(HEAD ",\"setup\":[{\"command\":\"a\"}", ",{\"command\":\"a\"}", JOB_SETUP_STEPS_MAX - 1,
         "]}");
    too_much(HEAD ",\"setup\":[{\"command\":\"a\"}", ",{\"command\":\"a\"}", JOB_SETUP_STEPS_MAX,
             "]}", ERR_TOO_LARGE, "setup: 33 steps; at most 32");
}

Test(branches, how_many)
{
    fits(HEAD ",\"tests\":[{}", ",{}", JOB_TREE_CHILDREN_MAX - 1, "]}");
    too_much(HEAD ",\"tests\":[{}", ",{}", JOB_TREE_CHILDREN_MAX, "]}", ERR_TOO_LARGE,
             "tests: 1025; at most 1024 side by side");
    /* 4 branches of 1022 tests each and one more of 2: 1 + 5 + 4088 + 2 = 4096 */
    for (int extra = 2; extra <= 3; extra++) {
        struct buf b;
        struct err err;
        buf_init(&b, 1 << 20);
        cr_assert_eq(buf_add_str(&b, HEAD ",\"branches\":[", &err), 0);
        for (int i = 0; i < 5; i++) {
            cr_assert_eq(buf_add_str(&b, i ? ",{\"tests\":[{}" : "{\"tests\":[{}", &err), 0);
            for (int k = 1; k < (i < 4 ? 1022 : extra); k++) {
                cr_assert_eq(buf_add_str(&b, ",{}", &err), 0);
            }
            cr_assert_eq(buf_add_str(&b, "]}", &err), 0);
        }
        cr_assert_eq(buf_add_str(&b, "]}", &err), 0);
        if (extra == 2) {
            cleanup_job_spec struct job_spec *s = parse_n(b.data, b.len);
            cr_assert_eq(s->tree->n, JOB_TREE_NODES_MAX);
            cr_assert_str_eq(node(s, 4095)->path, "root/4/1");
        } else {
            refused_n(b.data, b.len, ERR_TOO_LARGE,
                      "branches[4].tests: more than 4095 branches and tests in all");
        }
        buf_done(&b);
    }
    for (int depth = JOB_TREE_DEPTH_MAX; depth <= JOB_TREE_DEPTH_MAX + 1; depth++) {
        char job[1024] = HEAD;
        size_t used = strlen(job);
        for (int i = 0; i < depth; i++) {
            used += (size_t)snprintf(job + used, sizeof job - used,
                                     ",\"branches\":[{\"name\":\"n%d\"", i);
        }
        for (int i = 0; i < depth; i++) {
            used += (size_t)snprintf(job + used, sizeof job - used, "}]");
        }
        (void)snprintf(job + used, sizeof job - used, "}");
        if (depth == JOB_TREE_DEPTH_MAX) {
            cleanup_job_spec struct job_spec *s = parse(job);
            cr_assert_eq(s->tree->depth, JOB_TREE_DEPTH_MAX);
            cr_assert_str_eq(node(s, 8)->name_path, "n0/n1/n2/n3/n4/n5/n6/n7");
        } else {
            refused(job, ERR_TOO_LARGE, "branches[0].branches: deeper than 8 levels of branches");
        }
    }
}

Test(branches, the_rules_of_the_tree)
{
    refused(HEAD ",\"parallel\":0}", ERR_INVALID, "parallel: must be a whole number from 1 to 64");
    refused(HEAD ",\"parallel\":65}", ERR_INVALID, "parallel: must be");
    refused(HEAD ",\"stop\":\"never\"}", ERR_INVALID, "stop: must be all or first_failure");
    refused(HEAD ",\"isolation\":\"none\"}", ERR_INVALID, "isolation: must be vm or shared");
    refused(HEAD ",\"isolation\":\"shared\",\"tests\":[{}],\"keep\":{\"name\":\"k\"}}", ERR_INVALID,
            "isolation: shared: there are no forks, so neither keep nor on_fork");
    refused(HEAD ",\"isolation\":\"shared\",\"tests\":[{}],\"on_fork\":\"x\"}", ERR_INVALID,
            "isolation: shared: there are no forks");
    refused("{\"template\":\"snapshot:deps\",\"command\":[\"a\"],\"isolation\":\"shared\"}",
            ERR_INVALID,
            "isolation: shared: a container does not show what a kept state has in its folders");
    refused(HEAD ",\"isolation\":\"shared\",\"branches\":[{},{\"branches\":[{}]}]}", ERR_INVALID,
            "branches[1]: a branch that is kept or branches again needs isolation vm");
    cleanup_job_spec struct job_spec *s =
        parse(HEAD ",\"isolation\":\"shared\",\"branches\":[{\"setup\":\"x\"}],\"parallel\":64}");
    cr_assert_eq(s->isolation, ISOLATION_SHARED);
    cleanup_job_spec struct job_spec *f = parse(
        HEAD ",\"on_fork\":{\"command\":\"reseed\",\"limits\":{\"cpu_ms\":500}},\"tests\":[{}]}");
    cr_assert_str_eq(f->on_fork.argv[2], "reseed");
    cr_assert_eq(f->on_fork.limits.cpu_ms, 500);
    refused(HEAD ",\"on_fork\":{\"limits\":{}}}", ERR_INVALID, "on_fork.command: missing");
}

Test(branches, keep)
{
    cleanup_job_spec struct job_spec *s =
        parse(HEAD ",\"keep\":{\"name\":\"a.b-C_1\",\"pin\":true}}");
    cr_assert(s->keep.pin && s->keep.ttl_s == 0);
    refused(HEAD ",\"keep\":{}}", ERR_INVALID, "keep.name: missing");
    refused(HEAD ",\"keep\":\"a\"}", ERR_INVALID, "keep: must be an object");
    refused(HEAD ",\"keep\":{\"name\":\".a\"}}", ERR_INVALID, "keep.name: must be letters");
    refused(HEAD ",\"keep\":{\"name\":\"a/b\"}}", ERR_INVALID, "keep.name: must be letters");
    refused(HEAD ",\"keep\":{\"name\":\"a\",\"ttl_s\":59}}", ERR_INVALID,
            "keep.ttl_s: must be a whole number from 60 to 31536000");
    refused(HEAD ",\"keep\":{\"name\":\"a\",\"ttl_s\":31536001}}", ERR_INVALID,
            "keep.ttl_s: must be");
    refused(HEAD ",\"keep\":{\"name\":\"a\",\"ttl_s\":60,\"pin\":true}}", ERR_INVALID,
            "keep.ttl_s: not together with pin");
    fits(HEAD ",\"keep\":{\"name\":\"", "k", JOB_SNAPSHOT_NAME_MAX, "\"}}");
    too_much(HEAD ",\"keep\":{\"name\":\"", "k", JOB_SNAPSHOT_NAME_MAX + 1, "\"}}", ERR_TOO_LARGE,
             "keep.name: 65 bytes");
    refused(HEAD ",\"branches\":[{\"keep\":{\"name\":\"k\"}},{\"branches\":[{\"keep\":{\"name\":"
                 "\"k\"}}]}]}",
            ERR_INVALID, "branches[1].branches[0].keep.name: \"k\" is kept twice");
}

Test(branches, a_snapshot_as_template)
{
    cleanup_job_spec struct job_spec *s =
        parse("{\"template\":\"snapshot:deps.v1\",\"command\":\"x\"}");
    cr_assert_str_eq(job_snapshot_name(s), "deps.v1");
    cleanup_job_spec struct job_spec *t = parse(HEAD "}");
    cr_assert_null(job_snapshot_name(t));
    refused("{\"template\":\"snapshot:\",\"command\":\"x\"}", ERR_INVALID,
            "template: behind snapshot:");
    refused("{\"template\":\"snapshot:a:b\",\"command\":\"x\"}", ERR_INVALID, "template: behind");
    refused("{\"template\":\"snapshot:a@b\",\"command\":\"x\"}", ERR_INVALID, "template: behind");
}

Test(branches, artifacts)
{
    cleanup_job_spec struct job_spec *s =
        parse(HEAD ",\"artifacts\":[\"out/**\",\"report.xml\",\"a b/*.[ch]\"]}");
    cr_assert_eq(node(s, 0)->n_artifacts, 3);
    refused(HEAD ",\"artifacts\":\"x\"}", ERR_INVALID, "artifacts: must be a list of patterns");
    refused(HEAD ",\"artifacts\":[\"/etc/x\"]}", ERR_INVALID, "artifacts[0]: ");
    refused(HEAD ",\"tests\":[{\"artifacts\":[\"a\",\"../x\"]}]}", ERR_INVALID,
            "tests[0].artifacts[1]: ");
    fits(HEAD ",\"artifacts\":[\"a\"", ",\"a\"", JOB_ARTIFACT_GLOBS_MAX - 1, "]}");
    too_much(HEAD ",\"artifacts\":[\"a\"", ",\"a\"", JOB_ARTIFACT_GLOBS_MAX, "]}", ERR_TOO_LARGE,
             "artifacts: 65 patterns; at most 64");
    fits(HEAD ",\"artifacts\":[\"", "a", JOB_ARTIFACT_GLOB_MAX, "\"]}");
    too_much(HEAD ",\"artifacts\":[\"", "a", JOB_ARTIFACT_GLOB_MAX + 1, "\"]}", ERR_TOO_LARGE,
             "artifacts[0]: 257 bytes; at most 256");
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

Test(branches, archive)
{
    cleanup_job_spec struct job_spec *s =
        parse(HEAD ",\"archive\":{\"format\":\"tar.zst\",\"base64\":\"AAE=\"}}");
    cr_assert_eq(node(s, 0)->archive->format, ARCHIVE_TAR_ZST);
    cr_assert_eq(s->archive.content.len, 2);
    cleanup_job_spec struct job_spec *o =
        parse(HEAD ",\"archive\":{\"format\":\"zip\",\"object\":\"" HEX64 "\"}}");
    cr_assert_str_eq(o->archive.object, HEX64);
    refused(HEAD ",\"archive\":{\"format\":\"rar\",\"base64\":\"AAE=\"}}", ERR_INVALID,
            "archive.format: must be tar, tar.gz, tar.zst or zip");
    refused(HEAD ",\"archive\":{\"format\":\"tar\"}}", ERR_INVALID,
            "needs either base64 or object");
    refused(HEAD ",\"archive\":{\"format\":\"tar\",\"base64\":\"AAE=\",\"object\":\"" HEX64 "\"}}",
            ERR_INVALID, "needs either base64 or object");
    refused(HEAD ",\"archive\":{\"format\":\"tar\",\"base64\":\"\"}}", ERR_INVALID,
            "archive.base64: must not be empty");
    refused(HEAD ",\"archive\":{\"format\":\"tar\",\"object\":\"ABC\"}}", ERR_INVALID,
            "archive.object: must be a SHA-256");
}

Test(branches, memory_of_every_node_is_checked_and_clamped)
{
    struct template_info t = { .name = "t", .memory_mib = 256, .vcpus = 1 };
    struct err err = { 0 };
    cleanup_job_spec struct job_spec *s = parse(
        HEAD ",\"branches\":[{\"setup\":\"x\",\"tests\":[{},{\"limits\":{\"memory_mib\":161}}]}]}");
    cr_assert_eq(job_check_template(s, &t, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "branches[0].tests[1].limits.memory_mib: 161, but template t has at "
                               "most 160 MiB"),
              "%s", err.text);
    cleanup_job_spec struct job_spec *u = parse(
        HEAD
        ",\"branches\":[{\"setup\":[{\"command\":\"x\"},{\"command\":\"y\",\"limits\":{\"memory_"
        "mib\":400}}],\"tests\":[{}]}]}");
    cr_assert_eq(job_check_template(u, &t, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "branches[0].setup[1].limits.memory_mib"), "%s", err.text);
    cleanup_job_spec struct job_spec *v =
        parse(HEAD ",\"branches\":[{\"setup\":\"x\",\"tests\":[{}]}]}");
    cr_assert_eq(job_check_template(v, &t, &err), 0);
    job_clamp_to_template(v, &t);
    cr_assert_eq(node(v, 1)->setup[0].limits.memory_mib, 160);
    cr_assert_eq(node(v, 2)->command.limits.memory_mib, 160);
}
