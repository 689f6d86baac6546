/* Lists of strings as they travel: each ended by NUL, one behind the other (Run.argv, Run.env), and
 * what the agent decides from them alone: the environment's defaults, and whether the warm
 * interpreter may take a command. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "common/base/err.h"

#define STRS_ARGV_MAX 1024u
#define STRS_ENV_MAX 1024u
#define STRS_DEFAULTS_MAX 64u /* of them, lines of the template's /usr/lib/brood/env included */

/* NULL-terminated vector over memory that somebody else owns. */
struct strs {
    char *v[STRS_ENV_MAX + STRS_DEFAULTS_MAX + 1];
    size_t n;
};

/* Point s at the strings in data[len]; they stay in data, which must outlive s.
 * -ERR_INVALID when the last one has no NUL, or there are more than max. what: for the text, e.g.
 * "argv". */
MUST_CHECK int strs_split(struct strs *s, char *data, size_t len, size_t max, const char *what,
                          struct err *err);
/* The value of NAME in an env vector, or NULL. */
const char *strs_env(const struct strs *env, const char *name);
/* Append each of defaults ("K=V") whose name env does not have. Room is there: asserted. */
void strs_env_defaults(struct strs *env, char *const *defaults, size_t n);
/* Whether python3 would do the same as the warm interpreter for argv under env: python3 or python,
 * then a script's path, -c CODE or -m MODULE, and no variable that changes the interpreter's start.
 */
bool strs_fits_warm(const struct strs *argv, const struct strs *env);
