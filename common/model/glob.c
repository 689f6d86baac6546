#include "common/model/glob.h"

#include <assert.h>
#include <string.h>

/* One part between slashes; n includes no slash. */
struct part {
    const char *s;
    size_t n;
};

static struct part part_at(const char *s, size_t n, size_t at)
{
    const char *slash = memchr(s + at, '/', n - at);
    return (struct part){ s + at, slash ? (size_t)(slash - (s + at)) : n - at };
}

/* Where the part behind this one begins; past n when it was the last. */
static size_t part_next(const char *s, struct part p)
{
    return (size_t)(p.s - s) + p.n + 1;
}

static bool is_globstar(struct part p)
{
    return p.n == 2 && p.s[0] == '*' && p.s[1] == '*';
}

/* Bytes of the bracket expression at p[0] == '[', its brackets included; 0: it does not end. */
static size_t bracket_len(const char *p, size_t n)
{
    size_t i = 1;
    if (i < n && (p[i] == '!' || p[i] == '^')) {
        i++;
    }
    for (size_t first = i; i < n; i++) {
        if (p[i] == ']' && i > first) {
            return i + 1;
        }
        if (p[i] == '\\' && ++i >= n) {
            return 0;
        }
    }
    return 0;
}

static bool bracket_has(const char *p, size_t len, unsigned char c)
{
    size_t i = 1, end = len - 1;
    bool negated = p[i] == '!' || p[i] == '^';
    bool found = false;
    i += negated;
    while (i < end) {
        i += p[i] == '\\' && i + 1 < end;
        unsigned char low = (unsigned char)p[i++], high = low;
        if (i + 1 < end && p[i] == '-') {
            i++;
            i += p[i] == '\\' && i + 1 < end;
            high = (unsigned char)p[i++];
        }
        found |= low <= c && c <= high;
    }
    return found != negated;
}

/* Length of the element of the pattern that matches one byte c, 0: it does not match. */
static size_t match_byte(const char *p, size_t n, unsigned char c)
{
    if (p[0] == '?') {
        return 1;
    }
    if (p[0] == '[') {
        size_t len = bracket_len(p, n);
        return len > 0 && bracket_has(p, len, c) ? len : 0;
    }
    if (p[0] == '\\' && n > 1) {
        return (unsigned char)p[1] == c ? 2 : 0;
    }
    return (unsigned char)p[0] == c ? 1 : 0;
}

static bool match_part(struct part p, struct part t)
{
    size_t i = 0, j = 0, star = p.n, star_j = 0;
    bool had_star = false;
    while (j < t.n) {
        size_t len;
        if (i < p.n && p.s[i] == '*') {
            had_star = true;
            star = ++i;
            star_j = j;
        } else if (i < p.n && (len = match_byte(p.s + i, p.n - i, (unsigned char)t.s[j])) > 0) {
            i += len;
            j++;
        } else if (had_star) {
            i = star;
            j = ++star_j;
        } else {
            return false;
        }
    }
    while (i < p.n && p.s[i] == '*') {
        i++;
    }
    return i == p.n;
}

bool glob_match(const char *pattern, size_t pattern_n, const char *path, size_t path_n)
{
    size_t i = 0, j = 0, star = 0, star_j = 0;
    bool had_star = false;
    if (path_n == 0 || path_n > GLOB_PATH_BYTES_MAX || pattern_n == 0) {
        return false;
    }
    bool below = pattern[pattern_n - 1] == '/';
    pattern_n -= below;
    while (j < path_n) {
        struct part t = part_at(path, path_n, j);
        struct part p = i < pattern_n ? part_at(pattern, pattern_n, i) : (struct part){ 0 };
        if (i < pattern_n && is_globstar(p)) {
            had_star = true;
            star = i = part_next(pattern, p);
            if (i >= pattern_n) {
                return true; /* at the end: everything that is left, and something is */
            }
            star_j = j;
        } else if (i < pattern_n && match_part(p, t)) {
            i = part_next(pattern, p);
            j = part_next(path, t);
        } else if (below && i >= pattern_n) {
            return true;
        } else if (had_star) {
            i = star;
            star_j = part_next(path, part_at(path, path_n, star_j));
            j = star_j;
        } else {
            return false;
        }
    }
    return i >= pattern_n && !below;
}

bool glob_may_match_below(const char *pattern, size_t pattern_n, const char *dir, size_t dir_n)
{
    size_t i = 0, j = 0;
    while (j < dir_n) {
        if (i >= pattern_n) {
            return pattern_n > 0 && pattern[pattern_n - 1] == '/';
        }
        struct part t = part_at(dir, dir_n, j);
        struct part p = part_at(pattern, pattern_n, i);
        if (is_globstar(p)) {
            return true;
        }
        if (!match_part(p, t)) {
            return false;
        }
        i = part_next(pattern, p);
        j = part_next(dir, t);
    }
    return i <= pattern_n && (i < pattern_n || pattern[pattern_n - 1] == '/');
}

static int check_part(struct part p, struct err *err)
{
    static const char form[] = "must be relative, without \"..\", \".\" or empty parts";
    if (p.n == 0 || (p.s[0] == '.' && (p.n == 1 || (p.n == 2 && p.s[1] == '.')))) {
        return err_set(err, ERR_INVALID, "%s", form);
    }
    if (is_globstar(p)) {
        return 0;
    }
    for (size_t i = 0; i < p.n; i++) {
        if (p.s[i] == '*' && i + 1 < p.n && p.s[i + 1] == '*') {
            return err_set(err, ERR_INVALID, "\"**\" must be a whole part between slashes");
        }
        if (p.s[i] == '[') {
            size_t len = bracket_len(p.s + i, p.n - i);
            if (len == 0) {
                return err_set(err, ERR_INVALID, "\"[\" without its \"]\" in the same part");
            }
            i += len - 1;
        } else if (p.s[i] == '\\' && ++i >= p.n) {
            return err_set(err, ERR_INVALID, "\"\\\" with nothing behind it");
        }
    }
    return 0;
}

int glob_check(const char *pattern, size_t n, struct err *err)
{
    if (n == 0) {
        return err_set(err, ERR_INVALID, "must not be empty");
    }
    if (n > GLOB_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "must be at most %u bytes", GLOB_BYTES_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)pattern[i] < 0x20 || pattern[i] == 0x7f) {
            return err_set(err, ERR_INVALID, "must not hold control characters");
        }
    }
    if (pattern[0] == '/') {
        return err_set(err, ERR_INVALID, "must be relative to the work folder, not absolute");
    }
    size_t len = n - (pattern[n - 1] == '/');
    for (size_t i = 0; i < len;) {
        struct part p = part_at(pattern, len, i);
        int rc = check_part(p, err);
        if (rc < 0) {
            return rc;
        }
        i = part_next(pattern, p);
        if (i == len) {
            return check_part((struct part){ pattern, 0 }, err); /* "a//" */
        }
    }
    return 0;
}

int globs_check(const char *list, size_t n, struct err *err)
{
    int count = 0;
    if (n > GLOBS_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "globs: at most %u bytes in all", GLOBS_BYTES_MAX);
    }
    if (n == 0 || list[n - 1] != '\0') {
        return err_set(err, ERR_INVALID, n ? "globs: the last one is not ended" : "globs: none");
    }
    for (size_t at = 0; at < n; at += strlen(list + at) + 1) {
        if (++count > (int)GLOBS_MAX) {
            return err_set(err, ERR_TOO_LARGE, "globs: at most %u", GLOBS_MAX);
        }
        int rc = glob_check(list + at, strlen(list + at), err);
        if (rc < 0) {
            (void)err_prefix(err, "glob %d", count);
            return rc;
        }
    }
    return count;
}
