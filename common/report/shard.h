/* Sharding of a test suite: what each shard is told, and which test files it gets.
 *
 * Pure, deterministic (the same files, times and number of shards give the same split on every
 * machine), thread-safe. Shards are counted from 0 here; what a person or --shard=i/n sees counts
 * from 1. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#define SHARDS_MAX 1024u
#define SHARD_FILES_MAX 100000u
#define SHARD_VARS_MAX 24u
#define SHARD_VALUE_BYTES_MAX 256u

struct shard_where {
    unsigned index, total; /* index < total, total 1 to SHARDS_MAX */
    /* paths in the sandbox, at most SHARD_VALUE_BYTES_MAX bytes; NULL: the variable is not set */
    const char *status_file, *xml_file, *tmp_dir;
};
struct shard_var {
    const char *name; /* static */
    char value[SHARD_VALUE_BYTES_MAX + 1];
};
/* The variables of one shard, in the order of shard.def. Returns how many; -ERR_INVALID for a bad
 * index, total or path. */
MUST_CHECK int shard_env(const struct shard_where *where, struct shard_var ret_vars[SHARD_VARS_MAX],
                         struct err *err);

/* Append arg to out with {shard} (from 1), {shard0} (from 0) and {shards} replaced:
 * "--shard={shard}/{shards}" suits Playwright, Jest and Vitest. Other braces stay. */
MUST_CHECK int shard_expand(const struct shard_where *where, const char *arg, struct buf *out,
                            struct err *err);

/* A test file (or whatever is dealt out), and how long it took; time_us -1: not known. */
struct shard_file {
    const char *name; /* not NULL, the caller's */
    int64_t time_us;
};
/* Deal n files to the shards, longest first to the shard with the least to do (longest processing
 * time first: at most 4/3 of the best split). A file without a time counts as the median of those
 * with one. ret_shard[n] gets the shard of each file; ret_load_us[shards] each shard's sum (NULL
 * allowed). Equal names are allowed. The order of the files does not matter. -ERR_TOO_LARGE past
 * SHARD_FILES_MAX, -ERR_INVALID for shards of 0 or past SHARDS_MAX. */
MUST_CHECK int shard_balance(const struct shard_file *files, size_t n, unsigned shards,
                             unsigned *ret_shard, int64_t *ret_load_us, struct err *err);

struct report;
/* Fill in time_us of the files from a past report; files that it does not know keep what they have.
 * A case belongs to a file by its file, else by its class or suite: equal to the file's name, or to
 * its path with dots and without extension ("tests/test_a.py" is "tests.test_a" and
 * "tests.test_a.TestX"). Returns how many files got a time. */
MUST_CHECK int shard_times(struct shard_file *files, size_t n, const struct report *past,
                           struct err *err);
