#include "guest/slot.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest/boot.h"

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

int slots_init(struct slots *s, int cgroup_fd, struct warm *warm, struct err *err)
{
    *s = (struct slots){ .cgroup_fd = cgroup_fd, .warm = warm };
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &s->slot[i];
        *slot = (struct slot){
            .in = { -1, -1 }, .out = { -1, -1 }, .err = { -1, -1 }, .spare.sock = -1
        };
        (void)snprintf(slot->name, sizeof slot->name, "run%u", i);
        if (i >= SLOTS_READY) {
            slot->cg.dir_fd = -1;
            memset(slot->cg.fd, -1, sizeof slot->cg.fd);
            slot->state = SLOT_BARE;
            continue;
        }
        int rc = cgroup_make(&slot->cg, cgroup_fd, slot->name, err);
        if (rc < 0) {
            return rc;
        }
        slot->state = SLOT_FRESH;
    }
    return 0;
}

/* They are the job's user's, or opening /dev/stdin, /dev/stdout and /dev/stderr would be refused.
 */
static int make_pipes(struct slot *slot, struct err *err)
{
    slot_close_pipes(slot);
    if (pipe2(slot->in, O_CLOEXEC) < 0 || pipe2(slot->out, O_CLOEXEC) < 0 ||
        pipe2(slot->err, O_CLOEXEC) < 0 || fchown(slot->in[0], BOOT_UID, BOOT_UID) < 0 ||
        fchown(slot->out[1], BOOT_UID, BOOT_UID) < 0 ||
        fchown(slot->err[1], BOOT_UID, BOOT_UID) < 0 ||
        fcntl(slot->in[1], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(slot->out[0], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(slot->err[0], F_SETFL, O_NONBLOCK) < 0) {
        slot_close_pipes(slot);
        return err_sys(err, "pipes");
    }
    return 0;
}

void slot_close_pipes(struct slot *slot)
{
    for (int i = 0; i < 2; i++) {
        close_fd(&slot->in[i]);
        close_fd(&slot->out[i]);
        close_fd(&slot->err[i]);
    }
}

void slot_done(struct slot *slot)
{
    slot_close_pipes(slot);
    slot->state = SLOT_USED;
}

void slot_keep(struct slot *slot)
{
    close_fd(&slot->in[0]);
    close_fd(&slot->in[1]);
    close_fd(&slot->out[1]);
    close_fd(&slot->err[1]);
    slot->state = SLOT_KEPT;
}

void slots_poll_kept(const struct slots *s, struct pollfd *p)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct slot *slot = &s->slot[i];
        bool kept = slot->state == SLOT_KEPT;
        p[2 * i] = (struct pollfd){ kept ? slot->out[0] : -1, POLLIN, 0 };
        p[2 * i + 1] = (struct pollfd){ kept ? slot->err[0] : -1, POLLIN, 0 };
    }
}

void slots_drain_kept(struct slots *s, const struct pollfd *p)
{
    static char scratch[4096];
    for (unsigned i = 0; i < SLOTS_KEPT_POLLS; i++) {
        struct slot *slot = &s->slot[i / 2];
        int *fd = i % 2 ? &slot->err[0] : &slot->out[0];
        if (p[i].revents && slot->state == SLOT_KEPT && read(*fd, scratch, sizeof scratch) == 0) {
            close_fd(fd);
        }
    }
}

bool slots_have_spare(const struct slots *s)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        if (s->slot[i].state == SLOT_EQUIPPED && s->slot[i].spare.pid != 0) {
            return true;
        }
    }
    return false;
}

static int equip(struct slots *s, bool want_spare, struct err *err)
{
    struct slot *slot = NULL;
    for (unsigned i = 0; i < SLOTS && !slot; i++) {
        slot = s->slot[i].state == SLOT_FRESH ? &s->slot[i] : NULL;
    }
    for (unsigned i = 0; i < SLOTS && !slot; i++) {
        if (s->slot[i].state == SLOT_USED || s->slot[i].state == SLOT_BARE) {
            slot = &s->slot[i];
            cgroup_remove(&slot->cg, s->cgroup_fd, slot->name);
            slot->state = SLOT_BARE;
            int rc = cgroup_make(&slot->cg, s->cgroup_fd, slot->name, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    if (!slot) { /* at most two of them are equipped */
        return err_set(err, ERR_TOO_LARGE,
                       "at most %u runs of a machine may leave processes behind", SLOTS - 2);
    }
    int rc = make_pipes(slot, err);
    if (rc < 0) {
        return rc;
    }
    slot->spare = (struct warm_spare){ .sock = -1 };
    slot->cpu_base_us = 0;
    if (want_spare) {
        int pipes[3] = { slot->in[0], slot->out[1], slot->err[1] };
        rc = s->cell
                 ? warm_arm_cell(s->warm, slot->cg.dir_fd, pipes, s->cell->pidfd, &slot->spare, err)
                 : warm_arm(s->warm, slot->cg.fd[CGROUP_PROCS], pipes, &slot->spare, err);
        if (rc == 0) { /* the spare has them now: when it and its children close them, that shows */
            close_fd(&slot->in[0]);
            close_fd(&slot->out[1]);
            close_fd(&slot->err[1]);
            struct cgroup_use use;
            cgroup_used(&slot->cg, &use);
            slot->cpu_base_us = use.cpu_us;
        }
    }
    slot->state = rc == 0 ? SLOT_EQUIPPED
                          : SLOT_USED; /* what a failed spare left in it is not another run's */
    return rc;
}

static struct slot *find(struct slots *s, bool spare)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &s->slot[i];
        if (slot->state == SLOT_EQUIPPED && (slot->spare.pid != 0) == spare) {
            return slot;
        }
    }
    return NULL;
}

int slots_prepare(struct slots *s, bool spare, struct err *err)
{
    int rc = 0;
    if (!find(s, false)) {
        rc = equip(s, false, err);
    }
    if (rc == 0 && spare && s->warm->pid != 0 && !find(s, true)) {
        rc = equip(s, true, err);
    }
    return rc;
}

void slots_drop(struct slots *s)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &s->slot[i];
        if (slot->state == SLOT_EQUIPPED && slot->spare.pid != 0) {
            cgroup_kill(&slot->cg);
            close_fd(&slot->spare.sock);
            slot->spare.pid = 0;
            slot_done(slot);
        }
    }
}

struct slot *slots_take(struct slots *s, bool want_spare)
{
    struct slot *slot = want_spare ? find(s, true) : NULL;
    slot = slot ? slot : find(s, false);
    if (slot) {
        slot->state = SLOT_BUSY; /* prepare may come before the run's EXIT: not for this slot */
    }
    return slot;
}

unsigned slots_left(const struct slots *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        n += s->slot[i].state == SLOT_FRESH || s->slot[i].state == SLOT_EQUIPPED;
    }
    return n;
}

void slots_ended(struct slots *s, pid_t pid)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &s->slot[i];
        if (slot->state == SLOT_EQUIPPED && slot->spare.pid == pid) {
            close_fd(&slot->spare.sock);
            slot->spare.pid = 0;
            slot_close_pipes(slot);
            slot->state = SLOT_USED; /* its write ends are gone with it */
        }
    }
}
