/* Artifact globs: what matches, what is refused, and that no pattern takes long. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/glob.h"

static bool match(const char *pattern, const char *path)
{
    struct err err = { 0 };
    cr_assert_eq(glob_check(pattern, strlen(pattern), &err), 0, "%s: %s", pattern, err.text);
    return glob_match(pattern, strlen(pattern), path, strlen(path));
}

Test(glob, what_matches)
{
    static const struct {
        const char *pattern, *path;
        bool want;
    } rows[] = {
        { "report.xml", "report.xml", true },
        { "report.xml", "reportxxml", false },
        { "report.xml", "a/report.xml", false },
        { "report.xml", "report.xml/a", false },
        { "*.log", "a.log", true },
        { "*.log", ".log", true },
        { "*.log", "a/b.log", false },
        { "*.log", "a.log.gz", false },
        { "*", ".hidden", true },
        { "*", "a/b", false },
        { "**", "a", true },
        { "**", "a/b/.c", true },
        { "out/**", "out", false },
        { "out/**", "out/a", true },
        { "out/**", "out/a/b/c", true },
        { "out/**", "outer/a", false },
        { "out/", "out", false },
        { "out/", "out/a", true },
        { "out/", "out/a/b", true },
        { "*/", "a/b/c", true },
        { "*/", "a", false },
        { "**/*.xml", "a.xml", true },
        { "**/*.xml", "x/y/a.xml", true },
        { "**/*.xml", "x/y/a.xml/b", false },
        { "a/**/b", "a/b", true },
        { "a/**/b", "a/x/b", true },
        { "a/**/b", "a/x/b/y/b", true },
        { "a/**/b", "a/x/b/y", false },
        { "a/**/b/**/c", "a/b/x/b/c", true },
        { "**/a/**/a", "a/a", true },
        { "**/a/**/a", "a", false },
        { "**/x/**", "x", false },
        { "**/x/**", "a/x/b", true },
        { "**/**", "a", true },
        { "**/**", "a/b", true },
        { "**/**/a", "a", true },
        { "**/out/", "a/b/out/c", true },
        { "**/out/", "out/c", true },
        { "**/out/", "a/out", false },
        { "[abc].c", "b.c", true },
        { "[abc].c", "d.c", false },
        { "[!abc].c", "d.c", true },
        { "[^abc].c", "a.c", false },
        { "[a-c0-9]x", "7x", true },
        { "[a-c0-9]x", "dx", false },
        { "[]a]", "]", true },
        { "[!]a]", "]", false },
        { "[!]a]", "b", true },
        { "[a-]", "-", true },
        { "[\\]a]", "]", true },
        { "[*]", "*", true },
        { "[*]", "a", false },
        { "?", "a", true },
        { "?", "", false },
        { "?", "\xc3\xa4", false }, /* a letter of two bytes */
        { "??", "\xc3\xa4", true },
        { "*\xe4*", "x\xe4y", true }, /* latin-1 */
        { "[\xe0-\xff]", "\xe4", true },
        { "a?b", "a/b", false },
        { "a[!x]b", "a/b", false },
        { "\\*", "*", true },
        { "\\*", "a", false },
        { "\\a", "a", true },
        { "a*b*c", "abbbxc", true },
        { "a*b*c", "abbbxcd", false },
        { "*a", "aaab", false },
        { "*.tar.*", "x.tar.tar.gz", true },
        { "A", "a", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_eq(match(rows[i].pattern, rows[i].path), rows[i].want, "%s on %s",
                     rows[i].pattern, rows[i].path);
    }
}

Test(glob, what_is_refused)
{
    static const struct {
        const char *pattern, *rule;
    } rows[] = {
        { "", "empty" },           { "/a", "absolute" },      { "..", "\"..\"" },
        { "a/../b", "\"..\"" },    { "a/..", "\"..\"" },      { "./a", "\"..\"" },
        { "a//b", "empty parts" }, { "a//", "empty parts" },  { "//", "absolute" },
        { "a**", "whole part" },   { "**a/b", "whole part" }, { "a/***", "whole part" },
        { "[abc", "\"]\"" },       { "[a/b]", "\"]\"" },      { "[]", "\"]\"" },
        { "a\\", "\"\\\"" },       { "a\nb", "control" },     { "a/b\x7f", "control" },
        { "[a\\", "\"]\"" },       { "../**", "\"..\"" },     { "./", "\"..\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = { 0 };
        int rc = glob_check(rows[i].pattern, strlen(rows[i].pattern), &err);
        cr_expect_eq(rc, -ERR_INVALID, "%s: %d", rows[i].pattern, rc);
        cr_expect(strstr(err.text, rows[i].rule), "%s: %s", rows[i].pattern, err.text);
    }
    struct err err = { 0 };
    cr_expect_eq(glob_check("a\0b", 3, &err), -ERR_INVALID);
    char longest[GLOB_BYTES_MAX + 1];
    memset(longest, 'a', sizeof longest);
    cr_expect_eq(glob_check(longest, GLOB_BYTES_MAX, &err), 0);
    cr_expect_eq(glob_check(longest, GLOB_BYTES_MAX + 1, &err), -ERR_TOO_LARGE);
    cr_expect(!glob_match("**", 2, "", 0));
}

Test(glob, lists)
{
    struct err err = { 0 };
    cr_expect_eq(globs_check("a\0b/**", 7, &err), 2);
    cr_expect_eq(globs_check("a", 1, &err), -ERR_INVALID);
    cr_expect_eq(globs_check("", 0, &err), -ERR_INVALID);
    cr_expect_eq(globs_check("a\0\0", 3, &err), -ERR_INVALID);
    cr_expect_eq(globs_check("a\0../b", 7, &err), -ERR_INVALID);
    cr_expect(strstr(err.text, "glob 2: "), "%s", err.text);
    char many[2 * (GLOBS_MAX + 1)];
    for (size_t i = 0; i < sizeof many; i += 2) {
        many[i] = 'a';
        many[i + 1] = '\0';
    }
    cr_expect_eq(globs_check(many, 2 * GLOBS_MAX, &err), (int)GLOBS_MAX);
    cr_expect_eq(globs_check(many, sizeof many, &err), -ERR_TOO_LARGE);
    char *large = calloc(1, GLOBS_BYTES_MAX + 1);
    memset(large, 'x', GLOBS_BYTES_MAX);
    cr_expect_eq(globs_check(large, GLOBS_BYTES_MAX + 1, &err), -ERR_TOO_LARGE);
    free(large);
}

Test(glob, folders_that_need_no_walk)
{
    static const struct {
        const char *pattern, *dir;
        bool want;
    } rows[] = {
        { "out/**", "out", true },    { "out/**", "other", false }, { "out/**", "out/a/b", true },
        { "report.xml", "a", false }, { "*.log", "a.log", false },  { "**/*.xml", "a/b", true },
        { "a/*/c", "a/x", true },     { "a/*/c", "a/x/y", false },  { "a/b", "a", true },
        { "a/b", "a/b", false },      { "out/", "out", true },      { "out/", "out/a", true },
        { "out/", "outer", false },   { "a/**/b", "a/x/y", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_eq(glob_may_match_below(rows[i].pattern, strlen(rows[i].pattern), rows[i].dir,
                                          strlen(rows[i].dir)),
                     rows[i].want, "%s below %s", rows[i].pattern, rows[i].dir);
    }
}

/* With matching that tries all ways these would take longer than the universe has. */
Test(glob, pathological_patterns_end, .timeout = 20)
{
    static char path[GLOB_PATH_BYTES_MAX];
    memset(path, 'a', sizeof path);
    char pattern[GLOB_BYTES_MAX];
    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = i % 2 ? 'a' : '*';
    }
    pattern[sizeof pattern - 1] = 'b';
    struct err err = { 0 };
    cr_assert_eq(glob_check(pattern, sizeof pattern, &err), 0, "%s", err.text);
    cr_expect(!glob_match(pattern, sizeof pattern, path, sizeof path));
    cr_expect(!match("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));

    for (size_t i = 1; i < sizeof path; i += 2) {
        path[i] = '/';
    }
    static char stars[] = "**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/b";
    cr_expect(!match(stars, "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a"));
    cr_expect(!glob_match(stars, strlen(stars), path, sizeof path - 1));
    path[sizeof path - 2] = 'b';
    cr_expect(glob_match(stars, strlen(stars), path, sizeof path - 1));
    cr_expect(!glob_match("**", 2, path, GLOB_PATH_BYTES_MAX + 1));
}

/* Against the plain definition, for all short patterns and paths of a small alphabet. */
static bool slow_part(const char *p, size_t pn, const char *t, size_t tn)
{
    if (pn == 0) {
        return tn == 0;
    }
    if (p[0] == '*') {
        return slow_part(p + 1, pn - 1, t, tn) || (tn > 0 && slow_part(p, pn, t + 1, tn - 1));
    }
    return tn > 0 && p[0] == t[0] && slow_part(p + 1, pn - 1, t + 1, tn - 1);
}

static bool slow(const char *p, const char *t)
{
    size_t pn = strcspn(p, "/"), tn = strcspn(t, "/");
    if (pn == 2 && memcmp(p, "**", 2) == 0) {
        if (p[2] == '\0') {
            return t[0] != '\0';
        }
        return slow(p + 3, t) || (t[tn] == '/' && slow(p, t + tn + 1));
    }
    if (!slow_part(p, pn, t, tn)) {
        return false;
    }
    if (p[pn] == '\0' || t[tn] == '\0') {
        return p[pn] == t[tn];
    }
    return slow(p + pn + 1, t + tn + 1);
}

static size_t words(char (*out)[8], const char *alphabet, int len)
{
    size_t n = 0, base = strlen(alphabet);
    for (int l = 1; l <= len; l++) {
        size_t count = 1;
        for (int i = 0; i < l; i++) {
            count *= base;
        }
        for (size_t k = 0; k < count; k++, n++) {
            size_t rest = k;
            for (int i = 0; i < l; i++, rest /= base) {
                out[n][i] = alphabet[rest % base];
            }
            out[n][l] = '\0';
        }
    }
    return n;
}

Test(glob, equal_to_the_definition, .timeout = 120)
{
    static char patterns[6000][8], paths[500][8];
    size_t pn = words(patterns, "ab*/", 6), tn = words(paths, "ab/", 5), compared = 0;
    for (size_t i = 0; i < pn; i++) {
        size_t n = strlen(patterns[i]);
        if (patterns[i][n - 1] == '/' || glob_check(patterns[i], n, NULL) < 0) {
            continue;
        }
        for (size_t j = 0; j < tn; j++) {
            const char *t = paths[j];
            size_t m = strlen(t);
            if (t[0] == '/' || t[m - 1] == '/' || strstr(t, "//")) {
                continue;
            }
            bool want = slow(patterns[i], t);
            cr_assert_eq(glob_match(patterns[i], n, t, m), want, "%s on %s: want %d", patterns[i],
                         t, want);
            const char *slash = strrchr(t, '/');
            if (want && slash) {
                cr_assert(glob_may_match_below(patterns[i], n, t, (size_t)(slash - t)));
            }
            compared++;
        }
    }
    cr_assert_gt(compared, 50000);
}
