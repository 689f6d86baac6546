/* Patterns of a client against paths of a guest. Input: patterns, each ended by NUL, an empty one,
 * then a path. Matching ends (no pattern makes it exponential) and agrees with what a walk asks:
 * what matches may lie below each of its folders. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/model/glob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct err err;
    size_t list = 0;
    while (list + 1 < size && !(text[list] == 0 && text[list + 1] == 0)) {
        list++;
    }
    if (list + 2 > size) {
        return 0;
    }
    size_t list_n = list + 1;
    const char *path = text + list + 2;
    size_t path_n = size - list - 2;
    int n = globs_check(text, list_n, &err);
    if (n < 0) {
        return 0;
    }
    assert(n >= 1 && n <= (int)GLOBS_MAX);
    for (size_t at = 0; at < list_n;) {
        size_t len = strlen(text + at);
        assert(glob_check(text + at, len, &err) == 0);
        if (path_n > 0 && glob_match(text + at, len, path, path_n)) {
            for (size_t i = 1; i + 1 < path_n; i++) {
                assert(path[i] != '/' || path[i - 1] == '/' || path[0] == '/' ||
                       glob_may_match_below(text + at, len, path, i));
            }
        }
        at += len + 1;
    }
    return 0;
}
