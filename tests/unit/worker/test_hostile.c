/* The worker against a guest that was taken over: every row of tests/support/hostile.def on a
 * socket pair. The same rows are played by a real microVM's agent in
 * tests/e2e/test_hostile_guest.c.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/support/fake_guest.h"
#include "tests/support/hostile.h"
#include "worker/node_artifacts.h"
#include "worker/session.h"

const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcriterion";
}

#define MACHINE_MIB 64
#define OUTPUT_BYTES 4096
#define STDIN_BYTES (8u << 20)
#define TAKES_MS_MAX 20000 /* against a hang; nothing here is about speed */

static const struct session_times quick = {
    .ready_ms = 2000, .start_ms = 500, .kill_grace_ms = 300, .output_grace_ms = 100
};

struct row {
    char word[32], text[48];
    int rc;
    enum verdict verdict;
};

ParameterizedTestParameters(hostile, every_row)
{
    static struct row rows[] = {
#define HOSTILE(name, code, v, words)                                                              \
    { .word = #name, .text = words, .rc = code, .verdict = VERDICT_##v },
#include "tests/support/hostile.def"
#undef HOSTILE
    };
    return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

static void script(struct fake_guest *g, void *arg)
{
    struct frame f;
    const char *word = arg;
    if (guest_ready(g) && guest_recv_type(g, FRAME_RUN, &f)) {
        cr_assert(hostile_play(g->fd, &g->parser, word, g->run.run), "no such word: %s", word);
        char rest[4096];
        /* silence until the host lets go */
        while (!hostile_closes(word) && strcmp(word, "never_reads") != 0 &&
               read(g->fd, rest, sizeof rest) > 0) {
        }
        if (strcmp(word, "never_reads") == 0) {
            sleep_ms(1500);
        }
    }
}

static struct job_spec *job(void)
{
    static const char json[] =
        "{\"template\":\"t\",\"command\":[\"hostile\"],\"limits\":{\"wall_ms\":400,"
        "\"cpu_ms\":60000,\"output_bytes\":4096},\"artifacts\":[\"**\"]}";
    struct err err = { 0 };
    struct job_spec *spec = NULL;
    cr_assert_eq(job_parse(json, strlen(json), &spec, &err), 0, "%s", err.text);
    spec->stdin_data.len = STDIN_BYTES;
    spec->stdin_data.data = calloc(1, STDIN_BYTES + 1);
    cr_assert_not_null(spec->stdin_data.data);
    return spec;
}

static void check_numbers(const struct run_result *run)
{
    int64_t cpu_max_us = run->wall_us + 100000, machine = (int64_t)MACHINE_MIB << 20;
    cr_expect_leq(run->guest_cpu_us, cpu_max_us);
    cr_expect_leq(run->memory_peak_bytes, machine);
    cr_expect_leq(run->disk_used_bytes, machine);
    cr_expect_leq(run->leftover_processes, 4194304);
    cr_expect_leq(run->out.head.len + run->out.tail.len, (size_t)OUTPUT_BYTES);
    cr_expect_leq(run->err_out.head.len + run->err_out.tail.len, (size_t)OUTPUT_BYTES);
    for (const char *p = run->exec_error; *p; p++) {
        cr_expect(*p >= ' ' && *p <= '~', "a control character in exec_error");
    }
}

static void check_files(const struct row *row, struct session *s, int channel_fd)
{
    char *globs[] = { (char *)"**" };
    struct artifact_set set;
    struct err err = { 0 };
    int rc = node_artifacts_take(s, channel_fd, -1, globs, 1, "/tmp", &set, &err);
    if (row->text[0] == 0) {
        cr_expect_eq(rc, 0, "%s: %s", row->word, err.text);
        cr_expect_eq(set.manifest.n, 1);
        cr_expect_eq(set.manifest.files[0].mode, 0777, "no set-user-id bit comes through");
    } else {
        cr_expect(rc < 0 && strstr(err.text, row->text), "%s: %d: %s", row->word, rc, err.text);
        cr_expect(set.manifest.truncated);
    }
    cr_expect_leq(set.manifest.n, ARTIFACT_FILES_DEFAULT);
    for (size_t i = 0; i < set.manifest.n; i++) {
        const struct artifact *a = &set.manifest.files[i];
        cr_expect(a->path[0] != '/' && !strstr(a->path, ".."), "%s", a->path);
        cr_expect_leq(a->size, (uint64_t)1 << 53);
    }
    artifacts_done(&set);
}

ParameterizedTest(struct row *row, hostile, every_row, .timeout = 60)
{
    log_init("test", LOG_ERROR, 2);
    (void)signal(SIGPIPE, SIG_IGN); /* the guest writes to a host that is gone */
    cleanup_job_spec struct job_spec *spec = job();
    struct session session;
    struct job_result result;
    struct run_result before;
    struct run_facts setup, run;
    struct err err = { 0 };
    session_init(&session);
    job_result_init(&result);
    struct fake_guest *g = fake_guest_start(script, row->word);
    struct session_job j = { .channel_fd = g->host_fd,
                             .cpu_fd = g->cpu_fd,
                             .abort_fd = -1,
                             .vcpus = 1,
                             .memory_mib = MACHINE_MIB,
                             .spec = spec,
                             .lease_start_us = mono_us(),
                             .times = &quick };
    int64_t start_ms = mono_ms();
    int rc = session_run(&session, &j, &result, &before, &setup, &run, &err);
    if (row->rc != 0) {
        cr_expect_eq(rc, -row->rc, "%s: %d: %s", row->word, rc, err.text);
        cr_expect(strstr(err.text, row->text), "%s: %s", row->word, err.text);
    } else {
        cr_expect_eq(rc, 0, "%s: %s", row->word, err.text);
        judge(spec, &setup, &run, &result);
        cr_expect_eq(result.verdict, row->verdict, "%s: %s: %s", row->word,
                     verdict_word(result.verdict), result.reason);
        check_numbers(&result.run);
    }
    if (rc == 0 && strncmp(row->word, "files_", 6) == 0) {
        check_files(row, &session, g->host_fd);
    }
    cr_expect_lt(mono_ms() - start_ms, TAKES_MS_MAX);
    cr_expect_leq(session.capture[0].cap, (size_t)OUTPUT_BYTES);
    fake_guest_join(g);
    job_result_done(&result);
    session_done(&session);
}

/* ---- a machine that is to be frozen ---- */

static void settle_script(struct fake_guest *g, void *arg)
{
    struct frame f;
    const char *word = arg;
    if (!guest_ready(g) || !guest_recv_type(g, FRAME_SETTLE, &f)) {
        return;
    }
    if (strcmp(word, "started") == 0) {
        guest_Started m = { .run = 0 };
        (void)guest_send(g, FRAME_STARTED, guest_Started_fields, &m);
    } else if (strcmp(word, "exit") == 0) {
        guest_Exit m = { .exit_code = 127, .exec_error = "x" };
        (void)guest_send(g, FRAME_EXIT, guest_Exit_fields, &m);
    } else if (strcmp(word, "error") == 0) {
        guest_GuestError m = { .what = "settle", .text = "no" };
        (void)guest_send(g, FRAME_ERROR, guest_GuestError_fields, &m);
    } else if (strcmp(word, "output") == 0) {
        (void)guest_send_output(g, 1, "x", 1);
    } else if (strcmp(word, "settled") == 0) {
        guest_Settled m = { .spare = true };
        (void)guest_send(g, FRAME_SETTLED, guest_Settled_fields, &m);
    }
    char rest[64];
    while (read(g->fd, rest, sizeof rest) > 0) {
    }
}

/* A session that has had a run before: what is left of that must not be taken for this one's. */
static void settle(struct session *session, const char *word, int want, const char *text)
{
    static const char json[] = "{\"template\":\"t\",\"command\":[\"x\"]}";
    struct err err = { 0 };
    cleanup_job_spec struct job_spec *spec = NULL;
    struct job_result result;
    struct run_result before;
    struct run_facts setup, run;
    cr_assert_eq(job_parse(json, strlen(json), &spec, &err), 0, "%s", err.text);
    job_result_init(&result);
    struct fake_guest *g = fake_guest_start(settle_script, (void *)(uintptr_t)word);
    struct session_job j = { .channel_fd = g->host_fd,
                             .cpu_fd = g->cpu_fd,
                             .abort_fd = -1,
                             .vcpus = 1,
                             .spec = spec,
                             .settle = true,
                             .lease_start_us = mono_us(),
                             .times = &quick };
    int rc = session_run(session, &j, &result, &before, &setup, &run, &err);
    cr_expect_eq(rc, want, "%s: %d: %s", word, rc, err.text);
    cr_expect(want == 0 || strstr(err.text, text), "%s: %s", word, err.text);
    fake_guest_join(g);
    job_result_done(&result);
}

Test(hostile, settling, .timeout = 60)
{
    struct session session;
    session_init(&session);
    session.run_us = 1; /* as an earlier job of this slot left it */
    settle(&session, "settled", 0, "");
    settle(&session, "started", -ERR_PROTOCOL, "frame of type 8 while");
    settle(&session, "exit", -ERR_PROTOCOL, "frame of type 13 while");
    settle(&session, "output", -ERR_PROTOCOL, "frame of type 11 while");
    settle(&session, "error", -ERR_PROTOCOL, "settle: no");
    settle(&session, "silent", -ERR_TIMEOUT, "no answer within");
    session_done(&session);
}
