/* What protects this host from its machines, tried out: each protection by doing it in a child. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "vmpool/jail/cgroup.h"
#include "vmpool/jail/start.h"
#include "vmpool/jail/wire.h"

/* Fill host->root and host->spaces and a row for each protection but the cgroups. Afterwards this
 * process is in a mount namespace of its own. */
void protect_find(struct jail_host *host, bool kvm, struct jail_hello *hello);
void protect_cgroups(const struct cgroups *c, struct jail_hello *hello);
/* Keep only these capabilities. 0, or -1. */
int protect_self(uint64_t keep);
/* Use only these of those that are permitted, until the next call. 0, or -1. */
int protect_effective(uint64_t use);
/* The first required row that does not hold; NULL: there is none. */
const struct jail_protection *protect_missing(const struct jail_hello *hello);
