/* The system calls that a QEMU in a jail may make. In the preloaded half; not thread safe. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Build both programs, by libseccomp, which allocates: at start. uids: the first user id of the
 * range a seed's copies may take; 0: this is none. false: it cannot be done. */
bool filter_prepare(uint32_t uids);
/* Install the one for the time until guest code of a tenant runs: a seed may become users of the
 * range, drop capabilities and install the strict one. Needs no_new_privs. */
bool filter_start(void);
/* The strict one, in all threads of the process, by a bare system call: takes no lock and allocates
 * nothing. Adds to whatever is installed. */
bool filter_strict(void);
