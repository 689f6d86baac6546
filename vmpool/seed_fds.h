/* What a copy of a seed would share with it, and must not. In the preloaded half. */
#pragma once
#include <stdbool.h>

/* Look at what cannot be shared, with libc's help, before anything is parked. NULL, or why there
 * can be no copy. */
const char *seed_fds_look(void);
/* In the copy, before any other thread runs: fds (SEED_FDS) take the places of the seed's, and each
 * eventfd that was seen is one of its own. Takes no lock. false: it may not live. */
bool seed_fds_own(const int *fds);
