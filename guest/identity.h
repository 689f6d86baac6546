/* What a fork must have of its own before anything of a job runs: clock, randomness, names. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "schemas/proto/guest.pb.h"
#include "common/base/err.h"

/* A file of /etc, open since boot: a write is all that is left to do. */
struct identity_file {
    int fd, len;
};

struct identity {
    int random_fd; /* /dev/random */
    struct identity_file hostname, hosts, machine_id;
};

MUST_CHECK int identity_init(struct identity *id, struct err *err);
/* Set everything. -ERR_INVALID for a message out of its bounds; -ERR_SYS. On an error the machine
 * must not be used. */
MUST_CHECK int identity_set(struct identity *id, const guest_Identity *msg, struct err *err);
