/* A vmpool for tests: the pool's socket, with fake guests instead of sandboxes. */
#pragma once
#include "tests/support/fake_guest.h"

struct fake_pool;

enum fake_pool_mode {
    POOL_GOOD,       /* leases a guest of the script */
    POOL_REFUSES,    /* answers with PoolError not_found */
    POOL_SILENT,     /* never answers */
    POOL_WRONG_ID,   /* answers to another request */
    POOL_NO_FDS,     /* a lease without its channel */
    POOL_GARBAGE,    /* bytes that are no message */
    POOL_CLOSES,     /* closes the connection on the first request, then is good */
    POOL_ONE,        /* good, but with room for one lease at a time */
    POOL_FULL_TWICE, /* answers no_capacity twice, then is good */
    POOL_BROKEN,     /* answers unavailable: the template's sandboxes do not start */
    POOL_LATE_FORKS, /* answers unavailable to the first three forks, then is good */
    POOL_SMALL,      /* good, but its machines have 128 MiB instead of 512 */
};

/* Listens at path (removed first). script runs for each lease, with arg. */
struct fake_pool *fake_pool_start(const char *path, enum fake_pool_mode mode,
                                  void (*script)(struct fake_guest *g, void *arg), void *arg);
int fake_pool_leases(struct fake_pool *p);   /* handed out so far */
int fake_pool_releases(struct fake_pool *p); /* given back, or their connection closed */
void fake_pool_stop(struct fake_pool *p);
