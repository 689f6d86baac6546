/* What the jailer takes from the broker, which may have been taken over: everything is looked at
 * again here, and what is not exactly right is refused. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "common/base/err.h"
#include "vmpool/jail/wire.h"

/* Whether a START with these flags comes with this descriptor. */
bool jail_fd_wanted(uint32_t flags, enum jail_fd which);
/* How many fds come with the request. */
unsigned jail_fds_wanted(const struct jail_request *r);
/* Pure: bytes is a whole request whose numbers are in range and whose unused fields are 0. */
MUST_CHECK int jail_check_request(const void *bytes, size_t len, unsigned n_fds,
                                  struct jail_request *ret_request, struct err *err);
/* The kind of each descriptor by fstat and fcntl: RAM is a memfd of the size that was said, sealed
 * against writing unless the machine boots; sockets are sockets, files are read-only regular files.
 * fds: in the order of enum jail_fd, -1 where none is wanted. */
MUST_CHECK int jail_check_fds(const struct jail_request *r, const int fds[JAIL_FD_END],
                              struct err *err);
