/* The worker's session against any bytes of a guest. The first byte says which job is under way and
 * how far the guest has come (Ready and Started, which no fuzzer guesses, are then sent for it);
 * the rest is what the guest sends before it hangs up. It ends, with a verdict or an error; what is
 * kept of outputs and figures is bounded. */
#include <assert.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 65536u
#define MACHINE_MIB 64
enum { SETTLES = 1, SETS_UP = 2, SEND_READY = 4, SEND_STARTED = 8, WITH_STDIN = 16 };

static const char json[] =
    "{\"template\":\"t\",\"command\":[\"x\"],\"setup\":\"make\",\"stdin\":\"abc\",\"limits\":{"
    "\"wall_ms\":100,\"output_bytes\":1024}}";

static const struct session_times quick = {
    .ready_ms = 50, .start_ms = 50, .kill_grace_ms = 20, .output_grace_ms = 10
};

static void say(int fd, enum frame_type type, const pb_msgdesc_t *fields, const void *m)
{
    uint8_t out[256];
    struct err err;
    int n = frame_encode(out, sizeof out, type, fields, m, &err);
    assert(n > 0);
    (void)!write(fd, out, (size_t)n);
}

static void check(const struct run_result *r)
{
    int64_t machine = (int64_t)MACHINE_MIB << 20;
    assert(r->wall_us >= 0 && r->cpu_us >= 0 && r->guest_cpu_us >= 0);
    assert(r->memory_peak_bytes >= 0 && r->memory_peak_bytes <= machine);
    assert(r->disk_used_bytes >= 0 && r->disk_used_bytes <= machine);
    assert(r->out.head.len + r->out.tail.len <= 1u << 20);
    for (const char *p = r->exec_error; *p; p++) {
        assert(*p >= ' ' && *p <= '~');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session s;
    static struct job_spec *spec;
    struct err err = { 0 };
    int pair[2];
    if (size < 1 || size > INPUT_MAX) {
        return 0;
    }
    if (!spec) {
        (void)signal(SIGPIPE, SIG_IGN);
        log_init("fuzz", LOG_ERROR, 2);
        session_init(&s);
        int rc = job_parse(json, strlen(json), &spec, &err);
        assert(rc == 0);
    }
    int mode = data[0];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        abort();
    }
    if (mode & SEND_READY) {
        guest_Ready m = { .reseeded = true, .realtime_ns = wall_ns() };
        say(pair[1], FRAME_READY, guest_Ready_fields, &m);
    }
    if (mode & SEND_STARTED) {
        guest_Started m = { .run = 1 };
        say(pair[1], FRAME_STARTED, guest_Started_fields, &m);
    }
    (void)!send(pair[1], data + 1, size - 1, MSG_DONTWAIT);
    (void)shutdown(pair[1], SHUT_WR);
    const struct job_command *steps[] = { &spec->setup };
    struct session_job job = { .channel_fd = pair[0],
                               .cpu_fd = -1,
                               .abort_fd = -1,
                               .vcpus = 1,
                               .memory_mib = MACHINE_MIB,
                               .spec = spec,
                               .steps = steps,
                               .n_steps = (mode & SETS_UP) != 0,
                               .settle = (mode & SETTLES) != 0,
                               .lease_start_us = mono_us(),
                               .times = &quick };
    struct job_result r;
    struct run_result before;
    struct run_facts setup, run;
    job_result_init(&r);
    if (session_run(&s, &job, &r, &before, &setup, &run, &err) == 0) {
        judge(spec, &setup, &run, &r);
        assert(job.settle || r.verdict != VERDICT_NONE);
        check(&r.run);
        check(&r.setup);
    } else {
        assert(err.text[0]);
    }
    run_result_join(&before, &r.setup);
    r.setup = before;
    job_result_done(&r);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return 0;
}
