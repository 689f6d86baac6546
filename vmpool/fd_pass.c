#include "vmpool/fd_pass.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

bool fds_send(int sock, const void *message, size_t n, const int *fds, size_t n_fds, int flags)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)message, .iov_len = n };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    assert(n_fds <= FD_PASS_MAX);
    if (n_fds > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN(n_fds * sizeof(int)) };
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    return sendmsg(sock, &msg, flags | MSG_NOSIGNAL) == (ssize_t)n;
}

bool fd_send(int sock, const void *message, size_t n, int fd, int flags)
{
    return fds_send(sock, message, n, &fd, fd >= 0, flags);
}

ssize_t fd_take(int sock, void *message, size_t n, int flags, int *ret_fd)
{
    struct iovec iov = { .iov_base = message, .iov_len = n };
    union control control;
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    ssize_t got = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    *ret_fd = -1;
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
    }
    return got;
}
