/* CPU time of a sandbox, by the host's clock: the schedstat file of its vCPU thread ("cpu_ns
 * wait_ns n", one read). Source: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
 */
#pragma once
#include <stdint.h>
#include "common/base/err.h"

/* Nanoseconds on a CPU so far. fd: the file, open for reading, of the caller. -ERR_SYS (the thread
 * is gone), -ERR_INVALID. */
MUST_CHECK int cpu_meter_read(int fd, int64_t *ret_ns, struct err *err);
