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
