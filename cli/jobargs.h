/* From the options of `brood run` to a job's JSON. Pure but for reading the files named. */
#pragma once
#include <jansson.h>
#include "common/base/err.h"

/* "cpu_ms=500" -> limits.cpu_ms; the name must be in limits.def, the value a whole number; the
 * range is job_parse()'s. */
MUST_CHECK int jobargs_limit(json_t *limits, const char *text, struct err *err);
/* "K=V" */
MUST_CHECK int jobargs_env(json_t *env, const char *text, struct err *err);
/* "F" or "F:PATH": read F, add it to files as PATH (default: F's base name), executable when F is.
 * The last ':' divides, and only when no file is called like the whole text. */
MUST_CHECK int jobargs_file(json_t *files, const char *text, struct err *err);
/* Split F[:PATH]; from and path have room bytes each. */
MUST_CHECK int jobargs_split(const char *text, char *from, char *path, size_t room,
                             struct err *err);
