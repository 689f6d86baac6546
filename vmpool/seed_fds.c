#include "vmpool/seed_fds.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmpool/seed_wire.h"

#define EVENTFDS_MAX 64
#define QMP_FD 4
#define CHANNEL_FD 5

struct event_fd {
    int fd, flags;
};

static struct event_fd event_fds[EVENTFDS_MAX];
static int n_event_fds;

bool seed_fds_own(const int *fds)
{
    static const int to[SEED_FDS] = { 2, QMP_FD, CHANNEL_FD, SEED_FD };
    for (int i = 0; i < SEED_FDS; i++) {
        if (dup3(fds[i], to[i], to[i] == 2 ? 0 : O_CLOEXEC) < 0) {
            return false;
        }
        (void)close(fds[i]);
    }
    for (int i = 0; i < n_event_fds; i++) {
        int fresh = eventfd(0, EFD_CLOEXEC | (event_fds[i].flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
        /* a wake-up that was under way must not be lost, one too many does no harm */
        uint64_t one = 1;
        if (fresh < 0 || write(fresh, &one, sizeof one) != sizeof one ||
            dup3(fresh, event_fds[i].fd, O_CLOEXEC) < 0) {
            return false;
        }
        (void)close(fresh);
    }
    return true;
}

const char *seed_fds_look(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    const char *why = dir ? NULL : "no /proc/self/fd";
    n_event_fds = 0;
    while (dir && !why && (e = readdir(dir))) {
        char path[288], link[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n < 0 ? 0 : n] = 0;
        if (strcmp(link, "anon_inode:[eventfd]") == 0) {
            int fd = (int)strtol(e->d_name, NULL, 10);
            if (n_event_fds == EVENTFDS_MAX) {
                why = "too many eventfds";
            } else {
                event_fds[n_event_fds++] = (struct event_fd){ fd, fcntl(fd, F_GETFL) };
            }
        } else if (strcmp(link, "anon_inode:[eventpoll]") == 0) {
            why = "QEMU uses epoll";
        } else if (strcmp(link, "anon_inode:[io_uring]") == 0) {
            why = "QEMU uses io_uring";
        } else if (strcmp(link, "anon_inode:[timerfd]") == 0) {
            why = "QEMU uses a timerfd";
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    return why;
}
