/* Paths of job files: relative, below the work folder. Pure. */
#pragma once
#include <stdbool.h>

#define PATH_PART_MAX 255u /* bytes, of every Linux file system */

/* Whether path is relative, not empty, and has no empty, "." or ".." part and none longer than
 * PATH_PART_MAX. */
bool path_is_below(const char *path);
