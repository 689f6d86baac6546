/* One `print(1)` in a sandbox, by the worker's own session code: what bench_pool and bench_boot
 * have in common. Plain types only: the pool's and the worker's headers each have a struct
 * template_info and cannot meet in one file. */
#pragma once
#include <stdint.h>
#include "common/base/err.h"

struct bench_session;

/* template_name: recorded in the job, not looked up. Aborts when memory is out. */
MUST_CHECK int bench_session_new(const char *template_name, struct bench_session **ret_session,
                                 struct err *err);
void bench_session_free(struct bench_session *s);
/* Identity, run, until its end. channel_fd: the guest's stream; cpu_fd: schedstat or -1 (both
 * borrowed). start_us: monotonic moment from where the first byte counts. *ret_first_byte_us,
 * *ret_total_us: from start_us. -ERR_PROTOCOL when it did not print 1. */
MUST_CHECK int bench_session_run(struct bench_session *s, int channel_fd, int cpu_fd,
                                 int64_t start_us, int64_t *ret_first_byte_us,
                                 int64_t *ret_total_us, struct err *err);
