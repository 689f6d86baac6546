/* From what was measured to a verdict. Pure; the order of precedence is docs/verdicts.md's.
 *
 * Theory: first the limits, because a program that was cut off proves nothing about itself; among
 * them the one that is known most exactly first. Then how the program ended, and only then what it
 * printed. */
#pragma once
#include "common/model/job.h"
#include "common/model/result.h"

/* Why the host ended a run. */
enum run_stop { STOP_NONE, STOP_OUTPUT, STOP_CPU, STOP_WALL };

/* What the writable layer had no more of, at some time during the run. */
struct disk_full {
    bool bytes, files;
};

#define RUN_REFUSED_MAX 200

/* What the session knows of a run beyond struct run_result. */
struct run_facts {
    enum run_stop stop;
    bool exited; /* Exit was received; false after a kill that was not answered */
    struct disk_full disk_full;
    char refused[RUN_REFUSED_MAX]; /* not empty: the guest could not take the job's files, by the
                                      job's fault */
};

/* Fill verdict, reason, limit_*, compare and compared of r from r->setup, r->run (each only when
 * present) and their facts. spec: the job. VERDICT_NONE when there was no main run to
 * judge and set-up is well; never an infra verdict. Any
 * thread. */
void judge(const struct job_spec *spec, const struct run_facts *setup, const struct run_facts *run,
           struct job_result *r);
/* Did a step of set-up, under its limits, do its work, so that what follows may start? */
bool judge_step_ok(const struct job_limits *limits, const struct run_result *step,
                   const struct run_facts *facts);
