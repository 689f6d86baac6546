/* What a service does first: its command line (--home, --config, --check), the configuration, the
 * log. */
#pragma once
#include <stdbool.h>
#include "common/base/config.h"

struct program {
    const char *name; /* of the part: "worker" is brood-worker */
    const char *doc;  /* argp's: what it does; after a \v what else is to be said */
};

/* From here on this process and those it starts may have as many open files as the host allows: the
 * usual soft limit is for programs that use select(2). */
void program_files_max(void);
/* Fills config and, for --check, ret_check. Lines of the log carry the name from here on. A name
 * server that is silent is given up after seconds (RES_OPTIONS, unless the environment has it).
 * Open files as above. Before any thread. Returns 0, or the status to exit with, its reason said on
 * stderr. */
MUST_CHECK int program_begin(const struct program *p, int argc, char **argv,
                             struct config *ret_config, bool *ret_check);
