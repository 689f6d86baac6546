/* What a checker's exit code says, by protocol (docs/verdicts.md, "Checkers"); and where it runs.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "tests/support/fake_guest_pool.h"
#include "worker/checker.h"
#include "worker/hot.h"

Test(checker, exit_codes)
{
    for (int code = 0; code <= 255; code++) {
        enum verdict kattis = code == 42   ? VERDICT_ACCEPTED
                              : code == 43 ? VERDICT_WRONG_ANSWER
                                           : VERDICT_JUDGE_ERROR;
        enum verdict testlib = code == 0 ? VERDICT_ACCEPTED
                               : code == 1 || code == 2 || code == 4 || code == 8
                                   ? VERDICT_WRONG_ANSWER
                                   : VERDICT_JUDGE_ERROR;
        cr_assert_eq(checker_verdict(CHECKER_KATTIS, code), kattis, "kattis %d", code);
        cr_assert_eq(checker_verdict(CHECKER_TESTLIB, code), testlib, "testlib %d", code);
    }
}

Test(checker, is_asked_only_about_what_is_well_so_far)
{
    struct job_checker c = { .protocol = CHECKER_KATTIS };
    struct job_expect with = { .checker = &c }, without = { 0 };
    struct tree_node node = { .leaf = true, .expect = &with };
    struct job_result r = { .verdict = VERDICT_ACCEPTED, .run.present = true };
    cr_assert(checker_wanted(&node, &r));
    node.expect = &without;
    cr_assert(!checker_wanted(&node, &r));
    node.expect = &with;
    for (int v = 0; v < VERDICT_COUNT; v++) {
        r.verdict = (enum verdict)v;
        cr_assert_eq(checker_wanted(&node, &r), v == VERDICT_ACCEPTED);
    }
}

#define JOB                                                                                        \
    "{\"template\":\"python\",\"command\":[\"echo\",\"1\"],\"expect\":{\"checker\":{"              \
    "\"protocol\":\"kattis\",\"command\":[\"exit\",\"42\"]}}}"

/* The host has room for one machine, and the one that the batch shares has it. */
Test(checker, a_parked_machine_makes_room, .timeout = 30)
{
    char path[64];
    struct err err = { 0 };
    struct job_spec *spec = NULL;
    struct hot *h = NULL;
    struct job_result r;
    struct session session;
    struct pool_client client;
    static struct config config;
    log_init("test", LOG_ERROR, STDERR_FILENO);
    (void)snprintf(path, sizeof path, "/tmp/brood-checker-%d.sock", (int)getpid());
    (void)snprintf(config.vmpool_socket, sizeof config.vmpool_socket, "%s", path);
    struct fake_pool *pool = fake_pool_start(path, POOL_ONE, guest_script_shell, NULL);
    struct slot_shared shared = { .config = &config, .park = hot_park_new(&config, 1) };
    const struct hot_key key = { "tenant", "batch", "python" };
    int abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cr_assert_eq(hot_new(&config, &key, &h, &err), 0, "%s", err.text);
    cr_assert_eq(pool_lease(&h->pool, "python", true, abort_fd, 5000, &h->lease, &err), 0, "%s",
                 err.text);
    h->leased = true;
    hot_put(shared.park, h);

    cr_assert_eq(job_parse(JOB, sizeof JOB - 1, &spec, &err), 0, "%s", err.text);
    cr_assert_eq(pool_client_init(&client, path, &err), 0, "%s", err.text);
    session_init(&session);
    job_result_init(&r);
    struct node_job job = { .shared = &shared,
                            .spec = spec,
                            .node = &spec->tree->nodes[0],
                            .session = &session,
                            .abort_fd = abort_fd };
    cr_expect_eq(checker_run(&job, &client, &r, &err), 0, "%s", err.text);
    cr_expect_eq(r.verdict, VERDICT_ACCEPTED, "%s", r.reason);

    job_result_done(&r);
    session_done(&session);
    pool_client_done(&client);
    job_spec_free(spec);
    hot_park_free(shared.park);
    (void)close(abort_fd);
    fake_pool_stop(pool);
}
