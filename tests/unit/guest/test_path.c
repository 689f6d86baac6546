#include <criterion/criterion.h>
#include <string.h>

#include "guest/path.h"

Test(path, accepts_relative_paths)
{
    static const char *const good[] = { "a",          "a/b", "a.b/..c",  "...",
                                        "a b/\xff\n", "-x",  ".hidden/f" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_expect(path_is_below(good[i]), "%s", good[i]);
    }
}

Test(path, refuses_what_leads_out_or_means_nothing)
{
    static const char *const bad[] = { "",    "/",   "/a",   "a/",    "a//b",   ".",      "..",
                                       "./a", "../", "a/..", "a/./b", "a/../b", "a/b/..", "//" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_not(path_is_below(bad[i]), "%s", bad[i]);
    }
}

Test(path, part_length_at_the_maximum_and_one_above)
{
    char path[PATH_PART_MAX + 8] = "d/";
    memset(path + 2, 'x', PATH_PART_MAX);
    cr_expect(path_is_below(path));
    path[2 + PATH_PART_MAX] = 'x';
    cr_expect_not(path_is_below(path));
}

static bool below(const char *path, const char *target)
{
    return path_link_is_below(path, target, strlen(target));
}

Test(path, links_that_stay)
{
    cr_expect(below("l", "x"));
    cr_expect(below("l", "x/y/"));
    cr_expect(below("l", "."));
    cr_expect(below("a/l", ".."));
    cr_expect(below("a/b/l", "../../x"));
    cr_expect(below("a/b/l", "./.././../x"));
    cr_expect(below("l", "..."));
}

Test(path, links_that_leave)
{
    cr_expect_not(below("l", ""));
    cr_expect_not(below("l", "/"));
    cr_expect_not(below("l", ".."));
    cr_expect_not(below("a/l", "../.."));
    cr_expect_not(below("a/b/l", "x/../y"), "x may be a link to elsewhere");
    cr_expect_not(below("a/b/l", "../x/.."));
    cr_expect_not(path_link_is_below("l", "a\0b", 3));
}
