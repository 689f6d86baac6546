#include "bench/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "worker/session.h"

struct bench_session {
    struct session session;
    struct job_spec *spec;
};

int bench_session_new(const char *template_name, struct bench_session **ret_session,
                      struct err *err)
{
    char json[256];
    int n = snprintf(json, sizeof json,
                     "{\"template\":\"%s\",\"command\":[\"python3\",\"-c\",\"print(1)\"]}",
                     template_name);
    if (n < 0 || (size_t)n >= sizeof json) {
        return err_set(err, ERR_INVALID, "template name too long");
    }
    struct bench_session *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    int rc = job_parse(json, (size_t)n, &s->spec, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    session_init(&s->session);
    *ret_session = s;
    return 0;
}

void bench_session_free(struct bench_session *s)
{
    if (s) {
        session_done(&s->session);
        job_spec_free(s->spec);
        free(s);
    }
}

int bench_session_run(struct bench_session *s, int channel_fd, int cpu_fd, int64_t start_us,
                      int64_t *ret_first_byte_us, int64_t *ret_total_us, struct err *err)
{
    assert(s && channel_fd >= 0);
    struct session_job job = {
        .channel_fd = channel_fd,
        .cpu_fd = cpu_fd,
        .abort_fd = -1,
        .vcpus = 1,
        .last = true,
        .spec = s->spec,
        .lease_start_us = start_us,
        .times = &session_times_default,
    };
    struct job_result r;
    struct run_facts setup = { 0 }, run = { 0 };
    struct run_result before;
    job_result_init(&r);
    int rc = session_run(&s->session, &job, &r, &before, &setup, &run, err);
    int64_t end_us = mono_us();
    if (rc >= 0 && (r.run.exit_code != 0 || r.run.out.head.len != 2 ||
                    memcmp(r.run.out.head.data, "1\n", 2) != 0)) {
        rc = err_set(err, ERR_PROTOCOL,
                     "print(1) ended with exit code %d, signal %d and %zu bytes of output",
                     r.run.exit_code, r.run.signal, r.run.out.head.len);
    }
    if (rc >= 0) {
        *ret_first_byte_us = r.first_byte_us;
        *ret_total_us = end_us - start_us;
    }
    job_result_done(&r);
    return rc < 0 ? rc : 0;
}
