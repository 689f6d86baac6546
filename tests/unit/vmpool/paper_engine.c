#include "tests/unit/vmpool/paper_engine.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"

struct paper paper;

static int refused(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "not today");
}

static int paper_start(struct event_base *base, const struct engine_host *host,
                       const struct machine_options *options, machine_listener *listener,
                       void *user, struct machine **ret_machine, struct err *err)
{
    int pair[2];
    (void)base;
    (void)host;
    if (paper.refuses || paper.n == PAPER_MACHINES_MAX) {
        return refused(err);
    }
    struct machine *m = calloc(1, sizeof *m);
    if (!m || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        abort();
    }
    m->listener = listener;
    m->user = user;
    m->freeze = options->freeze;
    m->host = pair[0];
    m->guest = pair[1];
    LIST_INSERT_HEAD(&paper.machines, m, link);
    paper.n++;
    *ret_machine = m;
    return 0;
}

static int paper_copy(struct machine *origin, machine_listener *listener, void *user,
                      struct machine **ret_machine, struct err *err)
{
    struct machine_options o = { .freeze = origin->freeze };
    assert(origin->loaded && !origin->destroyed && origin->freeze == FREEZE_COPY);
    return paper_start(NULL, NULL, &o, listener, user, ret_machine, err);
}

static bool paper_can_copy(const struct machine *m)
{
    return m->freeze == FREEZE_COPY;
}

static bool paper_can_write(const struct machine *m)
{
    return m->freeze == FREEZE_WRITE;
}

static int paper_look(const struct machine *m, struct machine_look *ret_look, struct err *err)
{
    (void)m;
    (void)ret_look;
    return refused(err);
}

static int paper_learn(struct machine *origin, const struct machine *copy, struct err *err)
{
    assert(!origin->destroyed && !copy->destroyed);
    return paper.refuses ? refused(err) : 0;
}

static int paper_save(struct machine *m, int state_fd, int ram_fd, struct err *err)
{
    (void)state_fd;
    (void)ram_fd;
    m->saving = true;
    return paper.refuses ? refused(err) : 0;
}

static int paper_pause(struct machine *m, struct err *err)
{
    assert(m->loaded && !m->destroyed);
    m->pausing = true;
    return paper.refuses ? refused(err) : 0;
}

static int paper_resume(struct machine *m, struct err *err)
{
    assert(m->loaded && !m->destroyed);
    return paper.refuses ? refused(err) : 0;
}

static int paper_channel_fd(const struct machine *m)
{
    return m->host;
}

static int paper_take_channel(struct machine *m)
{
    return TAKE_FD(m->host);
}

static int paper_schedstat_fd(const struct machine *m)
{
    return m->guest; /* any descriptor: there are no figures in it, so the machine is quiet */
}

static int paper_process_id(const struct machine *m)
{
    (void)m;
    return getpid();
}

static void paper_destroy(struct machine *m)
{
    m->destroyed = true;
}

static void paper_free(struct machine *m)
{
    if (m) {
        assert(m->exited);
        LIST_REMOVE(m, link);
        paper.n--;
        if (m->host >= 0) {
            (void)close(m->host);
        }
        (void)close(m->guest);
        free(m);
    }
}

const struct engine paper_engine = {
    .name = "paper",
    .start = paper_start,
    .can_copy = paper_can_copy,
    .can_write = paper_can_write,
    .look = paper_look,
    .copy = paper_copy,
    .learn = paper_learn,
    .save = paper_save,
    .pause = paper_pause,
    .resume = paper_resume,
    .channel_fd = paper_channel_fd,
    .take_channel = paper_take_channel,
    .schedstat_fd = paper_schedstat_fd,
    .process_id = paper_process_id,
    .destroy = paper_destroy,
    .free = paper_free,
};

struct machine *paper_machine(unsigned i)
{
    struct machine *m = LIST_FIRST(&paper.machines);
    for (i = paper.n ? i % (unsigned)paper.n : 0; m && i > 0; i--) {
        m = LIST_NEXT(m, link);
    }
    return m;
}

void paper_happen(struct machine *m, enum machine_event event, const char *text)
{
    if (m->exited || (m->destroyed && event != MACHINE_EXITED)) {
        return;
    }
    switch (event) {
    case MACHINE_LOADED:
        if (m->loaded) {
            return;
        }
        m->loaded = true;
        break;
    case MACHINE_PAUSED:
        if (!m->pausing) {
            return;
        }
        m->pausing = false;
        break;
    case MACHINE_SAVED:
        if (!m->saving) {
            return;
        }
        m->saving = false;
        break;
    case MACHINE_EXITED:
        m->exited = true;
        break;
    default:
        break;
    }
    m->listener(m->user, event, text);
}

struct pool_snapshot *paper_snapshot(struct pool *p, const char *name, const char *digest,
                                     uint32_t memory_mib)
{
    struct pool_snapshot *s;
    struct err err;
    int rc = snapshot_find(p, name, digest, true, &s, &err);
    assert(rc == 0);
    (void)rc;
    s->state = SNAPSHOT_READY;
    s->stored = true;
    s->info.memory_mib = memory_mib;
    s->info.vcpus = 1;
    s->ram_fd = memfd_create("ram", MFD_CLOEXEC);
    s->state_fd = memfd_create("state", MFD_CLOEXEC);
    if (s->ram_fd < 0 || s->state_fd < 0 || ftruncate(s->ram_fd, (off_t)memory_mib << 20) < 0) {
        abort();
    }
    return s;
}
