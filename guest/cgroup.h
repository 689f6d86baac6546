/* The cgroups of runs: made ahead, used once.
 *
 * Making a cgroup waits for grace periods of the kernel, and memory.peak of Linux 6.1 cannot be
 * reset. So a few are made before the snapshot, each with all its control files open, and a run
 * only writes two limits. A used one is removed and made again off the run's path. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"

enum cgroup_file {
    CGROUP_PROCS,
    CGROUP_KILL,
    CGROUP_EVENTS,
    CGROUP_MEMORY_MAX,
    CGROUP_MEMORY_PEAK,
    CGROUP_MEMORY_EVENTS,
    CGROUP_PIDS_MAX,
    CGROUP_PIDS_EVENTS,
    CGROUP_CPU_STAT,
    CGROUP_FILES
};

struct cgroup {
    int dir_fd; /* for CLONE_INTO_CGROUP */
    int fd[CGROUP_FILES];
};

struct cgroup_use {
    uint64_t cpu_us, memory_peak_bytes;
    uint32_t oom_kills, process_refusals;
};

/* Make the cgroup `name` below parent_fd and open its files. */
MUST_CHECK int cgroup_make(struct cgroup *cg, int parent_fd, const char *name, struct err *err);
/* Close the files and remove it; it must be empty of processes. */
void cgroup_remove(struct cgroup *cg, int parent_fd, const char *name);
MUST_CHECK int cgroup_limit(const struct cgroup *cg, uint64_t memory_bytes, uint32_t processes,
                            struct err *err);
/* SIGKILL to every process in it, also to those that fork meanwhile. */
void cgroup_kill(const struct cgroup *cg);
/* Processes in it now (zombies do not count), at most COUNT_MAX. */
uint32_t cgroup_processes(const struct cgroup *cg);
/* Nobody but this process, which may be ending, is in it. */
bool cgroup_alone(const struct cgroup *cg, pid_t pid);
bool cgroup_populated(const struct cgroup *cg);
void cgroup_used(const struct cgroup *cg, struct cgroup_use *ret_use);
