/* The session against scripted guests: well-behaved, broken and hostile ones. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/support/fake_guest.h"
#include "worker/session.h"

/* Criterion 2.4.1's runner loses 96 bytes of its own when a test takes seconds and --jobs is
 * above 1. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcriterion";
}

static const struct session_times quick = {
    .ready_ms = 400, .start_ms = 400, .kill_grace_ms = 200, .output_grace_ms = 100
};
/* Where much has to go through first, on a host that may be busy. */
static const struct session_times patient = {
    .ready_ms = 15000, .start_ms = 15000, .kill_grace_ms = 200, .output_grace_ms = 100
};
static const struct session_times *times = &quick;

struct played {
    struct session session;
    struct job_result result;
    struct run_result before;
    struct run_facts setup, run;
    struct err err;
    int rc;
    int files;
    uint64_t file_bytes, stdin_bytes;
    int64_t took_ms;
};

static struct job_spec *parse(const char *json)
{
    struct err err = { 0 };
    struct job_spec *spec = NULL;
    cr_assert_eq(job_parse(json, strlen(json), &spec, &err), 0, "%s", err.text);
    return spec;
}

/* Play spec against script and judge when there is something to judge. */
static void play_spec(struct played *p, struct job_spec *spec,
                      void (*script)(struct fake_guest *g, void *arg), void *arg, int abort_fd)
{
    *p = (struct played){ .rc = 1 };
    log_init("test", LOG_ERROR, 2);
    session_init(&p->session);
    job_result_init(&p->result);
    struct fake_guest *g = fake_guest_start(script, arg);
    const struct job_command *steps[] = { &spec->setup };
    struct session_job job = { .channel_fd = g->host_fd,
                               .cpu_fd = g->cpu_fd,
                               .abort_fd = abort_fd,
                               .vcpus = 1,
                               .spec = spec,
                               .steps = steps,
                               .n_steps = spec->setup.argc > 0,
                               .lease_start_us = mono_us(),
                               .times = times };
    int64_t start = mono_ms();
    p->rc = session_run(&p->session, &job, &p->result, &p->before, &p->setup, &p->run, &p->err);
    p->took_ms = mono_ms() - start;
    if (p->rc == 0) {
        judge(spec, &p->setup, &p->run, &p->result);
    }
    (void)close(g->host_fd);
    g->host_fd = -1;
    pthread_t thread = g->thread;
    (void)pthread_join(thread, NULL); /* the counts are complete now */
    p->files = g->files;
    p->file_bytes = g->file_bytes;
    p->stdin_bytes = g->stdin_bytes;
    (void)close(g->fd);
    if (g->cpu_fd >= 0) {
        (void)close(g->cpu_fd);
    }
    frame_parser_done(&g->parser);
    free(g);
}

static void play(struct played *p, const char *json,
                 void (*script)(struct fake_guest *g, void *arg))
{
    cleanup_job_spec struct job_spec *spec = parse(json);
    play_spec(p, spec, script, NULL, -1);
}

static void played_done(struct played *p)
{
    job_result_done(&p->result);
    session_done(&p->session);
}

#define ECHO "{\"template\":\"t\",\"command\":[\"echo\",\"hi\"]}"

static void expect_fault(void (*script)(struct fake_guest *g, void *arg), int want,
                         const char *text)
{
    struct played p;
    play(&p, ECHO, script);
    cr_assert_eq(p.rc, want, "rc %d: %s", p.rc, p.err.text);
    cr_assert(strstr(p.err.text, text), "%s", p.err.text);
    cr_assert_lt(p.took_ms, 5000);
    played_done(&p);
}

/* ---- good guests ---- */

Test(session, normal, .timeout = 20)
{
    struct played p;
    play(&p,
         "{\"template\":\"t\",\"command\":[\"echo\",\"hi\"],\"expect\":{\"stdout\":\"hi\"},"
         "\"files\":[{\"path\":\"a\",\"text\":\"x\"},{\"path\":\"b/c\",\"text\":\"yz\"}]}",
         guest_script_shell);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_ACCEPTED, "%s", p.result.reason);
    cr_assert_eq(p.result.run.out.head.len, 2);
    cr_assert(memcmp(p.result.run.out.head.data, "hi", 2) == 0);
    cr_assert_eq(p.files, 2);
    cr_assert_eq(p.file_bytes, 3);
    cr_assert_gt(p.result.run.wall_us, 0);
    cr_assert_gt(p.result.run.cpu_us, 0);
    cr_assert_eq(p.result.run.guest_cpu_us, 1000);
    cr_assert_geq(p.result.first_byte_us, 0);
    cr_assert(!p.result.setup.present);
    played_done(&p);
}

Test(session, session_is_reused, .timeout = 20)
{
    struct session s;
    session_init(&s);
    for (int i = 0; i < 20; i++) {
        cleanup_job_spec struct job_spec *spec = parse(ECHO);
        struct fake_guest *g = fake_guest_start(guest_script_shell, NULL);
        struct session_job job = { .channel_fd = g->host_fd,
                                   .cpu_fd = -1,
                                   .abort_fd = -1,
                                   .vcpus = 1,
                                   .spec = spec,
                                   .lease_start_us = mono_us(),
                                   .times = times };
        struct job_result r;
        job_result_init(&r);
        struct run_facts setup, run;
        struct run_result before;
        struct err err = { 0 };
        cr_assert_eq(session_run(&s, &job, &r, &before, &setup, &run, &err), 0, "%s", err.text);
        cr_assert_eq(r.run.out.total_bytes, 2);
        cr_assert_eq(r.run.cpu_us, 1000, "without a meter the guest's figure is used");
        job_result_done(&r);
        fake_guest_join(g);
    }
    session_done(&s);
}

Test(session, setup_then_run, .timeout = 20)
{
    struct played p;
    play(&p,
         "{\"template\":\"t\",\"setup\":{\"command\":[\"echo\",\"compiled\"]},\"command\":["
         "\"exit\",\"0\"]}",
         guest_script_shell);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_ACCEPTED, "%s", p.result.reason);
    cr_assert_eq(p.result.setup.out.head.len, 8);
    cr_assert_eq(p.result.run.out.total_bytes, 0);
    played_done(&p);
    play(&p,
         "{\"template\":\"t\",\"setup\":{\"command\":[\"exit\",\"1\"]},\"command\":[\"echo\",\"x\"]"
         "}",
         guest_script_shell);
    cr_assert_eq(p.result.verdict, VERDICT_COMPILE_ERROR);
    cr_assert_str_eq(p.result.reason, "setup: exited with code 1; expected 0");
    cr_assert(!p.result.run.present);
    played_done(&p);
    play(&p,
         "{\"template\":\"t\",\"setup\":{\"command\":[\"sleep\",\"60000\"],\"limits\":{\"wall_ms\":"
         "50}},\"command\":[\"echo\",\"x\"]}",
         guest_script_shell);
    cr_assert_eq(p.result.verdict, VERDICT_COMPILE_ERROR);
    cr_assert_str_eq(p.result.limit_name, "wall_ms");
    played_done(&p);
}

Test(session, wall_and_cpu_limits, .timeout = 20)
{
    struct played p;
    play(&p, "{\"template\":\"t\",\"command\":[\"sleep\",\"60000\"],\"limits\":{\"wall_ms\":100}}",
         guest_script_shell);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_WALL_TIME_LIMIT, "%s", p.result.reason);
    cr_assert(p.run.exited);
    cr_assert_eq(p.result.run.signal, 9);
    played_done(&p);
    play(&p,
         "{\"template\":\"t\",\"command\":[\"spin\",\"60000\"],\"limits\":{\"cpu_ms\":100,\"wall_"
         "ms\":15000}}",
         guest_script_shell);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_TIME_LIMIT, "%s", p.result.reason);
    cr_assert_gt(p.result.limit_used, 100);
    played_done(&p);
}

Test(session, stdin_is_sent_on_demand, .timeout = 60)
{
    size_t n = 3u << 20;
    char *json = malloc(n + 200);
    int head = snprintf(json, 200,
                        "{\"template\":\"t\",\"command\":[\"cat\"],\"limits\":{\"output_"
                        "bytes\":16777216},\"stdin\":\"");
    memset(json + head, 'z', n);
    memcpy(json + head + n, "\"}", 3);
    struct played p;
    play(&p, json, guest_script_shell);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_ACCEPTED, "%s", p.result.reason);
    cr_assert_eq(p.result.run.out.total_bytes, n);
    cr_assert_eq(p.result.run.out.head.len, n);
    played_done(&p);
    free(json);
}

/* ---- limits broken by output ---- */

Test(session, endless_output, .timeout = 20)
{
    struct played p;
    play(&p, "{\"template\":\"t\",\"command\":[\"flood\"],\"limits\":{\"output_bytes\":1000}}",
         guest_script_shell);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_OUTPUT_LIMIT, "%s", p.result.reason);
    cr_assert_eq(p.result.run.out.head.len, 500);
    cr_assert_eq(p.result.run.out.tail.len, 500);
    cr_assert_gt(p.result.run.out.total_bytes, 1000 + CAPTURE_SLACK_BYTES);
    cr_assert_leq(p.session.capture[0].cap, 1000);
    played_done(&p);
}

static void script_flood_forever(struct fake_guest *g, void *arg)
{
    (void)arg;
    char data[60000];
    memset(data, 'x', sizeof data);
    if (guest_begin(g)) {
        while (guest_send_output(g, 1, data, sizeof data)) {
        }
    }
}

/* A guest that ignores the kill and goes on: given up after the grace; memory does not grow with
 * what it sends. */
Test(session, flood_that_ignores_the_kill, .timeout = 20)
{
    struct rusage before, after;
    (void)getrusage(RUSAGE_SELF, &before);
    struct played p;
    play(&p, "{\"template\":\"t\",\"command\":[\"x\"],\"limits\":{\"output_bytes\":1000}}",
         script_flood_forever);
    (void)getrusage(RUSAGE_SELF, &after);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_OUTPUT_LIMIT, "%s", p.result.reason);
    cr_assert(!p.run.exited);
    cr_assert_lt(after.ru_maxrss - before.ru_maxrss, 16 << 10, "grew by %ld KiB",
                 after.ru_maxrss - before.ru_maxrss);
    played_done(&p);
}

static void script_over_then_silent(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    char data[2000];
    memset(data, 'x', sizeof data);
    if (guest_begin(g) && guest_send_output(g, 2, data, sizeof data)) {
        (void)guest_recv_type(g, FRAME_KILL, &f);
        (void)guest_exit(g, 0);
    }
}

Test(session, over_the_output_limit_and_silent, .timeout = 20)
{
    struct played p;
    play(&p, "{\"template\":\"t\",\"command\":[\"x\"],\"limits\":{\"output_bytes\":1000}}",
         script_over_then_silent);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_OUTPUT_LIMIT, "%s", p.result.reason);
    cr_assert_eq(p.run.stop, STOP_OUTPUT);
    cr_assert_eq(p.result.run.err_out.total_bytes, 2000);
    played_done(&p);
}

static void script_tiny_frames(struct fake_guest *g, void *arg)
{
    (void)arg;
    char block[9 * 1000];
    for (size_t i = 0; i < sizeof block; i += 9) {
        frame_header((uint8_t *)block + i, FRAME_OUTPUT, 1, 1);
        block[i + 8] = 'x';
    }
    bool on = guest_begin(g);
    for (int i = 0; i < 1000 && on; i++) { /* a million frames of one byte */
        on = guest_send_raw(g, block, sizeof block);
    }
    (void)guest_exit(g, 0);
}

Test(session, a_million_tiny_frames, .timeout = 60)
{
    struct played p;
    play(&p,
         "{\"template\":\"t\",\"command\":[\"x\"],\"limits\":{\"output_bytes\":1000000,\"wall_ms\":"
         "60000}}",
         script_tiny_frames);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_ACCEPTED, "%s", p.result.reason);
    cr_assert_eq(p.result.run.out.total_bytes, 1000000);
    cr_assert_eq(p.result.run.out.head.len, 1000000);
    played_done(&p);
}

static void script_empty_frames(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        while (guest_send_output(g, 1, "", 0)) {
        }
    }
}

/* Frames without end that break no size: the wall limit ends them. */
Test(session, endless_empty_frames, .timeout = 20)
{
    struct played p;
    play(&p, "{\"template\":\"t\",\"command\":[\"x\"],\"limits\":{\"wall_ms\":200}}",
         script_empty_frames);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert(p.result.verdict == VERDICT_WALL_TIME_LIMIT, "%s", p.result.reason);
    cr_assert(!p.run.exited);
    played_done(&p);
}

/* ---- silence ---- */

static void script_silent(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    while (guest_recv(g, &f)) {
    }
}

static void script_deaf(struct fake_guest *g, void *arg)
{
    (void)arg;
    (void)g;
    sleep_ms(1500); /* reads nothing at all */
}

static void script_ready_then_silent(struct fake_guest *g, void *arg)
{
    if (guest_ready(g)) {
        script_silent(g, arg);
    }
}

static void script_started_then_silent(struct fake_guest *g, void *arg)
{
    if (guest_begin(g)) {
        script_silent(g, arg);
    }
}

Test(session, silence, .timeout = 20)
{
    expect_fault(script_silent, -ERR_TIMEOUT, "waiting for the identity");
    expect_fault(script_deaf, -ERR_TIMEOUT, "waiting for the identity");
    expect_fault(script_ready_then_silent, -ERR_TIMEOUT, "waiting for the start");
    struct played p; /* silence while running is the program's: the wall limit */
    play(&p, "{\"template\":\"t\",\"command\":[\"x\"],\"limits\":{\"wall_ms\":100}}",
         script_started_then_silent);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_WALL_TIME_LIMIT);
    cr_assert(!p.run.exited);
    cr_assert_eq(p.result.run.exit_code, -1);
    played_done(&p);
}

/* ---- broken protocol ---- */

static void script_half_frame(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        uint8_t header[FRAME_HEADER_BYTES];
        frame_header(header, FRAME_OUTPUT, 1, 1000);
        (void)guest_send_raw(g, header, sizeof header);
        (void)guest_send_raw(g, "half", 4);
    }
}

static void script_close(struct fake_guest *g, void *arg)
{
    (void)arg;
    (void)g;
}

static void script_huge_length(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        const uint8_t header[8] = { 0xff, 0xff, 0xff, 0x7f, FRAME_OUTPUT, 1, 0, 0 };
        (void)guest_send_raw(g, header, sizeof header);
        sleep_ms(1000);
    }
}

static void script_garbage(struct fake_guest *g, void *arg)
{
    (void)arg;
    char data[4096];
    memset(data, 0xa5, sizeof data);
    (void)guest_send_raw(g, data, sizeof data);
    sleep_ms(500);
}

static void script_hello(struct fake_guest *g, void *arg)
{
    (void)arg;
    guest_Hello m = { .protocol = 1 };
    (void)guest_send(g, FRAME_HELLO, guest_Hello_fields, &m);
    sleep_ms(500);
}

static void script_ready_twice(struct fake_guest *g, void *arg)
{
    (void)arg;
    guest_Ready m = { .reseeded = true, .realtime_ns = wall_ns() };
    if (guest_ready(g)) {
        (void)guest_send(g, FRAME_READY, guest_Ready_fields, &m);
        sleep_ms(500);
    }
}

static void script_wrong_run(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        g->run.run = 77;
        (void)guest_exit(g, 0);
        sleep_ms(500);
    }
}

static void script_exit_before_started(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_ready(g) && guest_recv_type(g, FRAME_RUN, &f)) {
        (void)guest_exit(g, 0);
        sleep_ms(500);
    }
}

static void script_output_before_started(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_ready(g) && guest_recv_type(g, FRAME_RUN, &f)) {
        (void)guest_send_output(g, 1, "x", 1);
        sleep_ms(500);
    }
}

static void script_bad_stream(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        (void)guest_send_output(g, 3, "x", 1);
        sleep_ms(500);
    }
}

static void script_bad_exit(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        guest_Exit m = { .run = g->run.run, .exit_code = 100000 };
        (void)guest_send(g, FRAME_EXIT, guest_Exit_fields, &m);
        sleep_ms(500);
    }
}

static void script_bad_message(struct fake_guest *g, void *arg)
{
    (void)arg;
    if (guest_begin(g)) {
        uint8_t frame[FRAME_HEADER_BYTES + 3] = { 0 };
        frame_header(frame, FRAME_EXIT, 0, 3);
        memset(frame + FRAME_HEADER_BYTES, 0xff, 3);
        (void)guest_send_raw(g, frame, sizeof frame);
        sleep_ms(500);
    }
}

static void script_not_reseeded(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_recv_type(g, FRAME_IDENTITY, &f)) {
        guest_Ready m = { .reseeded = false, .realtime_ns = wall_ns() };
        (void)guest_send(g, FRAME_READY, guest_Ready_fields, &m);
        sleep_ms(500);
    }
}

static void script_wrong_clock(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_recv_type(g, FRAME_IDENTITY, &f)) {
        guest_Ready m = { .reseeded = true, .realtime_ns = wall_ns() - 3000000000ll };
        (void)guest_send(g, FRAME_READY, guest_Ready_fields, &m);
        sleep_ms(500);
    }
}

static void script_agent_error(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_ready(g) && guest_recv_type(g, FRAME_RUN, &f)) {
        guest_GuestError m = { .run = g->run.run, .what = "run", .text = "no cgroup\x01 left" };
        (void)guest_send(g, FRAME_ERROR, guest_GuestError_fields, &m);
        sleep_ms(500);
    }
}

Test(session, broken_protocol, .timeout = 60)
{
    expect_fault(script_half_frame, -ERR_CLOSED, "the channel closed while running");
    expect_fault(script_close, -ERR_CLOSED, "the channel closed");
    expect_fault(script_huge_length, -ERR_PROTOCOL, "bad header");
    expect_fault(script_garbage, -ERR_PROTOCOL, "bad header");
    expect_fault(script_hello, -ERR_PROTOCOL, "frame of type 1 while");
    expect_fault(script_ready_twice, -ERR_PROTOCOL, "frame of type 4 while");
    expect_fault(script_wrong_run, -ERR_PROTOCOL, "Exit for run 77");
    expect_fault(script_exit_before_started, -ERR_PROTOCOL, "Exit before Started");
    expect_fault(script_output_before_started, -ERR_PROTOCOL, "frame of type 11");
    expect_fault(script_bad_stream, -ERR_PROTOCOL, "stream 3");
    expect_fault(script_bad_exit, -ERR_PROTOCOL, "Exit with code 100000");
    expect_fault(script_bad_message, -ERR_PROTOCOL, "message of type 13");
    expect_fault(script_not_reseeded, -ERR_PROTOCOL, "not reseeded");
    expect_fault(script_wrong_clock, -ERR_PROTOCOL, "clock");
    expect_fault(script_agent_error, -ERR_PROTOCOL, "run: no cgroup? left");
}

static bool refuses_command; /* and not the files */

static void script_do_not_fit(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_ready(g) && (!refuses_command || (guest_started(g) && guest_exit(g, 0) &&
                                                guest_recv_type(g, FRAME_RUN, &f)))) {
        guest_GuestError m = { .user_fault = true, .what = "file", .text = "no space" };
        (void)guest_send(g, FRAME_ERROR, guest_GuestError_fields, &m);
        sleep_ms(500);
    }
}

static void script_exec_error(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_ready(g) && guest_recv_type(g, FRAME_RUN, &f)) {
        guest_Exit m = { .run = g->run.run, .exit_code = 127, .exec_error = "gcc: no such file" };
        (void)guest_send(g, FRAME_EXIT, guest_Exit_fields, &m);
        sleep_ms(500);
    }
}

Test(session, faults_of_the_job, .timeout = 20)
{
    struct played p;
    const char *setup = "{\"template\":\"t\",\"setup\":[\"x\"],\"command\":[\"y\"]}";
    for (int i = 0; i < 2; i++) {
        refuses_command = i == 1;
        play(&p, setup, script_do_not_fit);
        cr_assert_eq(p.rc, 0, "%s", p.err.text);
        cr_assert_eq(p.result.verdict, VERDICT_DISK_LIMIT, "%s", p.result.reason);
        cr_assert_eq(p.result.setup.present, refuses_command);
        played_done(&p);
    }
    play(&p, ECHO, script_exec_error);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_RUNTIME_ERROR, "%s", p.result.reason);
    cr_assert(strstr(p.result.reason, "gcc: no such file"));
    played_done(&p);
}

/* ---- stdin that nobody wants ---- */

static void script_never_pulls(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    if (guest_begin(g)) {
        (void)guest_recv_type(g, FRAME_KILL, &f);
        (void)guest_exit(g, 0);
    }
}

static void script_pulls_without_reading(struct fake_guest *g, void *arg)
{
    (void)arg;
    guest_Pull m = { .bytes = 1u << 31 };
    bool on = guest_begin(g);
    m.run = g->run.run;
    while (on) {
        on = guest_send(g, FRAME_PULL, guest_Pull_fields, &m);
    }
}

static struct job_spec *large_stdin(void)
{
    struct job_spec *spec =
        parse("{\"template\":\"t\",\"command\":[\"x\"],\"limits\":{\"wall_ms\":300}}");
    spec->stdin_data.len = JOB_STDIN_BYTES_MAX;
    spec->stdin_data.data = calloc(1, JOB_STDIN_BYTES_MAX + 1);
    cr_assert_not_null(spec->stdin_data.data);
    return spec;
}

Test(session, large_stdin_and_a_guest_that_never_pulls, .timeout = 20)
{
    cleanup_job_spec struct job_spec *spec = large_stdin();
    struct played p;
    play_spec(&p, spec, script_never_pulls, NULL, -1);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_WALL_TIME_LIMIT, "%s", p.result.reason);
    cr_assert(p.run.exited, "the kill arrived");
    cr_assert_eq(p.stdin_bytes, STDIN_FIRST_BYTES);
    played_done(&p);
    play_spec(&p, spec, script_pulls_without_reading, NULL, -1);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_assert_eq(p.result.verdict, VERDICT_WALL_TIME_LIMIT, "%s", p.result.reason);
    cr_assert(!p.run.exited);
    played_done(&p);
}

/* 16 MiB of files to a guest that reads nothing: the deadline, not a blocked write. */
Test(session, large_files_and_a_deaf_guest, .timeout = 20)
{
    cleanup_job_spec struct job_spec *spec = parse(
        "{\"template\":\"t\",\"command\":[\"x\"],\"files\":[{\"path\":\"a\",\"text\":\"\"}]}");
    free(spec->files[0].content.data);
    spec->files[0].content.len = JOB_FILE_BYTES_MAX;
    spec->files[0].content.data = calloc(1, JOB_FILE_BYTES_MAX + 1);
    struct played p;
    play_spec(&p, spec, script_deaf, NULL, -1);
    cr_assert_eq(p.rc, -ERR_TIMEOUT, "%s", p.err.text);
    played_done(&p);
    times = &patient;                                  /* of this test's process alone */
    play_spec(&p, spec, guest_script_shell, NULL, -1); /* and to one that reads */
    cr_assert_eq(p.file_bytes, JOB_FILE_BYTES_MAX);
    cr_assert_eq(p.files, 1);
    played_done(&p);
}

Test(session, abort_ends_it_at_once, .timeout = 20)
{
    cleanup_job_spec struct job_spec *spec =
        parse("{\"template\":\"t\",\"command\":[\"sleep\",\"60000\"]}");
    int abort_fd = eventfd(1, EFD_CLOEXEC);
    struct played p;
    play_spec(&p, spec, guest_script_shell, NULL, abort_fd);
    cr_assert_eq(p.rc, -ERR_STALE, "%s", p.err.text);
    (void)close(abort_fd);
    played_done(&p);
}
