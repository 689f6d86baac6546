#include "worker/session.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "worker/cpu_meter.h"
#include "worker/guest_msgs.h"

#define CPU_CHECK_MIN_US 1000 /* shortest time between two readings of the CPU meter */
#define OUTPUT_GRACE_WALL 10  /* times output_grace_ms */
#define HOST_WAIT_WALL                                                                             \
    10 /* times wall_ms, or the grace: at the latest then, however busy the host */
#define NEVER_US INT64_MAX
#define GUEST_CPU_SLACK_US 100000 /* its account is in ticks, and goes on to the very end */
#define SEND_BYTES_PER_MS 8192    /* the slowest taking of files that is waited for */

const struct session_times session_times_default = {
    .ready_ms = 30000, .start_ms = 30000, .kill_grace_ms = 2000, .output_grace_ms = 500
};

void session_init(struct session *s)
{
    *s = (struct session){ .run_scratch = calloc(1, sizeof(guest_Run)) };
    if (!s->run_scratch) {
        abort();
    }
    frame_parser_init(&s->parser);
    outq_init(&s->out);
}

void session_done(struct session *s)
{
    frame_parser_done(&s->parser);
    outq_done(&s->out);
    capture_done(&s->capture[0]);
    capture_done(&s->capture[1]);
    free(s->run_scratch);
    s->run_scratch = NULL;
}

/* ---- sending ---- */

/* One piece of stdin at a time, within what the guest asked for: a guest that asks byte by byte
 * cannot fill the queue. */
static int pump_stdin(struct session *s, struct err *err)
{
    if (!outq_empty(&s->out) || s->stdin_left.len == 0 || s->stdin_credit == 0 ||
        s->stop != STOP_NONE) {
        return 0;
    }
    size_t n = s->stdin_left.len;
    n = n < s->stdin_credit ? n : (size_t)s->stdin_credit;
    n = n < FRAME_PAYLOAD_MAX ? n : FRAME_PAYLOAD_MAX;
    int rc = outq_raw(&s->out, FRAME_STDIN, s->stdin_left.data, n, err);
    s->stdin_left.data += n;
    s->stdin_left.len -= n;
    s->stdin_credit -= n;
    return rc;
}

static void read_cpu(struct session *s, int64_t *ret_ns)
{
    struct err err = { 0 };
    struct cpu_meter m;
    if (s->job->cpu_fd >= 0 && cpu_meter_read(s->job->cpu_fd, &m, &err) == 0) {
        *ret_ns = m.ran_ns; /* a sandbox that just died keeps its last figures */
        s->waited_ns = m.waited_ns;
    }
}

/* How long the run's processor was ready to run, and the host had none free for it; and how long
 * nobody was here to see the run end. */
static int64_t host_wait_us(struct session *s)
{
    int64_t ns, wait_us = s->absence.total_us;
    read_cpu(s, &ns);
    if (s->job->cpu_fd >= 0 && s->waited_ns > s->wait_base_ns) {
        wait_us += (s->waited_ns - s->wait_base_ns) / 1000;
    }
    int64_t most_us = s->command->limits.wall_ms * 1000 * (HOST_WAIT_WALL - 1);
    return wait_us < most_us ? wait_us : most_us;
}

/* Of the time since Kill: what the guest has to say about the run must not depend on how busy the
 * host is. */
static int64_t kill_wait_us(struct session *s)
{
    int64_t ns, most_us = s->job->times->kill_grace_ms * 1000 * (HOST_WAIT_WALL - 1);
    read_cpu(s, &ns);
    int64_t wait_us = (s->waited_ns - s->kill_wait_ns) / 1000;
    return wait_us < 0 ? 0 : wait_us < most_us ? wait_us : most_us;
}

static int send_pending(struct session *s, struct err *err)
{
    for (;;) {
        int rc = pump_stdin(s, err);
        if (rc < 0) {
            return rc;
        }
        if (s->out_closed || outq_empty(&s->out)) {
            return 0;
        }
        if (s->run_us == 0) {
            read_cpu(s,
                     &s->cpu_base_ns); /* the run's CPU time counts from just before Run is out */
            s->wait_base_ns = s->waited_ns;
        }
        struct err send_err = { 0 };
        rc = outq_flush(&s->out, s->job->channel_fd, &send_err);
        if (rc == -ERR_CLOSED) {
            s->out_closed =
                true; /* its last words may still be unread: the reader will find the end */
            return 0;
        }
        if (rc < 0) {
            *err = send_err;
            return rc;
        }
        if (s->run_us == 0 && s->out.sent >= s->run_mark) {
            s->run_us = mono_us();
            absence_begin(&s->absence);
        }
        if (!outq_empty(&s->out)) {
            return 0;
        }
    }
}

static int queue_run(struct session *s, const struct job_command *command, struct bytes stdin_data,
                     struct err *err)
{
    s->command = command;
    s->run++;
    s->stop = STOP_NONE;
    s->warm = false;
    s->disk_full = (struct disk_full){ 0 };
    s->run_us = s->over_us = s->kill_us = s->cpu_us = s->over_cpu_ns = 0;
    s->cpu_check_us = 0;
    s->reported = (struct run_result){ .exit_code = -1 };
    for (int i = 0; i < 2; i++) {
        capture_start(&s->capture[i], (size_t)command->limits.output_bytes);
    }
    bool is_setup = command != &s->job->spec->command;
    unsigned how = (is_setup && s->job->keep ? GUEST_RUN_KEEP : 0) |
                   (!is_setup && s->job->last ? GUEST_RUN_LAST : 0) |
                   (s->job->cell ? GUEST_RUN_CELL : 0);
    int rc = guest_queue_run(&s->out, s->run_scratch, s->run, s->job->spec, command, stdin_data.len,
                             how, err);
    if (rc < 0) {
        return rc;
    }
    s->run_mark = s->out.queued;
    s->stdin_left = stdin_data;
    s->stdin_credit = 0;
    size_t first = stdin_data.len < STDIN_FIRST_BYTES ? stdin_data.len : STDIN_FIRST_BYTES;
    if (first > 0) {
        rc = outq_raw(&s->out, FRAME_STDIN, stdin_data.data, first, err);
        s->stdin_left.data += first;
        s->stdin_left.len -= first;
    }
    return rc;
}

static int stop_run(struct session *s, enum run_stop why, int64_t now_us, struct err *err)
{
    if (s->stop != STOP_NONE) {
        return 0;
    }
    int64_t ns;
    read_cpu(s, &ns);
    s->stop = why;
    s->kill_us = now_us;
    s->kill_wait_ns = s->waited_ns;
    return guest_queue_kill(&s->out, s->run, err);
}

/* ---- receiving ---- */

static int on_output(struct session *s, const struct frame *f, int64_t now_us, struct err *err)
{
    if (f->stream != 1 && f->stream != 2) {
        return err_set(err, ERR_PROTOCOL, "guest: output of stream %d", f->stream);
    }
    if (s->trace.first_byte_us == 0 && f->len > 0) {
        s->trace.first_byte_us = now_us;
    }
    struct capture *c = &s->capture[f->stream - 1];
    capture_add(c, f->payload, f->len);
    if (s->job->live && s->command == &s->job->spec->command) {
        live_add(s->job->live, f->stream, f->payload, f->len);
    }
    if (capture_over(c) && s->over_us == 0) {
        s->over_us = now_us;
    }
    return capture_flooded(c) ? stop_run(s, STOP_OUTPUT, now_us, err) : 0;
}

static int on_pull(struct session *s, const struct frame *f, struct err *err)
{
    uint32_t bytes;
    int rc = guest_check_pull(f, s->run, &bytes, err);
    if (rc < 0) {
        return rc;
    }
    s->stdin_credit += bytes;
    if (s->stdin_credit > s->stdin_left.len) {
        s->stdin_credit = s->stdin_left.len;
    }
    return 0;
}

static int on_exit_frame(struct session *s, const struct frame *f, int64_t now_us, struct err *err)
{
    int rc = guest_check_exit(f, s->run, &s->reported, &s->disk_full, err);
    if (rc < 0) {
        return rc;
    }
    if (s->state == SESSION_WAIT_STARTED && !s->reported.exec_error[0]) {
        return err_set(err, ERR_PROTOCOL, "guest: Exit before Started");
    }
    s->trace.exit_us = now_us;
    return 0;
}

/* The user's fault is one of files, and those are taken before anything runs. Behind a Kill the
 * broken limit is the story, whatever else the guest has to say. */
static int on_error_frame(struct session *s, const struct frame *f, struct err *err)
{
    int rc = guest_check_error(f, s->run, &s->user_fault, s->refused, sizeof s->refused, err);
    if (rc == 0 && s->state == SESSION_RUNNING) {
        s->user_fault = false;
        rc = err_set(err, ERR_PROTOCOL, "guest: %s", s->refused);
    }
    return rc;
}

/* Started and Exit answer a Run that is wholly written. While the machine settles none is, though
 * one was before. */
static bool answers_no_run(const struct session *s, enum frame_type type)
{
    return (type == FRAME_STARTED || type == FRAME_EXIT) && (s->settling || s->run_us == 0);
}

static int on_frame(struct session *s, const struct frame *f, int64_t now_us, struct err *err)
{
    int next = session_next(s->state, f->type);
    if (next < 0 || answers_no_run(s, f->type)) {
        return err_set(err, ERR_PROTOCOL, "guest: frame of type %d while %s", (int)f->type,
                       session_state_word(s->state));
    }
    int rc = 0;
    switch (f->type) {
    case FRAME_READY:
        rc = guest_check_ready(f, s->identity_ns, wall_ns(), err);
        s->trace.ready_us = s->wait_us = now_us;
        break;
    case FRAME_STARTED:
        rc = guest_check_started(f, s->run, &s->warm, err);
        s->trace.started_us = now_us;
        break;
    case FRAME_OUTPUT:
        rc = on_output(s, f, now_us, err);
        break;
    case FRAME_PULL:
        rc = on_pull(s, f, err);
        break;
    case FRAME_EXIT:
        rc = on_exit_frame(s, f, now_us, err);
        break;
    case FRAME_SETTLED:
        rc = s->settling ? 0 : err_set(err, ERR_PROTOCOL, "guest: Settled without Settle");
        break;
    case FRAME_CELL_READY:
        rc = s->celling ? guest_check_cell(f, s->trouble, sizeof s->trouble, err)
                        : err_set(err, ERR_PROTOCOL, "guest: CellReady without Cell");
        s->celling = false;
        break;
    case FRAME_ERROR:
        rc = on_error_frame(s, f, err);
        break;
    default:
        assert(!"the table lists only frames handled here");
    }
    if (rc == 0) {
        s->state = (enum session_state)next;
    }
    return rc;
}

static bool over(const struct session *s)
{
    return s->state == SESSION_EXITED || s->state == SESSION_SETTLED || s->state == SESSION_REFUSED;
}

/* Read once and handle what came. At most one parser's fill, so that deadlines are looked at in
 * between. */
static int receive(struct session *s, struct err *err)
{
    size_t room;
    uint8_t *space = frame_parser_space(&s->parser, &room);
    ssize_t n = recv(s->job->channel_fd, space, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (n <= 0) {
        return err_set(err, ERR_CLOSED, "guest: the channel closed while %s",
                       session_state_word(s->state));
    }
    frame_parser_filled(&s->parser, (size_t)n);
    int64_t now_us = mono_us();
    struct frame f;
    int rc;
    while (!over(s) && (rc = frame_parser_next(&s->parser, &f, err)) != 0) {
        if (rc < 0 || (rc = on_frame(s, &f, now_us, err)) < 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- deadlines ---- */

static void earlier(int64_t *due_us, int64_t t)
{
    if (t < *due_us) {
        *due_us = t;
    }
}

static int check_cpu(struct session *s, int64_t now_us, int64_t *due_us, struct err *err)
{
    if (s->job->cpu_fd < 0) {
        return 0;
    }
    if (now_us >= s->cpu_check_us) {
        int64_t ns = s->cpu_base_ns + s->cpu_us * 1000;
        read_cpu(s, &ns);
        s->cpu_us = (ns - s->cpu_base_ns) / 1000;
        int64_t left_us = s->command->limits.cpu_ms * 1000 - s->cpu_us;
        if (left_us < 0) {
            return stop_run(s, STOP_CPU, now_us, err);
        }
        int64_t wait_us = left_us / s->job->vcpus + 1;
        s->cpu_check_us = now_us + (wait_us > CPU_CHECK_MIN_US ? wait_us : CPU_CHECK_MIN_US);
    }
    earlier(due_us, s->cpu_check_us);
    return 0;
}

/* When a stream that has passed its limit is ended: after output_grace_ms of the guest's CPU time,
 * so that on a busy host the same program still gets to print the same bytes; a guest that idles
 * gets OUTPUT_GRACE_WALL times as long. */
static int64_t output_deadline(struct session *s, int64_t now_us)
{
    int64_t grace_us = s->job->times->output_grace_ms * 1000;
    if (!s->over_us) {
        return NEVER_US;
    }
    if (s->job->cpu_fd < 0) {
        return s->over_us + grace_us;
    }
    int64_t ns = 0, end_us = s->over_us + grace_us * OUTPUT_GRACE_WALL;
    read_cpu(s, &ns);
    if (s->over_cpu_ns == 0) {
        s->over_cpu_ns = ns;
    }
    int64_t left_us = grace_us - (ns - s->over_cpu_ns) / 1000;
    int64_t next_us =
        left_us <= 0 ? now_us : now_us + (left_us > CPU_CHECK_MIN_US ? left_us : CPU_CHECK_MIN_US);
    return next_us < end_us ? next_us : end_us;
}

/* Act on deadlines that have passed; *ret_due_us = the next one. 1: the run is given up after its
 * Kill. */
static int check_deadlines(struct session *s, int64_t now_us, int64_t *ret_due_us, struct err *err)
{
    const struct session_times *t = s->job->times;
    int64_t due_us = NEVER_US;
    if (s->state == SESSION_WAIT_READY || s->state == SESSION_WAIT_STARTED) {
        bool ready = s->state == SESSION_WAIT_STARTED;
        int64_t limit_ms =
            ready ? t->start_ms + (int64_t)(s->out.queued / SEND_BYTES_PER_MS) : t->ready_ms;
        due_us = (ready ? s->wait_us : s->begin_us) + limit_ms * 1000 + s->absence.total_us;
        if (now_us >= due_us) {
            return err_set(err, ERR_TIMEOUT, "guest: no answer within %lld ms while %s",
                           (long long)limit_ms, session_state_word(s->state));
        }
    } else if (s->stop == STOP_NONE) {
        int64_t wall_end_us = s->run_us + s->command->limits.wall_ms * 1000;
        if (now_us > wall_end_us) { /* only now is it worth the reading */
            wall_end_us += host_wait_us(s);
        }
        int64_t output_end_us = output_deadline(s, now_us);
        int rc = 0;
        if (now_us >= output_end_us) {
            rc = stop_run(s, STOP_OUTPUT, now_us, err);
        } else if (now_us > wall_end_us) {
            rc = stop_run(s, STOP_WALL, now_us, err);
        } else {
            earlier(&due_us, wall_end_us + 1);
            earlier(&due_us, output_end_us);
            rc = check_cpu(s, now_us, &due_us, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (s->stop != STOP_NONE) {
        due_us = s->kill_us + t->kill_grace_ms * 1000;
        if (now_us >= due_us) {
            due_us += kill_wait_us(s);
        }
        if (now_us >= due_us) {
            return 1;
        }
    }
    if (s->job->live) {
        live_tick(s->job->live, now_us);
        earlier(&due_us, live_due_us(s->job->live));
    }
    *ret_due_us = due_us;
    return 0;
}

static int wait_channel(struct session *s, int64_t due_us, short *ret_events, struct err *err)
{
    int64_t now_us = mono_us(), wait_us = due_us > now_us ? due_us - now_us : 0;
    struct timespec ts = { .tv_sec = wait_us / 1000000, .tv_nsec = wait_us % 1000000 * 1000 };
    bool sending = !s->out_closed && !outq_empty(&s->out);
    struct pollfd p[2] = { { .fd = s->job->channel_fd,
                             .events = (short)(POLLIN | (sending ? POLLOUT : 0)) },
                           { .fd = s->job->abort_fd, .events = POLLIN } };
    absence_waits(&s->absence, now_us);
    int n = ppoll(p, 2, &ts, NULL);
    absence_back(&s->absence, due_us, mono_us());
    if (n < 0 && errno != EINTR) {
        return err_sys(err, "guest: poll");
    }
    *ret_events = n > 0 ? p[0].revents : 0;
    if (n > 0 && p[1].revents) {
        return err_set(err, ERR_STALE, "the job was given up");
    }
    return 0;
}

/* Until the run in hand has ended, was refused or is given up after a Kill (0 each time). */
static int drive(struct session *s, struct err *err)
{
    while (!over(s)) {
        int64_t due_us = NEVER_US;
        int rc = check_deadlines(s, mono_us(), &due_us, err);
        if (rc != 0) {
            return rc < 0 ? rc : 0;
        }
        short events = 0;
        if ((rc = send_pending(s, err)) < 0 || (rc = wait_channel(s, due_us, &events, err)) < 0) {
            return rc;
        }
        if (events & (POLLIN | POLLHUP | POLLERR)) {
            rc = receive(s, err);
            if (rc < 0 && s->stop != STOP_NONE) {
                return 0; /* it was being killed anyway: the broken limit is the story */
            }
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

/* ---- the whole ---- */

static void at_most(int64_t *v, int64_t max)
{
    *v = *v < max ? *v : max;
}

/* What only the guest can know is told as it says, within what its machine can have done. */
static void bound_reported(const struct session_job *job, struct run_result *run)
{
    int64_t machine_bytes = (int64_t)job->memory_mib << 20;
    at_most(&run->guest_cpu_us, run->wall_us * job->vcpus + GUEST_CPU_SLACK_US);
    if (job->cpu_fd < 0) {
        run->cpu_us = run->guest_cpu_us;
    }
    if (machine_bytes > 0) { /* the writable layer is memory too */
        at_most(&run->memory_peak_bytes, machine_bytes);
        at_most(&run->disk_used_bytes, machine_bytes);
    }
    at_most(&run->leftover_processes, GUEST_PIDS_MAX);
}

static void fill_run(struct session *s, struct run_result *run, struct run_facts *facts)
{
    bool exited = s->state == SESSION_EXITED;
    int64_t end_us = exited ? s->trace.exit_us : s->stop != STOP_NONE ? s->kill_us : mono_us();
    int64_t ns = s->cpu_base_ns + s->cpu_us * 1000;
    read_cpu(s, &ns);
    *run = s->reported;
    run->present = true;
    run->warm = s->warm;
    run->cpu_us = s->job->cpu_fd >= 0 ? (ns - s->cpu_base_ns) / 1000 : s->reported.guest_cpu_us;
    run->wall_us = s->run_us > 0 && end_us > s->run_us ? end_us - s->run_us : 0;
    bound_reported(s->job, run);
    run->host_wait_us = host_wait_us(s);
    capture_result(&s->capture[0], &run->out);
    capture_result(&s->capture[1], &run->err_out);
    *facts = (struct run_facts){ .stop = s->stop, .exited = exited, .disk_full = s->disk_full };
}

static int run_command(struct session *s, const struct job_command *command,
                       struct bytes stdin_data, struct run_result *run, struct run_facts *facts,
                       struct err *err)
{
    int rc = queue_run(s, command, stdin_data, err);
    if (rc < 0 || (rc = drive(s, err)) < 0) {
        return rc;
    }
    if (s->state == SESSION_REFUSED && !s->user_fault) {
        return err_set(err, ERR_PROTOCOL, "guest: %s", s->refused);
    }
    fill_run(s, run, facts);
    return 0;
}

static void begin(struct session *s, const struct session_job *job)
{
    s->job = job;
    s->state = job->resume ? SESSION_WAIT_STARTED : SESSION_WAIT_READY;
    s->out_closed = s->user_fault = s->settling = false;
    s->run = job->resume ? s->run : 0;
    s->refused[0] = 0;
    s->failed_step = -1;
    s->trace = (struct session_trace){ 0 };
    s->command = NULL; /* the last job's, and gone with it */
    s->stop = STOP_NONE;
    s->run_us = s->over_us = s->kill_us = 0;
    s->stdin_left = (struct bytes){ 0 };
    s->stdin_credit = 0;
    s->cpu_base_ns = s->wait_base_ns = s->waited_ns = 0;
    s->parser.start = s->parser.end = 0;
    s->parser.broken = 0;
    outq_reset(&s->out);
    s->identity_ns = wall_ns();
    absence_begin(&s->absence);
    s->begin_us = s->wait_us = s->trace.sent_us = mono_us();
}

/* Ready for the next command of the same machine. */
static void next_command(struct session *s)
{
    s->state = SESSION_WAIT_STARTED;
    s->wait_us = mono_us();
    absence_begin(&s->absence);
    s->trace.first_byte_us = 0;
}

/* Steps of set-up, until one fails. *ret_ok: set to false when one did. */
static int run_steps(struct session *s, int from, int to, struct job_result *r,
                     struct run_result *before, struct run_facts *facts, bool *ret_ok,
                     struct err *err)
{
    const struct bytes nothing = { 0 };
    int own = s->job->n_steps - s->job->n_first; /* on_fork is counted by nobody */
    r->setup_steps = own > 1 ? own : 0;
    for (int i = from; i < to && *ret_ok; i++) {
        const struct job_command *step = s->job->steps[i];
        run_result_join(before, &r->setup);
        int rc = run_command(s, step, nothing, &r->setup, facts, err);
        if (rc < 0) {
            return rc;
        }
        *ret_ok = s->state == SESSION_EXITED && judge_step_ok(&step->limits, &r->setup, facts);
        if (*ret_ok) {
            next_command(s);
        } else {
            s->failed_step = i;
            r->setup_failed = i < s->job->n_first ? -1 : i - s->job->n_first;
        }
    }
    return 0;
}

static int queue_files(struct session *s, const struct job_file *files, int n, struct err *err)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = guest_queue_file(&s->out, &files[i], err);
    }
    return rc;
}

static int settle(struct session *s, struct err *err)
{
    s->settling = true;
    s->stop = STOP_NONE;
    int rc = outq_bare(&s->out, FRAME_SETTLE, err);
    if (rc < 0 || (rc = drive(s, err)) < 0) {
        return rc;
    }
    if (s->state == SESSION_REFUSED && !s->user_fault) {
        return err_set(err, ERR_PROTOCOL, "guest: %s", s->refused);
    }
    assert(s->state == SESSION_SETTLED || s->state == SESSION_REFUSED);
    return 0;
}

int session_settle(struct session *s, const struct session_job *job, struct err *err)
{
    assert(s->job == job && s->state == SESSION_EXITED);
    next_command(s);
    int rc = settle(s, err);
    if (rc == 0 && s->state != SESSION_SETTLED) {
        rc = err_set(err, ERR_PROTOCOL, "guest: %s", s->refused[0] ? s->refused : "not settled");
    }
    return rc;
}

int session_cell_ask(struct session *s, const struct session_job *job, bool spare, struct err *err)
{
    begin(s, job);
    s->celling = true;
    s->stop = STOP_NONE;
    s->trouble[0] = 0;
    int rc = job->resume ? 0 : guest_queue_identity(&s->out, err);
    rc = rc < 0 ? rc : guest_queue_cell(&s->out, spare, err);
    return rc < 0 ? rc : send_pending(s, err);
}

int session_cell(struct session *s, const struct session_job *job, bool spare, struct err *err)
{
    int rc = s->celling ? 0 : session_cell_ask(s, job, spare, err);
    s->job = job;
    s->wait_us = mono_us();
    absence_begin(&s->absence);
    if (rc < 0 || (rc = drive(s, err)) < 0) {
        return rc;
    }
    return s->state == SESSION_SETTLED ? 0 : err_set(err, ERR_PROTOCOL, "guest: %s", s->refused);
}

int session_run(struct session *s, const struct session_job *job, struct job_result *r,
                struct run_result *ret_before, struct run_facts *ret_setup,
                struct run_facts *ret_run, struct err *err)
{
    assert(job->vcpus >= 1 && (job->settle || job->spec->command.argc > 0));
    const struct job_spec *spec = job->spec;
    begin(s, job);
    *ret_setup = *ret_run = (struct run_facts){ .stop = STOP_NONE };
    *ret_before = (struct run_result){ .present = false };
    int rc = job->resume ? 0 : guest_queue_identity(&s->out, err);
    bool ok = true;
    if (rc == 0) {
        rc = run_steps(s, 0, job->n_first, r, ret_before, ret_setup, &ok, err);
    }
    if (rc == 0 && ok && (rc = queue_files(s, job->more_files, job->n_more_files, err)) == 0 &&
        (rc = queue_files(s, spec->files, spec->n_files, err)) == 0) {
        rc = run_steps(s, job->n_first, job->n_steps, r, ret_before, ret_setup, &ok, err);
    }
    if (rc == 0 && ok && job->settle) {
        rc = settle(s, err);
    } else if (rc == 0 && ok) {
        rc = run_command(s, &spec->command, spec->stdin_data, &r->run, ret_run, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (s->user_fault) {
        r->setup.present = r->setup.present && ok; /* else what was refused was a step of it */
        memcpy(ret_run->refused, s->refused, sizeof s->refused);
    }
    r->first_byte_us =
        s->trace.first_byte_us > 0 ? s->trace.first_byte_us - job->lease_start_us : -1;
    return 0;
}
