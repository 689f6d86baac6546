#include "worker/checker.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/hot.h"

#define LEASE_WAIT_MS 60000
#define STEPS_MAX JOB_SETUP_STEPS_MAX
#define GIVEN_FILES 4 /* input, output, answer, feedback/ */

/* Kattis' output validators and Codeforces' testlib; every other code: the checker is broken. */
static const struct {
    enum checker_protocol protocol;
    int exit_code;
    enum verdict verdict;
} meanings[] = {
    { CHECKER_KATTIS, 42, VERDICT_ACCEPTED },     { CHECKER_KATTIS, 43, VERDICT_WRONG_ANSWER },
    { CHECKER_TESTLIB, 0, VERDICT_ACCEPTED },     { CHECKER_TESTLIB, 1, VERDICT_WRONG_ANSWER },
    { CHECKER_TESTLIB, 2, VERDICT_WRONG_ANSWER }, /* presentation error */
    { CHECKER_TESTLIB, 4, VERDICT_WRONG_ANSWER }, /* dirt behind the output */
    { CHECKER_TESTLIB, 8, VERDICT_WRONG_ANSWER }, /* output ends too soon */
};

enum verdict checker_verdict(enum checker_protocol p, int exit_code)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].protocol == p && meanings[i].exit_code == exit_code) {
            return meanings[i].verdict;
        }
    }
    return VERDICT_JUDGE_ERROR;
}

bool checker_wanted(const struct tree_node *node, const struct job_result *r)
{
    return node->leaf && node->expect && node->expect->checker && r->run.present &&
           r->verdict == VERDICT_ACCEPTED;
}

static void judge_error(struct job_result *r, const char *why)
{
    r->verdict = VERDICT_JUDGE_ERROR;
    (void)snprintf(r->reason, sizeof r->reason, "checker: %.240s", why);
}

static int lease_patiently(const struct node_job *j, struct pool_client *pool,
                           const char *template_name, struct lease *ret_lease, struct err *err)
{
    struct pool_patience patience = { .since_ms = 0 };
    int rc;
    do {
        rc = pool_lease(pool, template_name, true, j->abort_fd, LEASE_WAIT_MS, ret_lease, err);
        if (rc == -ERR_NO_CAPACITY) {
            hot_tidy(j->shared->park, true); /* what is only kept in case makes room */
        }
    } while (rc < 0 && pool_again(pool, rc, j->abort_fd, &patience));
    return rc;
}

static void clamp_memory(struct job_command *c, const struct lease *lease)
{
    int64_t most = lease->memory_mib - TEMPLATE_MEMORY_RESERVE_MIB;
    c->limits.memory_mib = c->limits.memory_mib < most ? c->limits.memory_mib : most;
}

/* The beginning of what it said, one character a byte. */
static void put_message(char out[CHECKER_MESSAGE_MAX], const struct run_result *run)
{
    const struct bytes *said = run->err_out.head.len > 0 ? &run->err_out.head : &run->out.head;
    size_t n = said->len < CHECKER_MESSAGE_MAX - 1 ? said->len : CHECKER_MESSAGE_MAX - 1;
    for (size_t i = 0; i < n; i++) {
        char c = said->data[i];
        out[i] = (c >= ' ' && c <= '~') || c == '\n' ? c : '?';
    }
    out[n] = 0;
    while (n > 0 && out[n - 1] == '\n') {
        out[--n] = 0;
    }
}

/* cr is the checker's own run, judged as any other: only one that ends by itself, within its
 * limits, has something to say. */
static void conclude(const struct job_checker *c, const struct job_result *cr, struct job_result *r)
{
    r->checker = (struct result_checker){ .present = cr->run.present,
                                          .exit_code = cr->run.exit_code,
                                          .signal = cr->run.signal,
                                          .cpu_us = cr->run.cpu_us,
                                          .wall_us = cr->run.wall_us };
    put_message(r->checker.message, &cr->run);
    if (cr->verdict != VERDICT_ACCEPTED) {
        judge_error(r, cr->reason);
        return;
    }
    enum verdict v = checker_verdict(c->protocol, cr->run.exit_code);
    if (v == VERDICT_JUDGE_ERROR) {
        char why[80];
        (void)snprintf(why, sizeof why, "exit code %d means nothing in the protocol %s",
                       cr->run.exit_code, checker_protocol_word(c->protocol));
        judge_error(r, why);
        return;
    }
    r->verdict = v;
    if (v == VERDICT_WRONG_ANSWER) {
        (void)snprintf(r->reason, sizeof r->reason, "the checker does not accept it (exit code %d)",
                       cr->run.exit_code);
    }
}

/* In the leased sandbox. */
static int ask(const struct node_job *j, const struct lease *lease, struct job_result *r,
               struct err *err)
{
    const struct job_expect *e = j->node->expect;
    const struct job_checker *c = e->checker;
    const struct bytes none = { 0 };
    const struct bytes *input = j->node->stdin_data ? j->node->stdin_data : &none;
    struct job_file given[GIVEN_FILES] = {
        { .path = (char[]){ CHECKER_INPUT }, .content = *input, .mode = 0644 },
        { .path = (char[]){ CHECKER_OUTPUT }, .content = r->run.out.head, .mode = 0644 },
        { .path = (char[]){ CHECKER_ANSWER }, .content = e->text, .mode = 0644 },
        { .path = (char[]){ CHECKER_FEEDBACK }, .mode = 0755, .folder = true },
    };
    const struct job_command *steps[STEPS_MAX];
    struct job_command own_steps[STEPS_MAX];
    assert(c->n_steps <= STEPS_MAX);
    for (int i = 0; i < c->n_steps; i++) {
        own_steps[i] = c->steps[i];
        clamp_memory(&own_steps[i], lease);
        steps[i] = &own_steps[i];
    }
    struct job_spec view = { .template_name =
                                 c->template_name ? c->template_name : j->spec->template_name,
                             .files = c->files,
                             .n_files = c->n_files,
                             .command = c->command,
                             .stdin_data = c->protocol == CHECKER_KATTIS ? r->run.out.head : none };
    clamp_memory(&view.command, lease);
    struct session_job job = { .channel_fd = lease->channel_fd,
                               .cpu_fd = lease->cpu_fd,
                               .abort_fd = j->abort_fd,
                               .vcpus = lease->vcpus,
                               .spec = &view,
                               .more_files = given,
                               .n_more_files = GIVEN_FILES,
                               .steps = steps,
                               .n_steps = c->n_steps,
                               .last = true,
                               .lease_start_us = mono_us(),
                               .times = &session_times_default };
    struct job_result cr;
    struct run_result before;
    struct run_facts setup, run;
    job_result_init(&cr);
    int rc = session_run(j->session, &job, &cr, &before, &setup, &run, err);
    if (rc == 0) {
        int last = j->session->failed_step >= 0 ? j->session->failed_step : c->n_steps - 1;
        if (last >= 0) {
            view.setup = own_steps[last];
        }
        view.expect.exit_code = cr.run.present && cr.run.exit_code >= 0 ? cr.run.exit_code : 0;
        judge(&view, &setup, &run, &cr);
        conclude(c, &cr, r);
    }
    run_result_join(&before, &cr.setup);
    cr.setup = before;
    job_result_done(&cr);
    return rc;
}

int checker_run(const struct node_job *j, struct pool_client *pool, struct job_result *r,
                struct err *err)
{
    const struct job_checker *c = j->node->expect->checker;
    struct lease lease;
    if (!c->template_name && job_snapshot_name(j->spec)) {
        judge_error(r, "needs a template of its own: the job starts from a snapshot");
        return 0;
    }
    int rc = lease_patiently(j, pool, c->template_name ? c->template_name : j->spec->template_name,
                             &lease, err);
    if (rc == -ERR_NOT_FOUND && c->template_name) {
        judge_error(r, err->text);
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    int64_t leased_us = mono_us();
    rc = ask(j, &lease, r, err);
    pool_release(pool, &lease);
    int64_t ms = (mono_us() - leased_us + 999) / 1000;
    r->measured_ms += ms;
    r->ended_wall_ms += ms;
    return rc;
}
