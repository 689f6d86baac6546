/* The writable layer: one tmpfs, whose size is the run's disk limit. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

struct disk {
    uint64_t base_bytes; /* used before any job: copies that the overlay made, folders */
    uint64_t size_bytes; /* as set now; 0: as mounted */
};

MUST_CHECK int disk_init(struct disk *d, struct err *err);
/* Let jobs use limit_bytes (0: no change). -ERR_TOO_LARGE when more is used already. */
MUST_CHECK int disk_limit(struct disk *d, uint64_t limit_bytes, struct err *err);
/* What jobs use, and whether nothing is free. */
void disk_used(const struct disk *d, uint64_t *ret_used_bytes, bool *ret_full);
