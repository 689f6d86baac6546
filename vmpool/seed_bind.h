/* What binds a QEMU in a jail before a tenant's code runs in it. In the preloaded half; by bare
 * system calls, which take no lock, and where libc's would ask threads that are not there. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "vmpool/seed_wire.h"

/* In a new copy, while it has one thread: cgroups of the request, user, capabilities, the strict
 * filter, and its end with parent's. false: it may not live. */
bool seed_bind_copy(const struct seed_request *request, const int *cgroups, pid_t parent);
/* The calling thread has no capability any more. */
bool seed_bind_thread(void);
