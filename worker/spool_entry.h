/* An ended attempt as a record of the spool, and back.
 *
 * A row of values in a fixed order behind a version; numbers as 8 bytes, strings behind their
 * length, results by the same JSON that Postgres keeps of them plus their output. A record of
 * another version is refused: it is read by the program that wrote it, or by its successor, which
 * must then know both. */
#pragma once
#include "worker/commit.h"

/* Into out, which is emptied first. -ERR_TOO_LARGE: over the maximum of out. */
MUST_CHECK int spool_entry_write(const struct commit_entry *e, const char *worker, struct buf *out,
                                 struct err *err);
/* *ret_entry (commit_entry_free) is as it was written, its ref and refused apart; worker_room bytes
 * of worker: who ran it. -ERR_CORRUPT: not a record of this version. */
MUST_CHECK int spool_entry_read(const void *data, size_t len, struct commit_entry **ret_entry,
                                char *worker, size_t worker_room, struct err *err);

/* One branch's result as bytes, between workers of the same version: result and artifacts. */
MUST_CHECK int branch_bytes_write(struct job_result *r, const struct manifest *artifacts,
                                  struct buf *out, struct err *err);
/* Into r and *ret_artifacts, which are empty. -ERR_CORRUPT: both are empty again. */
MUST_CHECK int branch_bytes_read(const void *data, size_t len, struct job_result *r,
                                 struct manifest *ret_artifacts, struct err *err);
