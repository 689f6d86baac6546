#include <criterion/criterion.h>
#include <string.h>

#include "cli/safe_text.h"

static void shown(const char *data, size_t len, const char *want)
{
    char out[256];
    safe_text(out, sizeof out, data, len);
    cr_assert_str_eq(out, want);
}

Test(safe_text, text_stays_and_the_rest_is_escaped)
{
    shown("", 0, "");
    shown("a b/c.txt", 9, "a b/c.txt");
    shown("\xe2\x82\xac", 3, "\xe2\x82\xac");
    shown("a\nb\x1b[2J\x7f", 8, "a\\x0ab\\x1b[2J\\x7f");
    shown("\xff.log", 5, "\\xff.log");
    shown("\xc2\x9b"
          "1m",
          4, "\\xc2\\x9b1m");
    shown("a\0b", 3, "a\\x00b");
}

Test(safe_text, cut_at_a_whole_character)
{
    char out[8];
    safe_text(out, sizeof out, "ab\n\n", 4);
    cr_assert_str_eq(out, "ab\\x0a");
    safe_text(out, 1, "abc", 3);
    cr_assert_str_eq(out, "");
}
