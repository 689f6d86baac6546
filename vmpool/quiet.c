#include "vmpool/quiet.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"

#define LOOK_MS 8
#define QUIET_NS 800000 /* of CPU time between two looks */
#define QUIET_LOOKS 2

struct quiet {
    struct event *ev;
    int fd, looks;
    int64_t until_ms, cpu_ns;
    quiet_done *done;
    void *user;
};

/* 0 when it cannot be read: then it counts as quiet. */
static int64_t cpu_ns(int fd)
{
    char text[96];
    int64_t ns = 0;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%" SCNd64, &ns) == 1 ? ns : 0;
}

static void look_later(struct quiet *q)
{
    struct timeval tv = { .tv_usec = LOOK_MS * 1000 };
    if (event_add(q->ev, &tv) < 0) {
        abort();
    }
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
    struct quiet *q = arg;
    int64_t ns = cpu_ns(q->fd);
    (void)fd;
    (void)what;
    q->looks = ns - q->cpu_ns < QUIET_NS ? q->looks + 1 : 0;
    q->cpu_ns = ns;
    if (q->looks >= QUIET_LOOKS || mono_ms() >= q->until_ms) {
        q->done(q->user); /* may free q */
        return;
    }
    look_later(q);
}

struct quiet *quiet_wait(struct event_base *base, int schedstat_fd, int64_t max_ms,
                         quiet_done *done, void *user)
{
    assert(done && max_ms > 0);
    struct quiet *q = calloc(1, sizeof *q);
    if (!q) {
        abort();
    }
    *q = (struct quiet){ .ev = evtimer_new(base, on_look, q),
                         .fd = schedstat_fd,
                         .until_ms = mono_ms() + max_ms,
                         .cpu_ns = cpu_ns(schedstat_fd),
                         .done = done,
                         .user = user };
    if (!q->ev) {
        abort();
    }
    look_later(q);
    return q;
}

void quiet_free(struct quiet *q)
{
    if (q) {
        event_free(q->ev);
        free(q);
    }
}
