/* The worker's messages to a guest, and the checks of what a guest answers. No I/O but the system's
 * random source.
 *
 * Theory: everything a guest says is hostile. Numbers are checked where a range is part of the
 * protocol and clamped where they are only reported; texts are made printable, because they end in
 * logs, JSON and SQL. */
#pragma once
#include "common/model/job.h"
#include "common/model/result.h"
#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"
#include "worker/judge.h"
#include "worker/outq.h"

#define GUEST_PIDS_MAX 4194304            /* PID_MAX_LIMIT of Linux */
#define GUEST_CLOCK_SLACK_NS 1000000000ll /* the guest's clock may differ by this from ours */

/* Queue Identity: the time now, fresh entropy, a random host name and machine id. */
MUST_CHECK int guest_queue_identity(struct outq *q, struct err *err);
/* Queue a file; its content must stay until it is sent. */
MUST_CHECK int guest_queue_file(struct outq *q, const struct job_file *file, struct err *err);
/* Queue Cell: the next job's container; spare: with a warm interpreter in it. */
MUST_CHECK int guest_queue_cell(struct outq *q, bool spare, struct err *err);
enum guest_run_how {
    GUEST_RUN_KEEP = 1, /* what it leaves running lives on */
    GUEST_RUN_CELL = 2, /* in the container that was made last */
    GUEST_RUN_LAST = 4, /* nothing runs in the machine after it */
};
/* Queue Run number `run` for command cmd; how: of enum guest_run_how. scratch: memory for the
 * message (60 KB), the caller's. */
MUST_CHECK int guest_queue_run(struct outq *q, guest_Run *scratch, uint32_t run,
                               const struct job_spec *spec, const struct job_command *cmd,
                               uint64_t stdin_bytes, unsigned how, struct err *err);
MUST_CHECK int guest_queue_kill(struct outq *q, uint32_t run, struct err *err);

/* Ready must say that the generators were reseeded and the clock set: between sent_ns and now_ns
 * (UTC), give or take the slack. */
MUST_CHECK int guest_check_ready(const struct frame *f, int64_t sent_ns, int64_t now_ns,
                                 struct err *err);
/* text[room] = what the guest has found of the job before; "" when nothing. */
MUST_CHECK int guest_check_cell(const struct frame *f, char *text, size_t room, struct err *err);
MUST_CHECK int guest_check_started(const struct frame *f, uint32_t run, bool *ret_warm,
                                   struct err *err);
MUST_CHECK int guest_check_pull(const struct frame *f, uint32_t run, uint32_t *ret_bytes,
                                struct err *err);
/* Fills what Exit tells of *ret_run (not times of ours, not outputs) and *ret_full. */
MUST_CHECK int guest_check_exit(const struct frame *f, uint32_t run, struct run_result *ret_run,
                                struct disk_full *ret_full, struct err *err);
/* text[room] = what the guest could not do; *ret_user_fault: the job's fault. */
MUST_CHECK int guest_check_error(const struct frame *f, uint32_t run, bool *ret_user_fault,
                                 char *text, size_t room, struct err *err);
