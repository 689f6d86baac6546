/* The directory driver's list, in a file of its own. */
#pragma once
#include "common/store/object.h"

/* Up to max objects below root in order, those after *after (NULL: from the first); the count.
 * Looks only into folders that can hold one of them. */
MUST_CHECK int object_dir_walk(const char *root, const struct object_id *after,
                               struct object_info *rows, int max, struct err *err);
