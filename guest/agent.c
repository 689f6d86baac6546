#include "guest/agent.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define ENV_FILE "/usr/lib/brood/env"
#define MEMORY_RESERVE_BYTES ((uint64_t)40 << 20) /* kernel, agent, warm interpreter */

enum {
    POLL_CHANNEL,
    POLL_SIGNAL,
    POLL_EXITS,
    POLL_RUN,
    POLL_KEPT = POLL_RUN + RUN_POLLS,
    POLLS = POLL_KEPT + SLOTS_KEPT_POLLS
};

static void put_error(struct agent *a, uint32_t run, const char *what, const struct err *err)
{
    guest_GuestError msg = { .run = run, .user_fault = err_fault(err->code) == FAULT_USER };
    (void)snprintf(msg.what, sizeof msg.what, "%s", what);
    (void)snprintf(msg.text, sizeof msg.text, "%s", err->text);
    channel_put(&a->ch, FRAME_ERROR, guest_GuestError_fields, &msg);
}

static void put_hello(struct agent *a)
{
    guest_Hello msg = { .protocol = GUEST_PROTOCOL_VERSION,
                        .agent = BROOD_VERSION,
                        .warm_python = a->warm.pid != 0,
                        .runs_left = slots_left(&a->slots) };
    struct utsname uts;
    if (uname(&uts) == 0) {
        (void)snprintf(msg.kernel, sizeof msg.kernel, "%s", uts.release);
    }
    channel_put(&a->ch, FRAME_HELLO, guest_Hello_fields, &msg);
}

static void prepare(struct agent *a, bool spare)
{
    struct err err;
    for (int tries = 0; tries < 2 && slots_prepare(&a->slots, spare, &err) < 0; tries++) {
        /* Once more without the warm interpreter, if that was it. The next RUN tells what is
         * missing. */
        log_warn("no slot prepared", "error", err.text);
    }
}

/* ---- actions of session.def: 0, or negative with err filled ---- */

static int act_identity(struct agent *a, const struct frame *f, struct err *err)
{
    guest_Identity msg;
    int rc = frame_decode(f, guest_Identity_fields, &msg, err);
    rc = rc ? rc : identity_set(&a->identity, &msg, err);
    if (rc < 0) {
        return rc;
    }
    guest_Ready ready = { .reseeded = true, .realtime_ns = wall_ns() };
    channel_put(&a->ch, FRAME_READY, guest_Ready_fields, &ready);
    return 0;
}

/* Where the job's files are. */
static int work_fd(const struct agent *a)
{
    return a->cell.init != 0 ? a->cell.work_fd : a->boot.work_fd;
}

static int act_file_open(struct agent *a, const struct frame *f, struct err *err)
{
    guest_File msg;
    int rc = frame_decode(f, guest_File_fields, &msg, err);
    if (rc == 0) {
        rc = job_file_open(&a->file, work_fd(a), &msg, err);
        /* Its data frames follow in any case. */
        a->state = a->file.left > 0 ? SESSION_FILING : SESSION_READY;
    }
    return rc;
}

static int act_file_data(struct agent *a, const struct frame *f, struct err *err)
{
    int rc = job_file_data(&a->file, f->payload, f->len, err);
    if (a->file.left == 0) {
        a->state = SESSION_READY;
    }
    return rc;
}

static void reaped(void *ctx, pid_t pid, int status)
{
    struct agent *a = ctx;
    run_ended(&a->run, pid, status);
    slots_ended(&a->slots, pid);
    warm_ended(&a->warm, pid);
    cell_ended(&a->cell, pid);
}

static int act_run(struct agent *a, const struct frame *f, bool trusted, struct err *err)
{
    int rc = frame_decode(f, guest_Run_fields, &a->run_msg, err);
    if (rc == 0 && trusted && !a->run_msg.trusted) {
        rc = err_set(err, ERR_PROTOCOL, "run: no identity yet");
    }
    int status; /* "last" was not: its process is waited out after all */
    if (a->run.leaving != 0 && waitpid(a->run.leaving, &status, 0) == a->run.leaving) {
        reaped(a, a->run.leaving, status);
    }
    rc = rc ? rc : run_start(&a->run, &a->env, &a->run_msg, &a->ch, err);
    if (rc == 0) {
        a->before_run = a->state;
    }
    return rc;
}

static int act_cell(struct agent *a, const struct frame *f, struct err *err)
{
    guest_Cell msg;
    int rc = frame_decode(f, guest_Cell_fields, &msg, err);
    if (rc < 0) {
        return rc;
    }
    slots_drop(&a->slots);
    cell_end(&a->cell, a->warm.pid, reaped, a);
    rc = cell_make(&a->cell, err);
    rc = rc ? rc : disk_use_layer(&a->disk, a->cell.layer_fd, err);
    if (rc < 0) {
        return rc;
    }
    a->slots.cell = &a->cell;
    prepare(a, msg.spare);
    guest_CellReady ready = { .spare = slots_have_spare(&a->slots), .cells = a->cell.made };
    static_assert(sizeof ready.trouble == sizeof a->cell.trouble, "one size");
    memcpy(ready.trouble, a->cell.trouble, sizeof ready.trouble);
    channel_put(&a->ch, FRAME_CELL_READY, guest_CellReady_fields, &ready);
    return 0;
}

/* What each fork would do first is done once, before there are forks. */
static void act_settle(struct agent *a)
{
    prepare(a, true);
    guest_Settled msg = { .spare = slots_have_spare(&a->slots) };
    channel_put(&a->ch, FRAME_SETTLED, guest_Settled_fields, &msg);
}

static int act(struct agent *a, enum session_action action, const struct frame *f, struct err *err)
{
    switch (action) {
    case ACTION_ignore:
        return 0;
    case ACTION_hello:
        put_hello(a);
        return 0;
    case ACTION_identity:
        return act_identity(a, f, err);
    case ACTION_file_open:
        return act_file_open(a, f, err);
    case ACTION_file_data:
        return act_file_data(a, f, err);
    case ACTION_run:
    case ACTION_run_trusted:
        return act_run(a, f, action == ACTION_run_trusted, err);
    case ACTION_stdin_data:
        return run_stdin(&a->run, f->payload, f->len, &a->ch, err);
    case ACTION_kill:
        run_kill(&a->run);
        return 0;
    case ACTION_settle:
        act_settle(a);
        return 0;
    case ACTION_cell:
        return act_cell(a, f, err);
    case ACTION_collect:
        return collect_start(&a->collect, work_fd(a), f, err);
    case ACTION_refuse:
    case ACTIONS:
        break;
    }
    return err_set(err, ERR_PROTOCOL, "frame of type %d is out of order in state %s", (int)f->type,
                   session_state_name(a->state));
}

static const char *action_field(enum session_action action)
{
    switch (action) {
    case ACTION_identity:
        return "identity";
    case ACTION_file_open:
    case ACTION_file_data:
        return "file";
    case ACTION_run:
    case ACTION_run_trusted:
        return "run";
    case ACTION_stdin_data:
        return "stdin";
    case ACTION_settle:
        return "settle";
    case ACTION_cell:
        return "cell";
    case ACTION_collect:
        return "collect";
    default:
        return "frame";
    }
}

static void take_frame(struct agent *a, const struct frame *f)
{
    struct session_step step = session_step(a->state, f->type);
    struct err err;
    bool sets_state = step.action == ACTION_file_open || step.action == ACTION_file_data;
    int rc = act(a, step.action, f, &err);
    if (rc < 0) {
        bool of_run = step.action == ACTION_run || step.action == ACTION_run_trusted;
        uint32_t run = of_run ? a->run_msg.run : a->run.active ? a->run.number : 0;
        put_error(a, run, action_field(step.action), &err);
        if (of_run) {
            prepare(a, false); /* the slot that it took is used */
        }
    } else if (!sets_state) {
        a->state = step.to;
    }
}

/* The host is gone: what it had begun is undone as far as it goes, and whoever comes next finds a
 * frame boundary. */
static void host_gone(struct agent *a)
{
    a->ignoring = false;
    if (a->state == SESSION_FILING) {
        job_file_drop(&a->file);
        a->state = SESSION_READY;
    }
    if (a->state == SESSION_COLLECTING) {
        collect_drop(&a->collect);
        a->state = SESSION_READY;
    }
    if (a->run.active) {
        a->run.mute = true;
        run_kill(&a->run);
        a->state = SESSION_ENDING;
    }
}

static void take_input(struct agent *a)
{
    int n = channel_read(&a->ch);
    if (n < 0) {
        host_gone(a);
        return;
    }
    struct frame f;
    struct err err;
    int rc = 0;
    while (!a->ignoring && a->ch.connected && (rc = frame_parser_next(&a->ch.in, &f, &err)) > 0) {
        take_frame(a, &f);
    }
    if (rc < 0) {
        put_error(a, 0, "frame", &err);
        a->ignoring = true;
    }
    if (a->ignoring) {
        a->ch.in.start = a->ch.in.end = 0;
    }
}

static void reap(struct agent *a)
{
    struct signalfd_siginfo info;
    (void)!read(a->signal_fd, &info, sizeof info);
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        reaped(a, pid, status);
    }
    if (a->run.active && a->run.main_ended) {
        a->state = SESSION_ENDING;
    }
}

/* After the pipes' wake-ups, before the kernel has taken the process down. */
static void main_leaves(struct agent *a)
{
    int status;
    if (exits_take(&a->exits, a->run.main, &status)) {
        run_leaving(&a->run, status);
    }
    if (a->run.active && a->run.main_ended) {
        a->state = SESSION_ENDING;
    }
}

static void end_run(struct agent *a)
{
    bool trusted = a->run.trusted;
    if (trusted) { /* off anybody's path, and the machine may be paused right behind EXIT */
        files_wipe();
        prepare(a, true);
        if (a->cell.init == 0) {
            disk_settle(&a->disk);
        }
    } else {
        disk_run_ended(&a->disk);
    }
    run_exit(&a->run, &a->env, &a->ch);
    a->state = a->before_run;
    if (!trusted) {
        if (channel_flush(&a->ch) < 0) {
            host_gone(a);
        }
        /* most machines end here: a second run's spare is made when it is asked for */
        if (!a->cell.shared && a->run.leaving == 0) {
            prepare(a, false);
        }
    }
}

int agent_loop(struct agent *a, struct err *err)
{
    for (;;) {
        struct pollfd p[POLLS] = {
            [POLL_SIGNAL] = { a->signal_fd, POLLIN, 0 }, [POLL_EXITS] = { a->exits.fd, POLLIN, 0 }
        };
        p[POLL_CHANNEL].fd = channel_poll_fd(&a->ch, &p[POLL_CHANNEL].events);
        run_poll(&a->run, &a->ch, p + POLL_RUN);
        slots_poll_kept(&a->slots, p + POLL_KEPT);
        bool more = a->collect.active && channel_idle(&a->ch);
        if (poll(p, POLLS, more ? 0 : -1) < 0) {
            if (errno == EINTR) {
                continue;
            }
            return err_sys(err, "poll");
        }
        if (p[POLL_CHANNEL].revents) {
            int rc = channel_ready(&a->ch, p[POLL_CHANNEL].revents);
            if (rc < 0) {
                host_gone(a);
            } else if (rc > 0 && p[POLL_CHANNEL].revents & POLLIN) {
                take_input(a);
            }
        }
        if (p[POLL_SIGNAL].revents) {
            reap(a);
        }
        if (p[POLL_EXITS].revents) {
            main_leaves(a);
        }
        slots_drain_kept(&a->slots, p + POLL_KEPT);
        if (a->run.active && run_work(&a->run, p + POLL_RUN, &a->ch)) {
            end_run(a);
        }
        if (a->collect.active) {
            collect_work(&a->collect, &a->ch);
            a->state = a->collect.active ? SESSION_COLLECTING : SESSION_READY;
        }
        if (channel_flush(&a->ch) < 0) {
            host_gone(a);
        }
    }
}

static int read_env_defaults(struct agent *a, struct err *err)
{
    static char *const fixed[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/work",
        "LANG=C.UTF-8", "TZ=UTC", "PYTHONHASHSEED=0"
    };
    size_t n = sizeof fixed / sizeof fixed[0];
    memcpy(a->env_defaults, fixed, sizeof fixed);
    cleanup_close int fd = open(ENV_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, a->env_text, sizeof a->env_text - 1);
    if (len < 0) {
        return err_sys(err, ENV_FILE);
    }
    char *save = NULL;
    for (char *line = strtok_r(a->env_text, "\n", &save); line && n < STRS_DEFAULTS_MAX;
         line = strtok_r(NULL, "\n", &save)) {
        size_t name = strcspn(line, "=");
        for (size_t i = 0; i < n; i++) { /* the template's word goes before the built-in one */
            if (line[name] == '=' && strncmp(a->env_defaults[i], line, name + 1) == 0) {
                a->env_defaults[i] = line;
                line = NULL;
                break;
            }
        }
        if (line && line[name] == '=' && name > 0) {
            a->env_defaults[n++] = line;
        }
    }
    a->env.env_defaults = a->env_defaults;
    a->env.env_defaults_n = n;
    return 0;
}

int agent_init(struct agent *a, const struct boot *boot, struct err *err)
{
    a->boot = *boot;
    a->state = a->before_run = SESSION_FRESH;
    a->file.fd = -1;
    collect_init(&a->collect);
    sigset_t mask;
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_SETMASK, &mask, NULL) < 0) {
        return err_sys(err, "sigprocmask");
    }
    a->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signal_fd < 0) {
        return err_sys(err, "signalfd");
    }
    struct sysinfo si;
    if (sysinfo(&si) < 0) {
        return err_sys(err, "sysinfo");
    }
    uint64_t total = (uint64_t)si.totalram * si.mem_unit;
    a->env.memory_max_bytes =
        total > 2 * MEMORY_RESERVE_BYTES ? total - MEMORY_RESERVE_BYTES : total / 2;
    a->env.slots = &a->slots;
    a->env.disk = &a->disk;
    a->env.cell = &a->cell;
    cell_init_none(&a->cell, boot->work_fd);
    a->env.refusals = &a->boot.refusals;
    a->env.exits = &a->exits;
    if (exits_init(&a->exits, err) < 0) {
        log_warn("ends are told by wait alone", "error", err->text);
    }
    int rc = channel_init(&a->ch, boot->port_fd, err);
    rc = rc ? rc : identity_init(&a->identity, err);
    rc = rc ? rc : disk_init(&a->disk, err);
    rc = rc ? rc : read_env_defaults(a, err);
    rc = rc ? rc : warm_start(&a->warm, a->env.env_defaults, a->env.env_defaults_n, err);
    rc = rc ? rc : slots_init(&a->slots, boot->cgroup_fd, &a->warm, err);
    rc = rc ? rc : slots_prepare(&a->slots, true, err);
    if (rc == 0) {
        disk_settle(&a->disk); /* the warm interpreter writes what of its modules is not compiled */
        put_hello(a);
    }
    return rc;
}
