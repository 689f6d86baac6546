/* Jobs with branches, as docs/forks.md promises them: a tree of states, each set up once and forked
 * for what is below it. Jobs are written here as JSON with ' for " (no value holds either, but for
 * programs, which go in as files). What kills processes is in test_branches_killed.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

#define CLOCK_TOLERANCE_S 1.0
#define TREE_LEVELS 4
#define TREE_WIDTH 3
#define TREE_LEAVES 81

/* ---- jobs and what they gave ---- */

static json_t *job_of(const char *text)
{
    cleanup_free char *copy = strdup(text);
    json_error_t at;
    for (char *p = copy; (p = strchr(p, '\'')); p++) {
        *p = '"';
    }
    json_t *job = json_loads(copy, 0, &at);
    cr_assert_not_null(job, "%s: column %d of %s", at.text, at.column, copy);
    return job;
}

static void add_file(json_t *node, const char *path, const char *text)
{
    json_t *files = json_object_get(node, "files");
    if (!files) {
        files = json_array();
        (void)json_object_set_new(node, "files", files);
    }
    (void)json_array_append_new(files, json_pack("{s:s, s:s}", "path", path, "text", text));
}

/* Takes the job; its result (json_decref). */
static json_t *result_of(json_t *job)
{
    json_t *jobs = json_array();
    (void)json_array_append_new(jobs, job);
    json_t *results = e2e_run_batch(jobs);
    cr_assert_eq(json_array_size(results), 1);
    json_t *result = json_incref(json_array_get(results, 0));
    json_decref(results);
    json_decref(jobs);
    cr_assert_not_null(e2e_at(result, "tree"), "%s: %s", e2e_verdict(result),
                       json_string_value(e2e_at(result, "reason")));
    return result;
}

static const char *job_id(const json_t *result)
{
    return json_string_value(e2e_at(result, "job"));
}

static const json_t *branch(const json_t *result, const char *name)
{
    const json_t *b;
    size_t i;
    json_array_foreach(e2e_at(result, "branches"), i, b)
    {
        if (strcmp(json_string_value(json_object_get(b, "name")), name) == 0) {
            return b;
        }
    }
    cr_assert_fail("no branch %s", name);
    return NULL;
}

static json_int_t number(const json_t *v, const char *path)
{
    const json_t *n = e2e_at(v, path);
    return json_is_integer(n) ? json_integer_value(n) : -1;
}

static void verdict_is(const json_t *result, const char *name, const char *want)
{
    const json_t *b = name ? branch(result, name) : result;
    cleanup_buf struct buf err_out = { 0 };
    e2e_output(b, "stderr", &err_out);
    cr_expect_str_eq(e2e_verdict(b), want, "%s: %s, should be %s: %s; stderr: %.400s",
                     name ? name : "the job", e2e_verdict(b), want,
                     json_string_value(e2e_at(b, "reason")), err_out.len ? err_out.data : "");
}

static void printed(const json_t *result, const char *name, const char *want)
{
    cleanup_buf struct buf out = { 0 };
    e2e_output(branch(result, name), "stdout", &out);
    cr_expect(out.len == strlen(want) && memcmp(out.data, want, out.len) == 0,
              "%s printed \"%.*s\", should be \"%s\"", name, (int)out.len, (char *)out.data, want);
}

static void counted(const json_t *result, int accepted, int failed, int skipped, int cancelled,
                    int score_micro)
{
    cr_expect_eq(number(result, "tree.accepted"), accepted);
    cr_expect_eq(number(result, "tree.failed"), failed);
    cr_expect_eq(number(result, "tree.skipped"), skipped);
    cr_expect_eq(number(result, "tree.cancelled"), cancelled);
    cr_expect_eq(number(result, "tree.leaves"), accepted + failed + skipped + cancelled);
    cr_expect_eq(number(result, "tree.score_micro"), score_micro, "score %lld, should be %d",
                 (long long)number(result, "tree.score_micro"), score_micro);
}

/* Usage records of one node: "" for node 0, else its path by numbers. */
static int64_t bills(const json_t *result, const char *path)
{
    return e2e_sql("SELECT count(*) FROM usage_records WHERE job_id = '%s' AND branch = '%s' AND "
                   "charged_ms > 0",
                   job_id(result), path);
}

/* ---- a tree ---- */

static const char leaf_program[] = "import random, time, uuid\n"
                                   "print(open('path').read())\n"
                                   "print(repr(random.random()))\n"
                                   "print(uuid.uuid4())\n"
                                   "print(repr(time.time()))\n";

static json_t *levels(int depth)
{
    json_t *list = json_array();
    for (int i = 0; i < TREE_WIDTH; i++) {
        char name[2] = { (char)('a' + i), 0 }, setup[64];
        (void)snprintf(setup, sizeof setup, "printf /%s >> path", name);
        json_t *b = json_pack("{s:s, s:s}", "name", name, "setup", setup);
        if (depth > 1) {
            (void)json_object_set_new(b, "branches", levels(depth - 1));
        }
        (void)json_array_append_new(list, b);
    }
    return list;
}

/* Line n (from 0) of the four that a leaf prints; "" when it is missing. */
static void line_of(const json_t *b, int n, char ret_line[128])
{
    cleanup_buf struct buf out = { 0 };
    e2e_output(b, "stdout", &out);
    ret_line[0] = 0;
    cleanup_free char *text = strndup(out.len ? out.data : "", out.len);
    char *rest = text, *line;
    for (int i = 0; (line = strsep(&rest, "\n")); i++) {
        if (i == n) {
            (void)snprintf(ret_line, 128, "%.127s", line);
        }
    }
}

static void leaf_is_its_own(const json_t *result, const json_t *b, json_t *seen)
{
    const char *name = json_string_value(json_object_get(b, "name"));
    char path[160], line[128], key[160];
    (void)snprintf(path, sizeof path, "root/%s", name);
    line_of(b, 0, line);
    cr_expect_str_eq(line, path, "%s took another path", name);
    for (int i = 1; i <= 2; i++) {
        line_of(b, i, line);
        (void)snprintf(key, sizeof key, "%d:%s", i, line);
        cr_expect(line[0] != 0, "%s printed no line %d", name, i);
        cr_expect_null(json_object_get(seen, key), "%s repeats line %d of another: %s", name, i,
                       line);
        (void)json_object_set_new(seen, key, json_true());
    }
    line_of(b, 3, line);
    double says = strtod(line, NULL);
    /* Within the interval in which this very fork ran on the host. */
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records WHERE job_id = '%s' AND branch = '%s' "
                         "AND meter = 'vcpu_seconds' AND extract(epoch FROM from_ts) <= %.6f AND "
                         "extract(epoch FROM to_ts) >= %.6f",
                         job_id(result), json_string_value(json_object_get(b, "path")),
                         says + CLOCK_TOLERANCE_S, says - CLOCK_TOLERANCE_S),
                 1, "%s says %s, which is not when it ran", name, line);
}

Test(branches, every_leaf_of_a_tree_is_a_machine_of_its_own)
{
    json_t *job = job_of("{'template': 'python', 'setup': 'printf root > path',"
                         " 'command': ['python3', 'leaf.py'],"
                         " 'limits': {'cpu_ms': 30000, 'wall_ms': 300000}}");
    add_file(job, "leaf.py", leaf_program);
    (void)json_object_set_new(job, "branches", levels(TREE_LEVELS));
    json_t *result = result_of(job), *seen = json_object(), *b;
    verdict_is(result, NULL, "accepted");
    counted(result, TREE_LEAVES, 0, 0, 0, 1000000);
    size_t i;
    int leaves = 0;
    json_array_foreach(e2e_at(result, "branches"), i, b)
    {
        cr_expect_eq(number(b, "node"), (json_int_t)i + 1, "in order");
        cr_expect_lt(number(b, "parent"), (json_int_t)i + 1);
        if (json_is_true(json_object_get(b, "leaf"))) {
            leaf_is_its_own(result, b, seen);
            leaves++;
        }
    }
    cr_expect_eq(leaves, TREE_LEAVES);
    cr_expect_eq(i, 3 + 9 + 27 + 81);
    cr_expect_eq(e2e_sql("SELECT count(DISTINCT branch) FROM usage_records WHERE job_id = '%s'",
                         job_id(result)),
                 1 + 3 + 9 + 27 + 81, "each sandbox has its bill");
    json_decref(seen);
    json_decref(result);
}

/* ---- processes that were running at the fork ---- */

static const char server_program[] =
    "import http.server, os\n"
    "class Counter(http.server.BaseHTTPRequestHandler):\n"
    "    n = 0\n"
    "    def do_GET(self):\n"
    "        Counter.n += 1\n"
    "        body = b'%d\\n' % Counter.n\n"
    "        self.send_response(200)\n"
    "        self.send_header('Content-Length', str(len(body)))\n"
    "        self.end_headers()\n"
    "        self.wfile.write(body)\n"
    "    def log_message(self, *args):\n"
    "        pass\n"
    "server = http.server.HTTPServer(('127.0.0.1', 8080), Counter)\n"
    "open('ready', 'w').close()\n"
    "server.serve_forever()\n";
static const char ask_program[] =
    "import sys, urllib.request\n"
    "for i in range(int(sys.argv[1])):\n"
    "    print(urllib.request.urlopen('http://127.0.0.1:8080/').read().decode().strip())\n";

Test(branches, a_server_that_setup_left_running_is_copied)
{
    json_t *job = job_of("{'template': 'python',"
                         " 'setup': [{'command': 'setsid python3 server.py > log 2>&1 & "
                         "while [ ! -e ready ]; do sleep 0.1; done'},"
                         "           {'command': 'python3 ask.py 3'}],"
                         " 'command': ['python3', 'ask.py', '2'],"
                         " 'limits': {'cpu_ms': 30000, 'wall_ms': 300000},"
                         " 'tests': [{}, {}, {}, {}]}");
    add_file(job, "server.py", server_program);
    add_file(job, "ask.py", ask_program);
    json_t *result = result_of(job);
    verdict_is(result, NULL, "accepted");
    for (int i = 0; i < 4; i++) {
        char name[2] = { (char)('0' + i), 0 };
        verdict_is(result, name, "accepted");
        printed(result, name, "4\n5\n");
    }
    cleanup_buf struct buf out = { 0 };
    e2e_output(e2e_at(result, "setup"), "stdout", &out);
    cr_expect(out.len == 6 && memcmp(out.data, "1\n2\n3\n", 6) == 0, "setup asked first");
    json_decref(result);
}

/* ---- stop ---- */

Test(branches, first_failure_cancels_what_has_not_started)
{
    json_t *result = result_of(job_of(
        "{'template': 'python', 'command': ['sh', '-c'], 'stop': 'first_failure', 'parallel': 1,"
        " 'tests': [{'name': 'good', 'args': ['true']}, {'name': 'bad', 'args': ['exit 3']},"
        "           {'name': 'late', 'args': ['true']}, {'name': 'later', 'args': ['true']}]}"));
    verdict_is(result, NULL, "runtime_error");
    counted(result, 1, 1, 0, 2, 250000);
    verdict_is(result, "good", "accepted");
    verdict_is(result, "bad", "runtime_error");
    cr_expect_eq(number(branch(result, "bad"), "exit_code"), 3);
    verdict_is(result, "late", "cancelled");
    verdict_is(result, "later", "cancelled");
    cr_expect_eq(number(branch(result, "later"), "tries"), 0);
    cr_expect_eq(bills(result, "root/1"), 2);
    cr_expect_eq(bills(result, "root/2"), 0, "what did not run costs nothing");
    json_decref(result);
}

static int slots(void)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "status", "--json");
    json_t *status = json_loads(r.out.data, 0, NULL);
    int n = (int)number(status, "workers.0.slots");
    json_decref(status);
    return n;
}

Test(branches, first_failure_kills_what_runs)
{
    if (slots() < 2) {
        cr_skip_test("one slot: two branches never run at once here");
    }
    json_t *result = result_of(job_of(
        "{'template': 'python', 'command': ['sh', '-c'], 'stop': 'first_failure',"
        " 'limits': {'cpu_ms': 60000, 'wall_ms': 1200000}, 'parallel': 2,"
        " 'tests': [{'name': 'endless', 'args': ['sleep 600']},"
        "           {'name': 'bad', 'args': ['exit 3']}, {'name': 'late', 'args': ['true']}]}"));
    verdict_is(result, NULL, "runtime_error");
    counted(result, 0, 1, 0, 2, 0);
    verdict_is(result, "endless", "cancelled");
    verdict_is(result, "late", "cancelled");
    if (number(branch(result, "endless"), "measured_ms") > 0) {
        cr_expect_eq(bills(result, "root/0"), 2, "what was killed costs what it used");
    }
    json_decref(result);
}

/* ---- setup that fails ---- */

Test(branches, nothing_branches_from_a_setup_that_failed)
{
    json_t *result = result_of(job_of("{'template': 'python', 'setup': 'exit 1',"
                                      " 'command': ['true'],"
                                      " 'branches': [{'name': 'a', 'tests': [{}, {}]},"
                                      "              {'name': 'b'}]}"));
    verdict_is(result, NULL, "compile_error");
    counted(result, 0, 0, 3, 0, 0);
    cr_expect_eq(number(result, "setup.exit_code"), 1);
    verdict_is(result, "a", "skipped");
    verdict_is(result, "a/0", "skipped");
    verdict_is(result, "a/1", "skipped");
    verdict_is(result, "b", "skipped");
    cr_expect_eq(bills(result, ""), 2, "the setup is billed");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records WHERE job_id = '%s'", job_id(result)),
                 2, "and nothing else");
    json_decref(result);
}

Test(branches, a_limit_of_setup_is_named)
{
    json_t *result = result_of(job_of("{'template': 'python', 'command': ['true'],"
                                      " 'setup': {'command': 'while :; do :; done',"
                                      "           'limits': {'cpu_ms': 200}},"
                                      " 'tests': [{}]}"));
    verdict_is(result, NULL, "compile_error");
    cr_expect_str_eq(json_string_value(e2e_at(result, "limit.name")), "cpu_ms");
    verdict_is(result, "0", "skipped");
    json_decref(result);
}

Test(branches, of_several_setup_steps_the_second_fails)
{
    json_t *result =
        result_of(job_of("{'template': 'python', 'command': ['true'],"
                         " 'setup': [{'command': 'echo one'}, {'command': 'echo two; exit 4'},"
                         "           {'command': 'echo three'}],"
                         " 'tests': [{}]}"));
    verdict_is(result, NULL, "compile_error");
    cr_expect_eq(number(result, "setup_steps"), 3);
    cr_expect_eq(number(result, "setup_failed"), 1);
    cr_expect_eq(number(result, "setup.exit_code"), 4);
    cleanup_buf struct buf out = { 0 };
    e2e_output(e2e_at(result, "setup"), "stdout", &out);
    cr_expect(out.len == 8 && memcmp(out.data, "one\ntwo\n", 8) == 0, "the third never ran: %.*s",
              (int)out.len, (char *)out.data);
    json_decref(result);
}

Test(branches, a_branch_whose_setup_fails_fails_alone)
{
    json_t *result = result_of(job_of(
        "{'template': 'python', 'command': ['true'], 'on_fork': 'true',"
        " 'branches': [{'name': 'broken', 'setup': [{'command': 'true'}, {'command': 'exit 5'}],"
        "               'tests': [{}, {}]},"
        "              {'name': 'leaf', 'setup': 'exit 6'}, {'name': 'whole', 'tests': [{}]}]}"));
    verdict_is(result, NULL, "partial");
    counted(result, 1, 1, 2, 0, 250000);
    verdict_is(result, "broken", "compile_error");
    cr_expect_eq(number(branch(result, "broken"), "setup_steps"), 2, "on_fork is not one");
    cr_expect_eq(number(branch(result, "broken"), "setup_failed"), 1);
    verdict_is(result, "broken/0", "skipped");
    verdict_is(result, "broken/1", "skipped");
    verdict_is(result, "leaf", "compile_error");
    verdict_is(result, "whole", "accepted");
    cr_expect_eq(number(branch(result, "whole"), "score_micro"), 1000000);
    cr_expect_eq(bills(result, "root/0"), 2);
    cr_expect_eq(bills(result, "root/0/0"), 0);
    json_decref(result);
}

/* ---- each test's own ---- */

static const char echo_program[] = "import os, sys\n"
                                   "print(sys.argv[1:], os.environ['A'], os.environ.get('B'))\n"
                                   "print(sys.stdin.read(), end='')\n";

Test(branches, tests_have_their_own_input_weight_and_expectation)
{
    json_t *job =
        job_of("{'template': 'python', 'command': ['python3', 'echo.py'], 'args': ['all'],"
               " 'env': {'A': 'job', 'B': 'job'}, 'stdin': 'from the job',"
               " 'limits': {'cpu_ms': 30000, 'wall_ms': 300000},"
               " 'tests': [{'name': 'plain', 'weight': 1},"
               "           {'name': 'own', 'weight': 2, 'args': ['one', 'two'],"
               "            'env': {'B': 'test'}, 'stdin': 'its own'},"
               "           {'name': 'right', 'weight': 0, 'expect': {'stdout': 'X'},"
               "            'command': ['echo', 'X']},"
               "           {'name': 'wrong', 'weight': 4, 'expect': {'stdout': 'X'}},"
               "           {'name': 'code', 'weight': 1, 'expect': {'exit_code': 9}}]}");
    add_file(job, "echo.py", echo_program);
    json_t *result = result_of(job);
    verdict_is(result, NULL, "partial");
    counted(result, 3, 2, 0, 0, 375000);
    printed(result, "plain", "['all'] job job\nfrom the job");
    printed(result, "own", "['all', 'one', 'two'] job test\nits own");
    verdict_is(result, "plain", "accepted");
    verdict_is(result, "own", "accepted");
    verdict_is(result, "right", "accepted");
    verdict_is(result, "wrong", "wrong_answer");
    verdict_is(result, "code", "runtime_error");
    cr_expect_eq(number(branch(result, "wrong"), "weight"), 4);
    json_decref(result);
}

Test(branches, limits_are_each_leafs_own)
{
    json_t *result = result_of(
        job_of("{'template': 'python', 'command': ['sh', '-c'],"
               " 'limits': {'cpu_ms': 30000, 'wall_ms': 300000},"
               " 'tests': [{'name': 'before', 'args': ['echo fine']},"
               "           {'name': 'time', 'args': ['while :; do :; done'],"
               "            'limits': {'cpu_ms': 300}},"
               "           {'name': 'output', 'args': ['head -c 5000 /dev/zero'],"
               "            'limits': {'output_bytes': 1000}},"
               "           {'name': 'after', 'args': ['head -c 5000 /dev/zero | wc -c']}]}"));
    verdict_is(result, NULL, "partial");
    counted(result, 2, 2, 0, 0, 500000);
    verdict_is(result, "time", "time_limit");
    cr_expect_str_eq(json_string_value(e2e_at(branch(result, "time"), "limit.name")), "cpu_ms");
    verdict_is(result, "output", "output_limit");
    cr_expect_str_eq(json_string_value(e2e_at(branch(result, "output"), "limit.name")),
                     "output_bytes");
    printed(result, "before", "fine\n");
    printed(result, "after", "5000\n");
    json_decref(result);
}

/* ---- who sees what ---- */

static json_t *isolated(const char *how)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{'template': 'python', 'command': ['sh', '-c'], 'isolation': '%s',"
                   " 'setup': 'echo setup > list',"
                   " 'tests': [{'name': 'a', 'args': ['echo a >> list; cat list']},"
                   "           {'name': 'b', 'args': ['echo b >> list; cat list']},"
                   "           {'name': 'c', 'args': ['cat list']}]}",
                   how);
    json_t *result = result_of(job_of(text));
    verdict_is(result, NULL, "accepted");
    return result;
}

Test(branches, do_not_see_one_another)
{
    json_t *result = isolated("vm");
    printed(result, "a", "setup\na\n");
    printed(result, "b", "setup\nb\n");
    printed(result, "c", "setup\n");
    json_decref(result);
}

Test(branches, shared_see_what_those_before_left)
{
    json_t *result = isolated("shared");
    printed(result, "a", "setup\na\n");
    printed(result, "b", "setup\na\nb\n");
    printed(result, "c", "setup\na\nb\n");
    json_decref(result);
}

Test(branches, on_fork_runs_first_in_each_fork)
{
    /* Before the fork's setup; never in the job's own machine. */
    json_t *result =
        result_of(job_of("{'template': 'python', 'command': ['cat', 'order'],"
                         " 'on_fork': 'echo fork >> order', 'setup': 'echo root >> order',"
                         " 'branches': [{'name': 'leaf', 'setup': 'echo setup >> order'},"
                         "              {'name': 'inner', 'setup': 'echo inner >> order',"
                         "               'tests': [{'name': 'test'}]}]}"));
    verdict_is(result, NULL, "accepted");
    printed(result, "leaf", "root\nfork\nsetup\n");
    printed(result, "inner/test", "root\nfork\ninner\nfork\n");
    json_decref(result);
}

Test(branches, an_on_fork_that_fails_is_a_setup_that_fails)
{
    json_t *result = result_of(
        job_of("{'template': 'python', 'command': ['true'], 'on_fork': 'test $GOOD = yes',"
               " 'branches': [{'name': 'good', 'env': {'GOOD': 'yes'}},"
               "              {'name': 'bad', 'env': {'GOOD': 'no'}},"
               "              {'name': 'inner', 'env': {'GOOD': 'no'}, 'tests': [{}]}]}"));
    verdict_is(result, NULL, "partial");
    counted(result, 1, 1, 1, 0, 333333);
    verdict_is(result, "good", "accepted");
    verdict_is(result, "bad", "compile_error");
    verdict_is(result, "inner", "compile_error");
    verdict_is(result, "inner/0", "skipped");
    json_decref(result);
}

/* ---- refused before anything runs ---- */

static void refused(const char *text, const char *const *names)
{
    json_t *job = job_of(text);
    cleanup_free char *line = json_dumps(job, JSON_COMPACT);
    cleanup_free char *path = e2e_temp_file(line, strlen(line));
    json_decref(job);
    int64_t before = e2e_sql("SELECT count(*) FROM jobs");
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "submit", path, "--json");
    (void)unlink(path);
    cr_expect_eq(r.exit_code, 2, "exit %d for %s: %s", r.exit_code, line, r.err.data);
    for (; *names; names++) {
        cr_expect_not_null(strstr(r.err.data, *names), "\"%s\" is not named for %s:\n%s", *names,
                           line, r.err.data);
    }
    cr_expect_eq(e2e_sql("SELECT count(*) FROM jobs"), before, "something was submitted");
}
#define REFUSED(text, ...) refused((text), (const char *const[]){ __VA_ARGS__, NULL })
#define HEAD "{'template': 'python', 'command': ['true'], "

Test(branches, bad_input_is_refused_with_field_and_rule)
{
    REFUSED(HEAD "'branches': [{'name': 'a'}, {'name': 'b'}, {'name': 'a'}]}", "branches[2].name",
            "\"a\"", "branches[0]");
    REFUSED(HEAD "'tests': [{}, {'name': '0'}]}", "tests[1].name", "the number is the name");
    REFUSED(HEAD "'branches': [{'name': 'a/b'}]}", "branches[0].name");
    /* Nine levels, one more than the maximum. */
    REFUSED(HEAD "'branches': [{'branches': [{'branches': [{'branches': [{'branches': [{"
                 "'branches': [{'branches': [{'branches': [{'branches': [{}]}]}]}]}]}]}]}]}]}",
            "branches[0].branches[0]", "8 levels");
    REFUSED(HEAD "'tests': []}", "tests", "at least one");
    REFUSED(HEAD "'tests': [{}], 'branches': [{}]}", "branches", "tests");
    REFUSED(HEAD "'tests': [{'setup': 'true'}]}", "tests[0].setup");
    REFUSED(HEAD "'tests': [{'weight': 1000001}]}", "tests[0].weight", "1000000");
    REFUSED(HEAD "'parallel': 65, 'tests': [{}]}", "parallel", "64");
    REFUSED(HEAD "'stop': 'never', 'tests': [{}]}", "stop", "first_failure");
    REFUSED(HEAD "'isolation': 'shared', 'branches': [{'tests': [{}]}]}", "branches");
}

Test(branches, eight_levels_are_not_too_deep)
{
    json_t *result = result_of(
        job_of(HEAD "'branches': [{'branches': [{'branches': [{'branches': [{'branches': [{"
                    "'branches': [{'branches': [{'branches': [{}]}]}]}]}]}]}]}]}"));
    verdict_is(result, NULL, "accepted");
    counted(result, 1, 0, 0, 0, 1000000);
    verdict_is(result, "0/0/0/0/0/0/0/0", "accepted");
    json_decref(result);
}
