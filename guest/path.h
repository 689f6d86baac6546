/* Paths of job files: relative, below the work folder. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define PATH_PART_MAX 255u /* bytes, of every Linux file system */

/* Whether path is relative, not empty, and has no empty, "." or ".." part and none longer than
 * PATH_PART_MAX. */
bool path_is_below(const char *path);

/* Whether a symbolic link at path (path_is_below) to target[n] stays below the work folder wherever
 * it is followed: relative, no NUL, ".." only at the beginning, and not more of them than path has
 * folders. */
bool path_link_is_below(const char *path, const char *target, size_t n);
