/* What a fork must have of its own before anything of a job runs: clock, randomness, names. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "schemas/proto/guest.pb.h"
#include "common/base/err.h"

struct identity {
    int random_fd; /* /dev/random */
    int hostname_fd, hosts_fd,
        machine_id_fd; /* files of /etc, open since boot: a write is all that is left to do */
};

MUST_CHECK int identity_init(struct identity *id, struct err *err);
/* Set everything. -ERR_INVALID for a message out of its bounds; -ERR_SYS. On an error the machine
 * must not be used. */
MUST_CHECK int identity_set(const struct identity *id, const guest_Identity *msg, struct err *err);
