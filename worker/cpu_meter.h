/* CPU time of a sandbox, by the host's clock: the schedstat file of its vCPU thread ("cpu_ns
 * wait_ns n", one read). Source: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
 */
#pragma once
#include <stdint.h>
#include "common/base/err.h"

struct cpu_meter {
    int64_t ran_ns;    /* on a CPU so far */
    int64_t waited_ns; /* ready to run so far, while no CPU was free */
};

/* fd: the file, open for reading, of the caller. -ERR_SYS (the thread is gone), -ERR_INVALID. */
MUST_CHECK int cpu_meter_read(int fd, struct cpu_meter *ret, struct err *err);
