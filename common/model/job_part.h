/* The parts that job_parse is made of. Internal to common/model. */
#pragma once
#include "common/model/json_read.h"

/* Read `limits` (v may be NULL: all defaults) into c's limits and explicit_limits. setup chooses
 * the column of defaults. */
MUST_CHECK int job_read_limits(const json_t *v, const char *path, bool setup, struct job_command *c,
                               struct err *err);
/* Read a command, an argv list or a shell line, and append args (NULL: none, path "args"). */
MUST_CHECK int job_read_command(const json_t *v, const char *path, const json_t *args,
                                struct job_command *c, struct err *err);
