/* The QEMU engine: one child process a machine, driven by QMP over an inherited socket pair.
 *
 * The commands that a start needs are all written at once, before QEMU has even read its first
 * byte: loading a clone's state (from an inherited fd) costs no round trip. The capability
 * x-ignore-shared leaves guest RAM out of the state, events makes the end of a migration an event
 * instead of a poll. No machine needs a file or a socket path of its own: whatever it reads comes
 * as a descriptor.
 *
 * With a jail (jail/client.h) a QEMU is no child of this process and has another user: it is
 * started and killed by the jailer, its end is seen by its pidfd alone, and the numbers of
 * processes and threads that QEMU itself tells are those of its own pid namespace. */
#include "vmpool/engine_qemu.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/jail/client.h"
#include "vmpool/qemu_seed.h"
#include "vmpool/qmp.h"
#include "vmpool/spawn.h"
#include "vmpool/seed_wire.h"

#define STDERR_TAIL_BYTES 2048u
#define STDERR_BYTES_A_TURN 65536u
#define SPARE_FDS 3 /* for the report's pidfd; for schedstat and what is looked up to open it */
#define FREE_MS_MAX 2000 /* a jailer that has gone kills nobody, and has killed everybody */
#define STRING_(x) #x
#define STRING(x) STRING_(x)

static struct jail *jail;

struct machine {
    struct event_base *base;
    machine_listener *listener;
    void *user;
    pid_t pid;     /* 0 until known */
    long long tid; /* of the vCPU, as QEMU says */
    int pidfd, channel, schedstat, state, stderr_fd, report;
    int spare[SPARE_FDS]; /* so that a machine on its way is not lost for want of a descriptor */
    struct event *exited, *stderr_ev, *report_ev;
    struct qmp *qmp;
    struct seed *seed;      /* it can be copied */
    struct machine *origin; /* the seed whose answer is awaited */
    uint32_t memory_mib, vcpus;
    uint32_t slot; /* in the jail, when has_slot */
    bool has_slot;
    bool writable;         /* it can be written out */
    bool unbound, binding; /* it still has a seed's rights, and is to have none; was asked to */
    bool keeps_user;       /* tenants' code has run in it: its copies are its user's, too */
    bool clone, failed, loaded, have_thread, migrated, gone;
    bool saving, dumping; /* the state, and the RAM that is not in the file, are being written */
    char tail[STDERR_TAIL_BYTES];
    size_t tail_len;
};

static void tell(struct machine *m, enum machine_event event, const char *text)
{
    m->listener(m->user, event, text);
}

static void fail(struct machine *m, const char *why)
{
    if (m->failed || m->gone) {
        return;
    }
    m->failed = true;
    char text[ENGINE_TEXT_MAX + STDERR_TAIL_BYTES + 4];
    (void)snprintf(text, sizeof text, "%s%s%.*s", why, m->tail_len ? ": " : "", (int)m->tail_len,
                   m->tail);
    tell(m, MACHINE_FAILED, text);
}

/* Keep the last bytes; control characters would spoil the log. At most what a pipe holds: who is
 * in a tenant's hands may write without end. false: there will be no more. */
static bool read_stderr(struct machine *m)
{
    char chunk[1024];
    ssize_t n = 1;
    for (size_t all = 0; all < STDERR_BYTES_A_TURN && n > 0; all += sizeof chunk) {
        n = read(m->stderr_fd, chunk, sizeof chunk);
        for (ssize_t i = 0; i < n; i++) {
            if (m->tail_len == sizeof m->tail) {
                memmove(m->tail, m->tail + sizeof m->tail / 2, sizeof m->tail / 2);
                m->tail_len = sizeof m->tail / 2;
            }
            m->tail[m->tail_len++] = chunk[i] >= ' ' && chunk[i] < 127 ? chunk[i] : ' ';
        }
    }
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_stderr(evutil_socket_t fd, short what, void *arg)
{
    struct machine *m = arg;
    (void)fd;
    (void)what;
    if (!read_stderr(m)) {
        (void)event_del(m->stderr_ev);
    }
}

/* A process of the jail is not ours to reap: that its pidfd is readable says it. */
static bool has_exited(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    return jail ? poll(&p, 1, 0) == 1 : spawn_reap(pidfd) != 0;
}

static void kill_process(int pidfd)
{
    if (jail) {
        jail_kill(jail, pidfd);
    } else {
        spawn_kill(pidfd);
    }
}

static void give_slot_back(struct machine *m)
{
    if (m->has_slot) {
        m->has_slot = false;
        jail_release(jail, m->slot);
    }
}

static void on_exited(evutil_socket_t fd, short what, void *arg)
{
    struct machine *m = arg;
    (void)what;
    if (!has_exited(fd)) {
        return;
    }
    give_slot_back(m);
    (void)event_del(m->exited);
    (void)read_stderr(m);
    (void)event_del(m->stderr_ev);
    qmp_free(TAKE_PTR(m->qmp));
    m->gone = true;
    char text[STDERR_TAIL_BYTES + 1];
    (void)snprintf(text, sizeof text, "%.*s", (int)m->tail_len, m->tail);
    tell(m, MACHINE_EXITED, text); /* may free m */
}

static void on_closed(void *user, const char *why)
{
    struct machine *m = user;
    if (why != qmp_ended) { /* else its exit follows and brings the reason */
        (void)read_stderr(m);
        fail(m, why);
    }
}

static void on_bound(void *user, const char *why);

static void bind_machine(struct machine *m)
{
    struct err err;
    if (!m->binding && seed_bind(m->seed, on_bound, m, &err) < 0) {
        fail(m, err.text);
    }
    m->binding = true;
}

/* Loaded: the state is in, the thread's file is open, and the process is bound. */
static void check_loaded(struct machine *m)
{
    if (m->clone && m->migrated && m->have_thread && !m->loaded && !m->failed) {
        if (m->unbound) {
            bind_machine(m);
            return;
        }
        m->loaded = true;
        if (m->state >= 0) {
            (void)close(TAKE_FD(m->state));
        }
        tell(m, MACHINE_LOADED, "");
    }
}

static void on_bound(void *user, const char *why)
{
    struct machine *m = user;
    if (why) {
        fail(m, why);
        return;
    }
    m->unbound = false;
    m->keeps_user = true;
    check_loaded(m);
}

static void check_saved(struct machine *m)
{
    if (!m->saving && !m->dumping && !m->failed) {
        tell(m, MACHINE_SAVED, "");
    }
}

static void on_dumped(void *user, const char *why)
{
    struct machine *m = user;
    m->dumping = false;
    if (why) {
        fail(m, why);
    } else {
        check_saved(m);
    }
}

static void on_migration(struct machine *m, const char *status)
{
    if (!status) {
        return;
    }
    if (strcmp(status, "completed") == 0) {
        if (m->saving) {
            m->saving = false;
            check_saved(m);
            return;
        }
        m->migrated = true;
        check_loaded(m);
    } else if (strcmp(status, "failed") == 0) {
        (void)read_stderr(m);
        fail(m, m->saving ? "QEMU could not write the state" : "QEMU could not load the state");
    }
}

static void on_event(void *user, const struct qmp_message *e)
{
    struct machine *m = user;
    if (strcmp(e->name, "MIGRATION") == 0) {
        on_migration(m, json_string_value(json_object_get(e->data, "status")));
    } else if (strcmp(e->name, "GUEST_PANICKED") == 0) {
        fail(m, "the guest's kernel panicked");
    }
}

static void free_spares(struct machine *m, int from)
{
    for (int i = from; i < SPARE_FDS; i++) {
        if (m->spare[i] >= 0) {
            (void)close(TAKE_FD(m->spare[i]));
        }
    }
}

static void open_schedstat(struct machine *m)
{
    char path[96];
    if (m->pid <= 0 || m->tid <= 0 || m->have_thread || m->failed) {
        return;
    }
    free_spares(m, 1);
    long long tid = jail ? jail_tid(m->pid, (pid_t)m->tid) : m->tid;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%lld/schedstat", (int)m->pid, tid);
    m->schedstat = open(path, O_RDONLY | O_CLOEXEC);
    if (m->schedstat < 0) {
        fail(m, "the vCPU thread's schedstat cannot be opened");
        return;
    }
    m->have_thread = true;
    if (m->clone) {
        check_loaded(m);
    } else {
        tell(m, MACHINE_RUNNING, "");
    }
}

static void on_cpus(void *user, const struct qmp_message *a)
{
    struct machine *m = user;
    m->tid = json_integer_value(json_object_get(json_array_get(a->data, 0), "thread-id"));
    if (a->kind == QMP_ERROR || m->tid <= 0) {
        fail(m, "QEMU does not name its vCPU thread");
        return;
    }
    open_schedstat(m);
}

static void on_stopped(void *user, const struct qmp_message *a)
{
    struct machine *m = user;
    if (a->kind == QMP_ERROR) {
        fail(m, a->name);
        return;
    }
    tell(m, MACHINE_PAUSED, "");
}

static void watch_process(struct machine *m)
{
    m->exited = event_new(m->base, m->pidfd, EV_READ | EV_PERSIST, on_exited, m);
    if (!m->exited || event_add(m->exited, NULL) < 0) {
        abort();
    }
}

/* No process ever: fail, and end as if it had exited. May free m. */
static void never_was(struct machine *m, const char *why)
{
    fail(m, why);
    m->gone = true;
    give_slot_back(m);
    tell(m, MACHINE_EXITED, why);
}

static void have_process(struct machine *m, pid_t pid, int pidfd)
{
    m->pid = pid;
    m->pidfd = pidfd;
    if (m->failed) {
        kill_process(pidfd);
    }
    watch_process(m);
    open_schedstat(m);
}

static void on_copied(void *user, pid_t pid, int pidfd, pid_t vcpu_tid, const char *why)
{
    struct machine *m = user;
    m->origin = NULL;
    if (pidfd < 0) {
        never_was(m, why);
        return;
    }
    m->tid = vcpu_tid;
    /* what a copy of a tenant's machine says about itself is not believed: the kernel says it */
    have_process(m, jail ? jail_pid(pidfd) : pid, pidfd);
}

static void on_report(evutil_socket_t fd, short what, void *arg)
{
    struct machine *m = arg;
    struct jail_report r;
    struct err err;
    int pidfd = -1;
    (void)what;
    if (m->spare[0] >= 0) {
        (void)close(TAKE_FD(m->spare[0]));
    }
    int rc = jail_take_report(fd, &r, &pidfd, &err);
    if (rc == 0) {
        return;
    }
    (void)event_del(m->report_ev);
    if (r.slot < JAIL_SLOTS_MAX) {
        m->slot = r.slot;
        m->has_slot = true;
    }
    if (rc < 0) {
        never_was(m, err.text);
        return;
    }
    have_process(m, jail_pid(pidfd), pidfd);
}

static void machine_kill(struct machine *m)
{
    m->failed = true; /* what QMP says from now on is no news */
    if (!m->gone && m->pidfd >= 0) {
        kill_process(m->pidfd);
    } /* else its seed or its jail still has to tell its number: have_process kills it */
}

static void machine_free(struct machine *m)
{
    if (!m) {
        return;
    }
    if (m->origin) {
        seed_forget(m->origin->seed, m);
    }
    m->failed = true; /* an open dump is no news any more */
    seed_free(m->seed);
    if (m->pidfd >= 0 && !m->gone) {
        kill_process(m->pidfd);
        for (int ms = 0; !has_exited(m->pidfd) && (!jail || ms < FREE_MS_MAX); ms++) {
            (void)usleep(1000);
        }
    }
    give_slot_back(m);
    if (m->exited) {
        event_free(m->exited);
    }
    if (m->report_ev) {
        event_free(m->report_ev);
    }
    if (m->stderr_ev) {
        event_free(m->stderr_ev);
    }
    qmp_free(m->qmp);
    free_spares(m, 0);
    int *fds[] = { &m->pidfd, &m->channel, &m->schedstat, &m->state, &m->stderr_fd, &m->report };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) {
            (void)close(TAKE_FD(*fds[i]));
        }
    }
    free(m);
}
DEFINE_CLEANUP(cleanup_machine, struct machine, machine_free)

static int make_ends(struct machine *m, struct qemu_pairs *ret_ends, struct err *err)
{
    int rc = qemu_make_ends(ret_ends, &m->channel, &m->stderr_fd, err);
    for (int i = 0; rc == 0 && i < SPARE_FDS; i++) {
        m->spare[i] = fcntl(m->stderr_fd, F_DUPFD_CLOEXEC, 3);
        rc = m->spare[i] < 0 ? err_sys(err, "dup") : 0;
    }
    return rc;
}

/* The control socket of a machine that can be copied. */
static int make_seed(struct machine *m, struct qemu_pairs *ends, struct err *err)
{
    int control[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return err_sys(err, "socketpair");
    }
    m->seed = seed_new(m->base, control[0]);
    ends->its.seed = control[1];
    return 0;
}

static void watch_stderr(struct machine *m)
{
    m->stderr_ev = event_new(m->base, m->stderr_fd, EV_READ | EV_PERSIST, on_stderr, m);
    if (!m->stderr_ev || event_add(m->stderr_ev, NULL) < 0) {
        abort();
    }
}

static struct machine *machine_new(struct event_base *base, bool clone, machine_listener *listener,
                                   void *user)
{
    struct machine *m = calloc(1, sizeof *m);
    if (!m) {
        abort();
    }
    *m = (struct machine){ .base = base,
                           .listener = listener,
                           .user = user,
                           .clone = clone,
                           .pidfd = -1,
                           .channel = -1,
                           .schedstat = -1,
                           .state = -1,
                           .stderr_fd = -1,
                           .report = -1,
                           .spare = { -1, -1, -1 } };
    return m;
}

static int start_process(struct machine *m, const struct engine_host *host,
                         const struct machine_options *o, struct qemu_pairs *ends, struct err *err)
{
    char library[512] = "";
    struct machine_options mine = *o;
    int rc = 0;
    if (o->freeze != FREEZE_NONE && !seed_library_path(library, sizeof library)) {
        mine.freeze = FREEZE_NONE;
    }
    m->writable = mine.freeze == FREEZE_WRITE;
    m->unbound = jail && mine.freeze == FREEZE_COPY && !o->seed;
    if (mine.freeze == FREEZE_COPY) {
        rc = make_seed(m, ends, err);
    } else if (mine.freeze == FREEZE_WRITE) {
        rc = qemu_give_layers(o, &ends->its.seed, err);
    } else if (o->n_layers > 0) {
        rc = err_set(err, ERR_UNSUPPORTED, "brood-qemu-seed.so is not beside the program");
    }
    if (rc == 0 && !jail) {
        rc = qemu_start_child(host, &mine, &ends->its, library, &m->pid, &m->pidfd, err);
        if (rc == 0) {
            watch_process(m);
        }
        return rc;
    }
    if (rc < 0 || (rc = qemu_start_in_jail(jail, host, &mine, &ends->its, &m->report, err)) < 0) {
        return rc;
    }
    m->report_ev = event_new(m->base, m->report, EV_READ | EV_PERSIST, on_report, m);
    if (!m->report_ev || event_add(m->report_ev, NULL) < 0) {
        abort();
    }
    return 0;
}

static int machine_start(struct event_base *base, const struct engine_host *host,
                         const struct machine_options *o, machine_listener *listener, void *user,
                         struct machine **ret_machine, struct err *err)
{
    assert(o->ram_fd >= 0 && o->state_fd >= 0 && listener);
    assert(o->n_layers <= MACHINE_LAYERS_MAX);
    static_assert(MACHINE_LAYERS_MAX == SEED_LAYERS_MAX, "one kind of layer");
    CLEANUP(cleanup_machine) struct machine *m = machine_new(base, o->clone, listener, user);
    CLEANUP(qemu_pairs_done) struct qemu_pairs ends = NO_QEMU_PAIRS;
    m->memory_mib = o->memory_mib;
    m->vcpus = o->vcpus;
    m->state = fcntl(o->state_fd, F_DUPFD_CLOEXEC, 3);
    if (m->state < 0) {
        return err_sys(err, "dup");
    }
    int rc = make_ends(m, &ends, err);
    if (rc < 0 || (rc = start_process(m, host, o, &ends, err)) < 0) {
        return rc;
    }
    m->qmp = qmp_new(base, TAKE_FD(ends.qmp_ours), true, on_event, on_closed, m);
    watch_stderr(m);
    static const char capabilities[] =
        "{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true},"
        "{\"capability\":\"events\",\"state\":true}]}";
    static const char incoming[] = "{\"uri\":\"fd:" STRING(QEMU_FD_STATE_NUMBER) "\"}";
    if ((rc = qmp_send(m->qmp, "migrate-set-capabilities", capabilities, -1, NULL, err)) < 0 ||
        (o->clone && (rc = qmp_send(m->qmp, "migrate-incoming", incoming, -1, NULL, err)) < 0) ||
        (rc = qmp_send(m->qmp, "query-cpus-fast", NULL, -1, on_cpus, err)) < 0) {
        return rc;
    }
    *ret_machine = TAKE_PTR(m);
    return 0;
}

static bool machine_can_copy(const struct machine *m)
{
    return m->seed && seed_open(m->seed) && m->loaded && !m->failed && !m->gone;
}

static bool machine_can_write(const struct machine *m)
{
    return m->writable && m->loaded && !m->failed && !m->gone;
}

static int machine_copy(struct machine *origin, machine_listener *listener, void *user,
                        struct machine **ret_machine, struct err *err)
{
    assert(machine_can_copy(origin));
    CLEANUP(cleanup_machine) struct machine *m = machine_new(origin->base, true, listener, user);
    CLEANUP(qemu_pairs_done) struct qemu_pairs ends = NO_QEMU_PAIRS;
    int rc = make_ends(m, &ends, err);
    if (rc < 0 || (rc = make_seed(m, &ends, err)) < 0) {
        return rc;
    }
    m->migrated = true; /* there is nothing to load */
    m->memory_mib = origin->memory_mib;
    m->vcpus = origin->vcpus;
    m->keeps_user = true;
    struct jail_slot slot = { 0 };
    if (jail) {
        if ((rc = jail_reserve(jail, &slot, err)) < 0) {
            return rc;
        }
        m->slot = slot.slot;
        m->has_slot = true;
        jail_limit(jail, slot.slot, m->memory_mib, m->vcpus);
    }
    int fds[SEED_FDS_MAX] = { ends.its.stderr_fd, ends.its.qmp, ends.its.channel, ends.its.seed };
    static_assert(JAIL_CGROUPS_MAX == SEED_CGROUPS_MAX, "one kind of slot");
    memcpy(&fds[SEED_FDS], slot.fds, (size_t)slot.n_fds * sizeof(int));
    rc = seed_copy(origin->seed, (pid_t)origin->tid, fds, origin->keeps_user ? 0 : slot.uid,
                   slot.n_fds, on_copied, m, err);
    jail_slot_done(&slot);
    if (rc < 0) {
        return rc;
    }
    m->origin = origin;
    m->qmp = qmp_new(m->base, TAKE_FD(ends.qmp_ours), false, on_event, on_closed, m);
    watch_stderr(m);
    *ret_machine = TAKE_PTR(m);
    return 0;
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

static int machine_look(const struct machine *m, struct machine_look *ret_look, struct err *err)
{
    int fds[JAIL_LOOK_FDS] = { -1, -1, -1 };
    assert(m->pid > 0);
    int rc = jail ? jail_look(jail, m->pidfd, fds, err) : qemu_look(m->pid, fds, err);
    if (rc < 0) {
        return rc;
    }
    *ret_look = (struct machine_look){ .maps = fds[JAIL_LOOK_MAPS],
                                       .pagemap = fds[JAIL_LOOK_PAGEMAP],
                                       .mem = fds[JAIL_LOOK_MEM] };
    return 0;
}

static int machine_learn(struct machine *origin, const struct machine *copy, struct err *err)
{
    struct machine_look l;
    assert(origin->seed);
    int rc = machine_look(copy, &l, err);
    if (rc < 0) {
        return rc;
    }
    rc = seed_learn(origin->seed, l.maps, l.pagemap, err);
    close_all((const int[]){ l.maps, l.pagemap, l.mem }, 3);
    return rc;
}

static int machine_save(struct machine *m, int state_fd, int ram_fd, struct err *err)
{
    int rc;
    assert(!m->saving && !m->dumping && (state_fd >= 0 || m->state >= 0));
    assert(ram_fd < 0 || machine_can_copy(m));
    if ((rc = qmp_send(m->qmp, "stop", NULL, -1, NULL, err)) < 0 ||
        (rc = qmp_send(m->qmp, "getfd", "{\"fdname\":\"state\"}",
                       state_fd >= 0 ? state_fd : m->state, NULL, err)) < 0 ||
        (rc = qmp_send(m->qmp, "migrate", "{\"uri\":\"fd:state\"}", -1, NULL, err)) < 0) {
        return rc;
    }
    m->saving = true;
    if (ram_fd >= 0) {
        int fds[JAIL_LOOK_FDS] = { -1, -1, -1 };
        rc = jail ? jail_look(jail, m->pidfd, fds, err) : 0;
        rc = rc < 0 ? rc : seed_dump(m->seed, ram_fd, fds[JAIL_LOOK_PAGEMAP], on_dumped, m, err);
        close_all(fds, JAIL_LOOK_FDS);
        if (rc < 0) {
            return rc;
        }
    }
    m->dumping = ram_fd >= 0;
    return 0;
}

static int machine_pause(struct machine *m, struct err *err)
{
    return qmp_send(m->qmp, "stop", NULL, -1, on_stopped, err);
}

static int machine_resume(struct machine *m, struct err *err)
{
    return qmp_send(m->qmp, "cont", NULL, -1, NULL, err);
}

static int machine_channel(const struct machine *m)
{
    return m->channel;
}

static int machine_take_channel(struct machine *m)
{
    return TAKE_FD(m->channel);
}

static int machine_schedstat(const struct machine *m)
{
    return m->schedstat;
}

static int machine_process_id(const struct machine *m)
{
    return (int)m->pid;
}

void engine_qemu_use_jail(struct jail *use)
{
    jail = use;
    seed_set_kill(kill_process);
}

const struct engine engine_qemu = {
    .name = "qemu",
    .probe = qemu_probe,
    .start = machine_start,
    .can_copy = machine_can_copy,
    .can_write = machine_can_write,
    .look = machine_look,
    .copy = machine_copy,
    .learn = machine_learn,
    .save = machine_save,
    .pause = machine_pause,
    .resume = machine_resume,
    .channel_fd = machine_channel,
    .take_channel = machine_take_channel,
    .schedstat_fd = machine_schedstat,
    .process_id = machine_process_id,
    .destroy = machine_kill,
    .free = machine_free,
};
