#include "common/base/path.h"

#include <string.h>

bool path_clean(const char *p, size_t n)
{
    if (n == 0 || memchr(p, '\0', n)) {
        return false;
    }
    for (size_t at = 0; at <= n;) {
        const char *slash = memchr(p + at, '/', n - at);
        size_t len = slash ? (size_t)(slash - (p + at)) : n - at;
        if (len == 0 || len > PATH_NAME_BYTES_MAX || (len == 1 && p[at] == '.') ||
            (len == 2 && p[at] == '.' && p[at + 1] == '.')) {
            return false;
        }
        at += len + 1;
    }
    return true;
}

/* NUL does not occur in a path, so it is free to stand for the slash. */
static int rank(char c)
{
    return c == '/' ? 0 : (unsigned char)c;
}

int path_order(const char *a, size_t an, const char *b, size_t bn)
{
    size_t n = an < bn ? an : bn;
    for (size_t i = 0; i < n; i++) {
        if (a[i] != b[i]) {
            return rank(a[i]) - rank(b[i]);
        }
    }
    return an < bn ? -1 : an > bn;
}

bool path_below(const char *p, size_t n, const char *dir, size_t dir_n)
{
    return n > dir_n && p[dir_n] == '/' && memcmp(p, dir, dir_n) == 0;
}
