/* A message of fixed size on a socket, with one descriptor or none. Also in the preloaded half: no
 * lock is taken and nothing allocated. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* fd -1: none; borrowed. flags: of sendmsg. true when all n bytes went. */
bool fd_send(int sock, const void *message, size_t n, int fd, int flags);
/* Up to n bytes, as recvmsg with flags gives them (and returns); *ret_fd: the descriptor that came,
 * CLOEXEC, the caller's; -1: none, or not exactly one. */
ssize_t fd_take(int sock, void *message, size_t n, int flags, int *ret_fd);
