/* brood-seed-target: a program with threads, to be copied by the preload library as QEMU is
 * (test_seed.c). Control on fd 4, output on fd 5, as a QEMU has its QMP socket and agent channel.
 *
 * The main thread waits on fd 4; each byte makes a worker thread, asleep on a condition variable,
 * say on fd 5 who it is, how often it was asked, and that its thread-local and locked state are
 * what they should be. 'q' ends the program by exit; 'e' and 'd' open and close an epoll, with
 * which it cannot be copied.
 *
 * Another thread holds a recursive lock most of the time, as QEMU's main loop does at moments: such
 * a lock knows its owner by the thread's number, and a copy in that moment could not unlock it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ask = PTHREAD_COND_INITIALIZER;
static int asked, answered;
static __thread int own = 7;

static void *worker(void *arg)
{
    int event = *(int *)arg;
    own = 42;
    (void)pthread_mutex_lock(&lock);
    for (;;) {
        char text[96];
        while (asked == answered) {
            (void)pthread_cond_wait(&ask, &lock);
        }
        answered++;
        /* an eventfd shared with a sibling would give the sibling's value */
        uint64_t value = (uint64_t)answered;
        (void)!write(event, &value, sizeof value);
        (void)!read(event, &value, sizeof value);
        void *p = malloc(100000); /* takes the allocator's lock */
        int n = snprintf(text, sizeof text, "pid %d tid %d asked %d own %d %s", (int)getpid(),
                         (int)gettid(), answered, own, p ? "ok" : "no memory");
        free(p);
        (void)send(5, text, (size_t)n, MSG_NOSIGNAL);
    }
    return NULL;
}

#define HELD_NS 400000

static void *holder(void *arg)
{
    pthread_mutex_t recursive;
    pthread_mutexattr_t attr;
    (void)arg;
    (void)pthread_mutexattr_init(&attr);
    (void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&recursive, &attr);
    for (;;) {
        struct timespec from, now;
        (void)pthread_mutex_lock(&recursive);
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        do {
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < HELD_NS);
        if (pthread_mutex_unlock(&recursive) != 0) {
            abort();
        }
        (void)usleep(HELD_NS / 3000);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    char c;
    int poll = -1, event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0 || pthread_create(&thread, NULL, holder, NULL) != 0 ||
        pthread_create(&thread, NULL, worker, &event) != 0) {
        return 1;
    }
    while (recv(4, &c, 1, 0) == 1) {
        if (c == 'q') {
            return 3;
        }
        if (c == 'e') {
            poll = epoll_create1(EPOLL_CLOEXEC);
        } else if (c == 'd') {
            (void)close(poll);
        }
        (void)pthread_mutex_lock(&lock);
        asked++;
        (void)pthread_cond_signal(&ask);
        (void)pthread_mutex_unlock(&lock);
    }
    return 0;
}
