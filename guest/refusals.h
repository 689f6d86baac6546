/* How often the kernel has said "no" to a run: no room in the writable layer, no more files there,
 * no more descriptors.
 *
 * Theory: memory and processes have counters in the run's cgroup; these three have none, and what
 * is left at the end does not tell (a compiler removes its half-written output, a file of O_TMPFILE
 * is gone with its program). So the kernel's own functions are watched: return probes that are
 * written down only for ENOSPC or EMFILE, one trace instance a kind, of which only the number of
 * entries is ever read. Set up before the snapshot, out of sight of jobs (tracefs stays in the
 * initramfs); a probe that this kernel does not know is left out, and its kind counts less. */
#pragma once
#include <stdint.h>
#include "common/base/err.h"

enum refusal { REFUSAL_DISK, REFUSAL_DISK_FILES, REFUSAL_OPEN_FILES, REFUSALS };
#define REFUSALS_CPUS_MAX 64

struct refusals {
    int stats_fd[REFUSALS][REFUSALS_CPUS_MAX]; /* -1: none */
    int n_cpus;
    int pipe_fd[REFUSALS]; /* readable once there was one: what a run without any costs is one poll
                            */
    uint64_t seen[REFUSALS]; /* counted up to the end of the run before */
};

/* Before switch_root. -ERR_SYS when there is no tracefs. */
MUST_CHECK int refusals_init(struct refusals *r, struct err *err);
/* What came since the last call. */
void refusals_take(struct refusals *r, uint64_t ret_counts[REFUSALS]);
