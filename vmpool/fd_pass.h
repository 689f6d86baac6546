/* A message of fixed size on a socket, with descriptors or none. Also in the preloaded half: no
 * lock is taken and nothing allocated. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define FD_PASS_MAX 32 /* with one message */

/* fds: n_fds of them, borrowed. flags: of sendmsg. true when all n bytes went, else errno says why.
 */
bool fds_send(int sock, const void *message, size_t n, const int *fds, size_t n_fds, int flags);
/* The same with one; -1: none. */
bool fd_send(int sock, const void *message, size_t n, int fd, int flags);
/* Up to n bytes, as recvmsg with flags gives them (and returns); *ret_fd: the descriptor that came,
 * CLOEXEC, the caller's; -1: none, or not exactly one. */
ssize_t fd_take(int sock, void *message, size_t n, int flags, int *ret_fd);
