/* The names of one archive: whether they stay in the work folder, and fit together.
 *
 * Theory: a link that is created first and written through next is the classic way out, so the tree
 * knows every path that was seen and what it is. The rules make it impossible at any order of
 * entries, without resolving anything:
 * - no entry's path leads through a link or a file of the archive; so every entry lies in real
 *   folders;
 * - no path is given twice (but folders); so a folder never becomes a link;
 * - a link's target is relative, has ".." only at its beginning, and not more of them than its own
 *   folder is deep. ".." behind a name is refused, since that name may be a link to elsewhere.
 *   Each link therefore stays inside by itself, and a path through any number of them does too;
 * - a hard link names a file that came before.
 * Folders that paths imply are in the tree and count. The hash is keyed at random: an archive
 * cannot choose names that collide. Not thread-safe. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "common/archive/unpack.h"

struct tree_node;
struct tree {
    struct tree_node *nodes;
    uint32_t n, max;
    size_t path_bytes_max;
};

void tree_init(struct tree *t, uint32_t entries_max, size_t path_bytes_max);
void tree_done(struct tree *t);

/* Write the clean form of raw (leading "./", empty and "." parts, slashes at the end dropped) to
 * out[path_bytes_max + 1]; its length, 0 for the work folder itself. Names the rule: -ERR_INVALID
 * absolute, ".."; -ERR_TOO_LARGE. */
MUST_CHECK int tree_clean(const struct tree *t, const char *raw, char *out, struct err *err);
/* Note the entry. -ERR_INVALID names the rule; -ERR_TOO_LARGE: too many. */
MUST_CHECK int tree_add(struct tree *t, const struct unpack_entry *e, struct err *err);
