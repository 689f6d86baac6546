/* One run: from the RUN message to EXIT.
 *
 * Data flows only as fast as the channel takes it: a stream is read when the queue has room for a
 * frame, else the program waits in its own write(2). stdin is pulled from the host in pieces of
 * RUN_STDIN_BYTES. The run ends in fixed steps: main process ended -> whatever is left of its
 * cgroup killed -> cgroup empty -> pipes drained -> EXIT. Nothing of it depends on the pipes' end
 * of file: a program cannot hold an EXIT up by hiding a descriptor somewhere. */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include "schemas/proto/guest.pb.h"
#include "guest/channel.h"
#include "guest/disk.h"
#include "guest/exits.h"
#include "guest/refusals.h"
#include "guest/slot.h"

#define RUN_STDIN_BYTES 65536u /* of one PULL, and what the host may send unasked */
#define RUN_OUTPUT_SLACK                                                                           \
    (2u << 20) /* forwarded beyond limits.output_bytes, so that the host sees that it was passed   \
                */

enum run_poll { RUN_POLL_OUT, RUN_POLL_ERR, RUN_POLL_STDIN, RUN_POLL_CGROUP, RUN_POLLS };

struct run {
    uint32_t number;
    bool active, trusted, warm;
    bool keep;   /* what it leaves running lives on */
    bool last;   /* nothing runs after it: its end need not be waited out */
    bool killed; /* by FRAME_KILL */
    bool mute;   /* the host that started it is gone: no EXIT */
    bool main_ended, cgroup_empty;
    bool closed[2]; /* end of file of stdout, stderr */
    struct slot *slot;
    pid_t main;
    pid_t leaving; /* the main process of a run that is over, which wait() has not told yet; 0: none
                    */
    int status;    /* as wait() gives it */
    int64_t start_us, end_us;
    uint64_t output_max; /* of each stream, forwarded at most */
    uint64_t bytes[2], leftovers;
    uint64_t stdin_total, stdin_got,
        stdin_asked; /* asked: the sum of what the host may have sent */
    size_t stdin_at, stdin_len;
    char exec_error[160];
    uint8_t stdin_data[2 * RUN_STDIN_BYTES]; /* last: not cleared for each run */
};

#define RUN_STACK_BYTES_MIN ((uint64_t)8 << 20)
#define RUN_STACK_BYTES_MAX ((uint64_t)64 << 20)

/* RLIMIT_STACK of a run with this memory limit: half of it, so that an endless recursion meets the
 * end of its stack (SIGSEGV, a runtime error) before the memory limit, which would hide what went
 * wrong. At most 64 MiB: a warm interpreter's address space was laid out at its own exec, with a
 * gap of 128 MiB below the stack whatever the limit is raised to later. Pure. */
static inline uint64_t run_stack_bytes(uint64_t memory_bytes)
{
    uint64_t half = memory_bytes / 2;
    return half < RUN_STACK_BYTES_MIN   ? RUN_STACK_BYTES_MIN
           : half > RUN_STACK_BYTES_MAX ? RUN_STACK_BYTES_MAX
                                        : half;
}

struct run_env { /* of the machine, the same for all runs */
    struct slots *slots;
    struct disk *disk;
    struct refusals *refusals;
    const struct exits *exits;
    const struct cell *cell;   /* the machine's, with one alive or not */
    uint64_t memory_max_bytes; /* what the machine can give at most */
    char *const *env_defaults;
    size_t env_defaults_n;
};

/* Start what msg says (msg's strings are used in place). Queues STARTED, and PULL when stdin is to
 * come. -ERR_INVALID, -ERR_TOO_LARGE (files above the disk limit): the user's fault. Others: ours.
 */
MUST_CHECK int run_start(struct run *run, const struct run_env *env, guest_Run *msg,
                         struct channel *ch, struct err *err);
/* FRAME_STDIN. -ERR_PROTOCOL when it is more than was asked for. */
MUST_CHECK int run_stdin(struct run *run, const uint8_t *data, size_t len, struct channel *ch,
                         struct err *err);
void run_kill(struct run *run);
/* The main process of a run that is the machine's last has begun to end: when it is alone, that is
 * the end of the run. */
void run_leaving(struct run *run, int status);
/* pid has ended with status. */
void run_ended(struct run *run, pid_t pid, int status);
/* Fill p[RUN_POLLS]; fd -1 for what is not waited for. */
void run_poll(const struct run *run, const struct channel *ch, struct pollfd *p);
/* Move data as p[RUN_POLLS].revents allow, and end step by step. true: it is over, run_exit may be
 * called. */
bool run_work(struct run *run, const struct pollfd *p, struct channel *ch);
/* Queue EXIT (unless mute) and let go of everything. */
void run_exit(struct run *run, const struct run_env *env, struct channel *ch);
