/* The writable layer: one tmpfs, whose size is the run's disk limit. The machine's own, or that of
 * the cell in hand. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

struct disk {
    uint64_t base_bytes,
        base_files; /* used before any job: copies that the overlay made, folders */
    uint64_t size_bytes, size_files;   /* as set now; 0: as mounted */
    uint64_t given_bytes, given_files; /* used when the last run ended */
    bool given;                        /* its room is what was given, and not a limit */
    int layer_fd; /* root of a cell's layer, the cell's; -1: the machine's own */
};

MUST_CHECK int disk_init(struct disk *d, struct err *err);
/* What is in the layer by now is the machine's own: no job has written to it. Its size stays. */
void disk_settle(struct disk *d);
/* From here on another layer counts, which no job has used yet. */
MUST_CHECK int disk_use_layer(struct disk *d, int layer_fd, struct err *err);
/* Let jobs use so much (0: no change). What earlier runs left is the state that the next one is
 * given: when that is more, it may keep it and add nothing. -ERR_TOO_LARGE when files that came
 * since are more than fits. */
MUST_CHECK int disk_limit(struct disk *d, uint64_t limit_bytes, uint64_t limit_files,
                          struct err *err);
/* A run has ended: what is used now is given to the next. */
void disk_run_ended(struct disk *d);
/* What jobs use, and whether no room of their limit is free. */
void disk_used(const struct disk *d, uint64_t *ret_bytes, uint64_t *ret_files, bool *ret_full);
