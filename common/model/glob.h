/* Globs that say which files are artifacts: "out/", "report.xml", "*.log", "[a-z]?.txt".
 *
 * Theory: pattern and path are cut at slashes. A part of the pattern is matched against one part of
 * the path: `*` any bytes (also none), `?` one byte, `[abc]`, `[a-z]`, `[!abc]` one byte of a set,
 * `\x` the byte x itself. A part that is `**` stands for any number of whole parts (also none; at
 * the end at least one), so only `**` crosses a slash. A slash at the end is short for `/` + `**`:
 * "out/" is everything below out. Everything is bytes: no locale, no case, `?` is one byte of a
 * UTF-8 letter. A name that begins with a dot is a name like any other: `*` matches ".hidden".
 *
 * Wildcards are matched with one point of return a level (the last `*` of a part, the last `**` of
 * the pattern), which is enough for both, so the time is at most pattern x path bytes whatever
 * either holds. No allocation, no recursion. Pure, thread-safe; used by the host and in the guest.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "common/base/err.h"

#define GLOB_BYTES_MAX 256u       /* of one pattern */
#define GLOBS_MAX 64u             /* patterns of one list */
#define GLOBS_BYTES_MAX 8192u     /* of a whole list, each pattern's ending NUL included */
#define GLOB_PATH_BYTES_MAX 4096u /* longer paths match nothing */

/* Whether pattern[n] is one that can be used. -ERR_INVALID names the rule: empty, absolute, "." or
 * ".." or an empty part, NUL or control character, "**" beside other bytes of its part, `[` without
 * `]`, `\` at the end; -ERR_TOO_LARGE: over GLOB_BYTES_MAX. */
MUST_CHECK int glob_check(const char *pattern, size_t n, struct err *err);

/* Whether the clean relative path matches the pattern, which glob_check has accepted. */
bool glob_match(const char *pattern, size_t pattern_n, const char *path, size_t path_n);

/* Whether something below the folder `dir` (a clean relative path, not empty) could match: false
 * saves the walk. Never false where a path below matches. */
bool glob_may_match_below(const char *pattern, size_t pattern_n, const char *dir, size_t dir_n);

/* Check a list of patterns, each ended by NUL, and return how many there are (1 .. GLOBS_MAX). The
 * error names the pattern by its number, from 1. */
MUST_CHECK int globs_check(const char *list, size_t n, struct err *err);
