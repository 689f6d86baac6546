#include "guest/run.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "guest/boot.h"
#include "guest/spawn.h"

#define OPEN_FILES_MIN 16u
#define OPEN_FILES_DEFAULT 1024u
#define PROCESSES_DEFAULT 64u

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

static int check(const guest_Run *msg, const struct cell *cell, const struct strs *argv,
                 const struct strs *env, struct err *err)
{
    if (argv->n == 0 || argv->v[0][0] == '\0') {
        return err_set(err, ERR_INVALID, "argv: no program");
    }
    for (size_t i = 0; i < env->n; i++) {
        const char *eq = strchr(env->v[i], '=');
        if (!eq || eq == env->v[i]) {
            return err_set(err, ERR_INVALID, "env: string %zu is not K=V", i + 1);
        }
    }
    if (msg->cell ? cell->init == 0 || msg->as_root || msg->keep || msg->last : cell->shared) {
        return err_set(err, ERR_PROTOCOL,
                       "a shared machine: one run in a container after the other");
    }
    if (msg->cwd[0] != '\0' && msg->cwd[0] != '/') {
        return err_set(err, ERR_INVALID, "cwd: not absolute");
    }
    return 0;
}

static int launch(struct run *run, const struct run_env *env, const guest_Run *msg,
                  const struct strs *argv, const struct strs *vars, struct err *err)
{
    struct slot *slot = run->slot;
    const char *cwd = msg->cwd[0] ? msg->cwd : BOOT_WORK_DIR;
    uint64_t memory = msg->limits.memory_bytes;
    if (memory == 0 || memory > env->memory_max_bytes) {
        memory = env->memory_max_bytes;
    }
    uint64_t files = msg->limits.open_files ? msg->limits.open_files : OPEN_FILES_DEFAULT;
    files = files < OPEN_FILES_MIN ? OPEN_FILES_MIN : files;
    uint64_t stack = run_stack_bytes(memory);
    uint32_t processes = msg->limits.processes ? msg->limits.processes : PROCESSES_DEFAULT;
    int rc = disk_limit(env->disk, msg->limits.disk_bytes, msg->limits.disk_files, err);
    rc = rc ? rc : cgroup_limit(&slot->cg, memory, processes, err);
    if (rc < 0) {
        return rc;
    }
    run->start_us = mono_us();
    if (slot->spare.pid != 0) {
        run->main = slot->spare.pid;
        run->warm = true;
        if (run->last) {
            exits_watch(env->exits, run->main);
        }
        return warm_run(&slot->spare, argv, vars, cwd, files, stack, err);
    }
    struct spawn s = { .argv = argv,
                       .env = vars,
                       .cwd = cwd,
                       .cgroup_dir_fd = slot->cg.dir_fd,
                       .pipes = { slot->in[0], slot->out[1], slot->err[1] },
                       .as_root = msg->as_root,
                       .cell = msg->cell ? env->cell : NULL,
                       .open_files = files,
                       .stack_bytes = stack };
    struct spawn_failure failure;
    rc = spawn_program(&s, &run->main, &failure, err);
    if (rc == 0 && run->last) {
        exits_watch(env->exits, run->main);
    }
    if (rc == 0 && failure.exit_code != 0) {
        static_assert(sizeof run->exec_error == sizeof failure.text, "one size");
        memcpy(run->exec_error, failure.text, sizeof run->exec_error);
    }
    close_fd(&slot->in[0]);
    close_fd(&slot->out[1]);
    close_fd(&slot->err[1]);
    return rc;
}

static void pull(struct run *run, struct channel *ch)
{
    if (run->slot->in[1] < 0 || run->stdin_len > 0 || run->stdin_got == run->stdin_total ||
        run->stdin_got < run->stdin_asked) {
        return;
    }
    guest_Pull msg = { .run = run->number, .bytes = RUN_STDIN_BYTES };
    run->stdin_asked += RUN_STDIN_BYTES;
    channel_put(ch, FRAME_PULL, guest_Pull_fields, &msg);
}

int run_start(struct run *run, const struct run_env *env, guest_Run *msg, struct channel *ch,
              struct err *err)
{
    assert(!run->active && run->leaving == 0);
    static struct strs argv, vars; /* large; one run at a time */
    int rc = strs_split(&argv, (char *)msg->argv.bytes, msg->argv.size, STRS_ARGV_MAX, "argv", err);
    rc = rc ? rc
            : strs_split(&vars, (char *)msg->env.bytes, msg->env.size, STRS_ENV_MAX, "env", err);
    rc = rc ? rc : check(msg, env->cell, &argv, &vars, err);
    if (rc < 0) {
        return rc;
    }
    strs_env_defaults(&vars, env->env_defaults, env->env_defaults_n);
    memset(run, 0, offsetof(struct run, stdin_data)); /* all but what is large */
    bool warm = msg->warm && !msg->as_root && strs_fits_warm(&argv, &vars);
    if (warm) {
        /* a fork of the warm interpreter, where an earlier run took the spare, is still far cheaper
         * than a start; when it cannot be had, exec it is */
        struct err none;
        (void)(slots_prepare(env->slots, true, &none) < 0);
    }
    struct slot *slot = slots_take(env->slots, warm);
    if (!slot && (rc = slots_prepare(env->slots, false, err)) == 0) {
        slot = slots_take(env->slots, false); /* a further run in a cell: none was made ahead */
    }
    if (!slot) {
        return rc < 0 ? rc : err_set(err, ERR_INTERNAL, "no cgroup is ready");
    }
    run->number = msg->run;
    run->slot = slot;
    run->trusted = msg->trusted;
    run->keep = msg->keep;
    run->last = msg->last;
    run->output_max = msg->limits.output_bytes + RUN_OUTPUT_SLACK;
    run->stdin_total = msg->stdin_bytes;
    rc = launch(run, env, msg, &argv, &vars, err);
    if (rc < 0) {
        cgroup_kill(&slot->cg);
        slot_done(slot);
        return rc;
    }
    run->active = true;
    guest_Started started = { .run = run->number, .warm = run->warm };
    channel_put(ch, FRAME_STARTED, guest_Started_fields, &started);
    if (run->stdin_total == 0) {
        close_fd(&slot->in[1]);
    } else {
        pull(run, ch);
    }
    return 0;
}

/* The program takes no more: whatever the host still sends is dropped. */
static void end_stdin(struct run *run)
{
    close_fd(&run->slot->in[1]);
    run->stdin_len = run->stdin_at = 0;
}

static void feed_stdin(struct run *run, struct channel *ch)
{
    int fd = run->slot->in[1];
    if (fd < 0) {
        return;
    }
    if (run->stdin_len > 0) {
        ssize_t n = write(fd, run->stdin_data + run->stdin_at, run->stdin_len);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            end_stdin(run);
            return;
        }
        if (n > 0) {
            run->stdin_at += (size_t)n;
            run->stdin_len -= (size_t)n;
        }
    }
    if (run->stdin_len == 0) {
        run->stdin_at = 0;
        if (run->stdin_got >= run->stdin_total) {
            end_stdin(run);
        } else {
            pull(run, ch);
        }
    }
}

int run_stdin(struct run *run, const uint8_t *data, size_t len, struct channel *ch, struct err *err)
{
    if (run->slot->in[1] < 0) {
        return 0;
    }
    if (len > sizeof run->stdin_data - run->stdin_len || len > run->stdin_total - run->stdin_got) {
        return err_set(err, ERR_PROTOCOL, "stdin: more than was asked for");
    }
    memmove(run->stdin_data, run->stdin_data + run->stdin_at, run->stdin_len);
    run->stdin_at = 0;
    memcpy(run->stdin_data + run->stdin_len, data, len);
    run->stdin_len += len;
    run->stdin_got += len;
    feed_stdin(run, ch);
    return 0;
}

void run_kill(struct run *run)
{
    run->killed = true;
    cgroup_kill(&run->slot->cg);
}

/* A run that was ended by a limit leaves nothing behind. */
static bool keeps(const struct run *run)
{
    return run->keep && !run->killed;
}

void run_leaving(struct run *run, int status)
{
    if (!run->active || run->main_ended || run->trusted || run->keep ||
        !cgroup_alone(&run->slot->cg, run->main)) {
        return;
    }
    run->main_ended = run->cgroup_empty = true;
    run->leaving = run->main;
    run->status = status;
    run->end_us = mono_us();
}

void run_ended(struct run *run, pid_t pid, int status)
{
    if (pid == run->leaving) {
        run->leaving = 0;
    }
    if (!run->active || run->main_ended || pid != run->main) {
        return;
    }
    run->main_ended = true;
    run->status = status;
    run->end_us = mono_us();
    run->leftovers = cgroup_processes(&run->slot->cg);
    run->cgroup_empty = run->leftovers == 0;
    if (!run->cgroup_empty && !keeps(run)) {
        cgroup_kill(&run->slot->cg);
    }
}

void run_poll(const struct run *run, const struct channel *ch, struct pollfd *p)
{
    for (int i = 0; i < RUN_POLLS; i++) {
        p[i] = (struct pollfd){ .fd = -1 };
    }
    if (!run->active) {
        return;
    }
    bool room = channel_room(ch) > 0;
    p[RUN_POLL_OUT] =
        (struct pollfd){ room && !run->closed[0] ? run->slot->out[0] : -1, POLLIN, 0 };
    p[RUN_POLL_ERR] =
        (struct pollfd){ room && !run->closed[1] ? run->slot->err[0] : -1, POLLIN, 0 };
    /* Also without data to write: to notice that the program has closed its end (POLLERR). */
    p[RUN_POLL_STDIN] = (struct pollfd){ run->main_ended ? -1 : run->slot->in[1],
                                         run->stdin_len > 0 ? POLLOUT : 0, 0 };
    if (run->main_ended && !run->cgroup_empty && !keeps(run)) {
        p[RUN_POLL_CGROUP] = (struct pollfd){ run->slot->cg.fd[CGROUP_EVENTS], POLLPRI, 0 };
    }
}

/* Read a stream once. false: nothing there now, or ended; true: there may be more. */
static bool pump(struct run *run, int which, struct channel *ch)
{
    static uint8_t scratch[FRAME_PAYLOAD_MAX];
    int fd = which == 0 ? run->slot->out[0] : run->slot->err[0];
    bool forward = run->bytes[which] < run->output_max && !run->mute;
    size_t room = forward ? channel_room(ch) : sizeof scratch;
    if (run->closed[which] || room == 0) {
        return false;
    }
    if (forward && room > run->output_max - run->bytes[which]) {
        room = (size_t)(run->output_max - run->bytes[which]);
    }
    ssize_t n = read(fd, forward ? channel_payload_space(ch) : scratch, room);
    if (n > 0) {
        run->bytes[which] += (uint64_t)n;
        if (forward) {
            channel_put_payload(ch, FRAME_OUTPUT, which == 0 ? 1 : 2, (size_t)n);
        }
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        run->closed[which] = true;
    }
    return false;
}

/* Everything that wrote is dead: what is in the pipes is all there will be. true when both are
 * empty. */
static bool drain(struct run *run, struct channel *ch)
{
    for (int i = 0; i < 2; i++) {
        while (pump(run, i, ch)) {
        }
        bool blocked = !run->closed[i] && run->bytes[i] < run->output_max && !run->mute &&
                       channel_room(ch) == 0;
        if (blocked) {
            return false;
        }
    }
    return true;
}

bool run_work(struct run *run, const struct pollfd *p, struct channel *ch)
{
    if (p[RUN_POLL_OUT].revents) {
        (void)pump(run, 0, ch);
    }
    if (p[RUN_POLL_ERR].revents) {
        (void)pump(run, 1, ch);
    }
    if (p[RUN_POLL_STDIN].revents & (POLLERR | POLLNVAL)) {
        end_stdin(run);
    } else if (p[RUN_POLL_STDIN].revents) {
        feed_stdin(run, ch);
    }
    if (run->main_ended && !run->cgroup_empty) {
        run->cgroup_empty = !cgroup_populated(&run->slot->cg);
    }
    return run->main_ended && (run->cgroup_empty || keeps(run)) && drain(run, ch);
}

void run_exit(struct run *run, const struct run_env *env, struct channel *ch)
{
    struct cgroup_use use;
    guest_Exit msg = { .run = run->number,
                       .killed = run->killed,
                       .wall_us = (uint64_t)(run->end_us - run->start_us),
                       .leftover_processes = (uint32_t)run->leftovers,
                       .stdout_bytes = run->bytes[0],
                       .stderr_bytes = run->bytes[1] };
    cgroup_used(&run->slot->cg, &use);
    msg.cpu_us = use.cpu_us - run->slot->cpu_base_us;
    msg.memory_peak_bytes = use.memory_peak_bytes;
    msg.oom_kills = use.oom_kills;
    msg.process_refusals = use.process_refusals;
    disk_used(env->disk, &msg.disk_used_bytes, &msg.disk_files_used, &msg.disk_full);
    uint64_t refused[REFUSALS];
    refusals_take(env->refusals, refused);
    msg.disk_refusals = refused[REFUSAL_DISK];
    msg.disk_file_refusals = refused[REFUSAL_DISK_FILES];
    msg.open_file_refusals = refused[REFUSAL_OPEN_FILES];
    if (WIFSIGNALED(run->status)) {
        msg.exit_code = -1;
        msg.signal = (uint32_t)WTERMSIG(run->status);
    } else {
        msg.exit_code = WEXITSTATUS(run->status);
    }
    static_assert(sizeof msg.exec_error == sizeof run->exec_error, "one size");
    memcpy(msg.exec_error, run->exec_error, sizeof msg.exec_error);
    if (keeps(run) && !run->cgroup_empty) {
        slot_keep(run->slot);
    } else {
        slot_done(run->slot);
    }
    if (!run->mute) {
        channel_put(ch, FRAME_EXIT, guest_Exit_fields, &msg);
    }
    run->active = false;
}
