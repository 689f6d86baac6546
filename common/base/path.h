/* Relative paths as bytes: what artifacts, manifests and archives accept, and in which order.
 *
 * A path is bytes, not text: Linux names need not be UTF-8. Pure, no allocation. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define PATH_NAME_BYTES_MAX 255u /* of one part, on every Linux file system */

/* Whether p[n] is relative and clean: not empty, no NUL, no slash at either end, no empty, "." or
 * ".." part, none longer than PATH_NAME_BYTES_MAX. */
bool path_clean(const char *p, size_t n);
/* Order of a walk that sorts each folder's names by bytes: "/" counts as less than every other
 * byte. < 0, 0, > 0. */
int path_order(const char *a, size_t an, const char *b, size_t bn);
/* Whether p lies below the folder dir: dir and a slash are its beginning. */
bool path_below(const char *p, size_t n, const char *dir, size_t dir_n);
