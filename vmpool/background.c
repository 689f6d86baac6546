/* A finished job is a pointer written to a pipe: writes of a pointer are atomic (PIPE_BUF), and the
 * pipe is the lock. */
#include "vmpool/background.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct background {
    int pipe_fds[2];
    struct event *ev;
    int busy;
};

struct work_item {
    struct background *owner;
    background_work *work;
    background_done *done;
    void *user;
};

static void *thread_main(void *arg)
{
    struct work_item *item = arg;
    item->work(item->user);
    ssize_t n;
    do {
        n = write(item->owner->pipe_fds[1], &item, sizeof item);
    } while (n < 0 && errno == EINTR);
    return NULL;
}

static void on_done(evutil_socket_t fd, short what, void *arg)
{
    struct background *b = arg;
    struct work_item *item;
    (void)what;
    if (read(fd, &item, sizeof item) != sizeof item) {
        return;
    }
    assert(b->busy > 0);
    b->busy--;
    item->done(item->user);
    free(item);
}

int background_new(struct event_base *base, struct background **ret, struct err *err)
{
    struct background *b = calloc(1, sizeof *b);
    if (!b) {
        abort();
    }
    if (pipe2(b->pipe_fds, O_CLOEXEC) < 0) {
        free(b);
        return err_sys(err, "pipe");
    }
    (void)fcntl(b->pipe_fds[0], F_SETFL, O_NONBLOCK);
    b->ev = event_new(base, b->pipe_fds[0], EV_READ | EV_PERSIST, on_done, b);
    if (!b->ev || event_add(b->ev, NULL) < 0) {
        abort();
    }
    *ret = b;
    return 0;
}

int background_run(struct background *b, background_work *work, background_done *done, void *user,
                   struct err *err)
{
    struct work_item *item = malloc(sizeof *item);
    if (!item) {
        abort();
    }
    *item = (struct work_item){ b, work, done, user };
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, thread_main, item);
    if (rc != 0) {
        free(item);
        errno = rc;
        return err_sys(err, "start a thread");
    }
    (void)pthread_detach(thread);
    b->busy++;
    return 0;
}

int background_busy(const struct background *b)
{
    return b->busy;
}

void background_free(struct background *b)
{
    if (!b) {
        return;
    }
    assert(b->busy == 0);
    event_free(b->ev);
    (void)close(b->pipe_fds[0]);
    (void)close(b->pipe_fds[1]);
    free(b);
}
