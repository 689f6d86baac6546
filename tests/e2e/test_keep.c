/* Kept states, as docs/forks.md promises them: a job keeps the state of a node, later jobs start
 * there. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "tests/e2e/cli.h"

/* Jobs are written as JSON with ' for ". */
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

/* Results of the jobs, in order (json_decref). */
static json_t *run_jobs(const char *const *texts, int n)
{
    json_t *jobs = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(jobs, job_of(texts[i]));
    }
    json_t *results = e2e_run_batch(jobs);
    json_decref(jobs);
    cr_assert_eq(json_array_size(results), (size_t)n);
    return results;
}
#define RUN(...)                                                                                   \
    run_jobs((const char *const[]){ __VA_ARGS__ },                                                 \
             sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

static const char *text_at(const json_t *v, const char *path)
{
    const char *s = json_string_value(e2e_at(v, path));
    return s ? s : "";
}

static const json_t *at(const json_t *results, size_t i, const char *want)
{
    const json_t *r = json_array_get(results, i);
    cr_assert_str_eq(e2e_verdict(r), want, "job %zu: %s; %s", i, text_at(r, "reason"),
                     text_at(r, "stderr"));
    return r;
}

static void remove_state(const char *name)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "snapshot", "rm", name, "--cascade");
}

static void add_file(json_t *job, const char *path, const char *text)
{
    json_t *files = json_object_get(job, "files");
    if (!files) {
        files = json_array();
        (void)json_object_set_new(job, "files", files);
    }
    (void)json_array_append_new(files, json_pack("{s:s, s:s}", "path", path, "text", text));
}

/* A server that counts its visitors, and a visitor. */
static const char server_program[] =
    "import http.server\n"
    "class Counter(http.server.BaseHTTPRequestHandler):\n"
    "    n = 0\n"
    "    def do_GET(self):\n"
    "        Counter.n += 1\n"
    "        self.send_response(200)\n"
    "        self.end_headers()\n"
    "        self.wfile.write(b'%d' % Counter.n)\n"
    "    def log_message(self, *args):\n"
    "        pass\n"
    "server = http.server.HTTPServer(('127.0.0.1', 8123), Counter)\n"
    "open('ready', 'w').close()\n"
    "server.serve_forever()\n";
static const char visit_program[] =
    "import random, socket, urllib.request, uuid\n"
    "print(open('state').read().strip())\n"
    "print(urllib.request.urlopen('http://127.0.0.1:8123/').read().decode())\n"
    "print(socket.gethostname())\n"
    "print(open('/etc/machine-id').read().strip())\n"
    "print(random.random(), uuid.uuid4())\n";

Test(keep, what_a_job_has_set_up_is_there_for_later_jobs)
{
    json_t *jobs = json_array(),
           *job = job_of(
               "{'template': 'python', 'setup': [{'command': 'echo made > state; setsid python3 "
               "server.py > log 2>&1 & while [ ! -e ready ]; do sleep 0.1; done'},"
               " {'command': 'python3 visit.py'}], 'keep': {'name': 'e2e-server', 'ttl_s': 3600}}");
    add_file(job, "server.py", server_program);
    add_file(job, "visit.py", visit_program);
    (void)json_array_append_new(jobs, job);
    json_t *first = e2e_run_batch(jobs);
    json_decref(jobs);
    const json_t *r = at(first, 0, "accepted");
    cr_assert_null(e2e_at(r, "warnings"), "%s", json_dumps(e2e_at(r, "warnings"), JSON_COMPACT));
    json_decref(first);
    /* each finds the server as set-up left it: one visitor so far */
    json_t *next = RUN("{'template': 'snapshot:e2e-server', 'command': ['python3', 'visit.py']}",
                       "{'template': 'snapshot:e2e-server', 'command': ['python3', 'visit.py']}");
    char lines[2][5][128] = { 0 };
    for (size_t i = 0; i < 2; i++) {
        const char *out = text_at(at(next, i, "accepted"), "stdout");
        cr_assert_eq(sscanf(out, "%127[^\n]\n%127[^\n]\n%127[^\n]\n%127[^\n]\n%127[^\n]",
                            lines[i][0], lines[i][1], lines[i][2], lines[i][3], lines[i][4]),
                     5, "%s", out);
        cr_assert_str_eq(lines[i][0], "made");
        cr_assert_str_eq(lines[i][1], "2");
    }
    for (size_t k = 2; k < 5; k++) {
        cr_assert_str_neq(lines[0][k], lines[1][k], "the two agree in line %zu", k);
    }
    json_decref(next);
    remove_state("e2e-server");
}

Test(keep, nodes_leaves_and_children)
{
    json_t *first = RUN("{'template': 'python', 'setup': {'command': 'echo root > root'}, 'keep': "
                        "{'name': 'e2e-root', 'pin': true}}");
    (void)at(first, 0, "accepted");
    json_decref(first);
    json_t *tree =
        RUN("{'template': 'snapshot:e2e-root', 'setup': {'command': 'echo inner > inner'}, 'keep': "
            "{'name': 'e2e-inner'}, 'branches': [{'name': 'good', 'command': 'echo leaf > leaf', "
            "'keep': {'name': 'e2e-leaf'}}, {'name': 'bad', 'command': 'false', 'keep': {'name': "
            "'e2e-none'}}]}");
    const json_t *r = at(tree, 0, "partial");
    const json_t *warning =
        json_array_get(e2e_at(json_array_get(e2e_at(r, "branches"), 1), "warnings"), 0);
    cr_assert(warning && strstr(json_string_value(warning), "runtime_error"));
    json_decref(tree);
    cleanup_e2e_run struct e2e_run shown, refused, unknown;
    E2E_BROOD(&refused, E2E_SHORT_MS, "snapshot", "rm", "e2e-root");
    cr_assert_neq(refused.exit_code, 0);
    cr_assert(strstr(refused.err.data, "e2e-inner") && strstr(refused.err.data, "e2e-leaf"), "%s",
              refused.err.data);
    E2E_BROOD(&shown, E2E_SHORT_MS, "snapshot", "show", "e2e-root", "--json");
    cr_assert(strstr(shown.out.data, "\"pinned\":true"), "%s", shown.out.data);
    E2E_BROOD(&unknown, E2E_SHORT_MS, "snapshot", "show", "e2e-none");
    cr_assert_neq(unknown.exit_code, 0);
    /* the host forgets everything: files and what vmpool has loaded; the object store has it */
    cleanup_e2e_run struct e2e_run gone, cut;
    char kept[512];
    (void)snprintf(kept, sizeof kept, "%s/kept", e2e_home());
    e2e_run(&gone, (const char *const[]){ "rm", "-rf", kept, NULL }, NULL, E2E_SHORT_MS);
    cr_assert_gt(e2e_kill9("brood-vmpool"), 0);
    json_t *next = RUN("{'template': 'snapshot:e2e-inner', 'command': 'cat root inner leaf'}",
                       "{'template': 'snapshot:e2e-leaf', 'command': 'cat root inner leaf'}");
    cr_assert_str_eq(text_at(at(next, 0, "runtime_error"), "stdout"), "root\ninner\n");
    cr_assert_str_eq(text_at(at(next, 1, "accepted"), "stdout"), "root\ninner\nleaf\n");
    json_decref(next);
    /* what was cut short by a crash of the host is fetched again, too */
    e2e_run(&cut,
            (const char *const[]){ "find", kept, "-name", "layer", "-exec", "truncate", "-s", "0",
                                   "{}", "+", NULL },
            NULL, E2E_SHORT_MS);
    cr_assert_eq(cut.exit_code, 0, "%s", cut.err.data);
    cr_assert_gt(e2e_kill9("brood-vmpool"), 0);
    next = RUN("{'template': 'snapshot:e2e-leaf', 'command': 'cat root inner leaf'}");
    cr_assert_str_eq(text_at(at(next, 0, "accepted"), "stdout"), "root\ninner\nleaf\n");
    json_decref(next);
    remove_state("e2e-root");
    cr_assert_eq(e2e_sql("SELECT count(*) FROM snapshots WHERE name LIKE 'e2e-%%'"), 0);
}

Test(keep, a_chain_is_flattened_and_still_whole)
{
    json_t *r = RUN("{'template': 'python', 'setup': {'command': 'echo 0 >> log'}, 'keep': "
                    "{'name': 'e2e-0'}}");
    (void)at(r, 0, "accepted");
    json_decref(r);
    for (int i = 1; i <= 9; i++) {
        char job[256];
        (void)snprintf(job, sizeof job,
                       "{'template': 'snapshot:e2e-%d', 'setup': {'command': 'echo %d >> log'}, "
                       "'keep': {'name': 'e2e-%d'}}",
                       i - 1, i, i);
        r = RUN(job);
        const json_t *done = at(r, 0, "accepted");
        cr_assert_null(e2e_at(done, "warnings"), "%d", i);
        json_decref(r);
    }
    cr_assert_leq(e2e_sql("SELECT max(array_length(layers, 1)) FROM snapshots"), 32);
    cr_assert_lt(e2e_sql("SELECT array_length(layers, 1) FROM snapshots WHERE name = 'e2e-9'"), 8);
    r = RUN("{'template': 'snapshot:e2e-9', 'command': ['cat', 'log']}");
    cr_assert_str_eq(text_at(at(r, 0, "accepted"), "stdout"), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    json_decref(r);
    remove_state("e2e-0");
}

Test(keep, another_tenants_state_does_not_exist)
{
    json_t *r = RUN("{'template': 'python', 'setup': {'command': 'echo secret > s'}, 'keep': "
                    "{'name': 'e2e-mine'}}");
    (void)at(r, 0, "accepted");
    json_decref(r);
    cleanup_free char *file =
        e2e_temp_file("{\"template\": \"snapshot:e2e-mine\", \"command\": [\"cat\", \"s\"]}\n", 65);
    cleanup_e2e_run struct e2e_run other;
    e2e_run(&other,
            (const char *const[]){ "env", "BROOD_TENANT_DEFAULT=somebody-else", e2e_binary(),
                                   "submit", file, NULL },
            NULL, E2E_SHORT_MS);
    (void)unlink(file);
    cr_assert_neq(other.exit_code, 0);
    cr_assert(strstr(other.err.data, "e2e-mine"), "%s", other.err.data);
    cr_assert_eq(e2e_sql("SELECT count(*) FROM jobs WHERE tenant = 'somebody-else' AND template = "
                         "'snapshot:e2e-mine'"),
                 0);
    remove_state("e2e-mine");
}
