#include "guest/path.h"

#include <string.h>

bool path_is_below(const char *path)
{
    for (;;) {
        size_t n = strcspn(path, "/");
        if (n == 0 || n > PATH_PART_MAX || (n == 1 && path[0] == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.')) {
            return false;
        }
        if (path[n] == '\0') {
            return true;
        }
        path += n + 1;
    }
}

bool path_link_is_below(const char *path, const char *target, size_t n)
{
    size_t depth = 0;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        depth++;
    }
    if (n == 0 || target[0] == '/' || memchr(target, '\0', n)) {
        return false;
    }
    bool named = false; /* a part that is neither "." nor ".." was there */
    for (const char *part = target, *end = target + n; part <= end;) {
        const char *slash = memchr(part, '/', (size_t)(end - part));
        size_t len = (size_t)((slash ? slash : end) - part);
        if (len == 2 && memcmp(part, "..", 2) == 0) {
            if (named || depth == 0) {
                return false;
            }
            depth--;
        } else if (len > 0 && !(len == 1 && part[0] == '.')) {
            named = true;
        }
        part += len + 1;
    }
    return true;
}
