#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/compare.h"

struct row {
    enum compare_mode mode;
    const char *want, *got;
    bool same;
};

static void check_rows(const struct row *rows, size_t n, double abs, double rel)
{
    for (size_t i = 0; i < n; i++) {
        char why[COMPARE_WHY_MAX] = "";
        bool same = compare_output(
            rows[i].mode, (struct compare_text){ rows[i].want, strlen(rows[i].want) },
            (struct compare_text){ rows[i].got, strlen(rows[i].got) }, abs, rel, why);
        cr_assert_eq(same, rows[i].same, "row %zu: \"%s\" against \"%s\"", i, rows[i].want,
                     rows[i].got);
        cr_assert_eq(why[0] == 0, same, "row %zu: a reason when and only when it differs", i);
    }
}
#define CHECK(rows, abs, rel) check_rows(rows, sizeof rows / sizeof rows[0], abs, rel)

Test(compare, exact)
{
    const struct row rows[] = {
        { COMPARE_EXACT, "", "", true },
        { COMPARE_EXACT, "a\n", "a\n", true },
        { COMPARE_EXACT, "a\n", "a", false },
        { COMPARE_EXACT, "a", "a\n", false },
        { COMPARE_EXACT, "", "x", false },
        { COMPARE_EXACT, "1 2\n3\n", "1 2\r\n3\r\n", false }, /* B041 */
    };
    CHECK(rows, 0, 0);
}

Test(compare, trim)
{
    const struct row rows[] = {
        { COMPARE_TRIM, "1 2\n3\n", "1 2\r\n3\r\n", true }, /* B041 */
        { COMPARE_TRIM, "1 2 3\n", "\n1 2 3\n", false },    /* B043 */
        { COMPARE_TRIM, "1 2 3\n", "1\n2\n3\n", false },    /* B043 */
        { COMPARE_TRIM, "a\nb\n", "a  \nb\t\n\n\n", true },
        { COMPARE_TRIM, "a\nb", "a\nb\n", true },
        { COMPARE_TRIM, " a\n", "a\n", false },
        { COMPARE_TRIM, "a\n\nb\n", "a\nb\n", false },
        { COMPARE_TRIM, "", "\n \n", true },
        { COMPARE_TRIM, "a\n", "", false },
        { COMPARE_TRIM, "a\nb\n", "a\n", false },
        { COMPARE_TRIM, "a b\n", "a  b\n", false },
    };
    CHECK(rows, 0, 0);
}

Test(compare, tokens)
{
    const struct row rows[] = {
        { COMPARE_TOKENS, "1 2 3\n", "\n1 2 3\n", true }, /* B043 */
        { COMPARE_TOKENS, "1 2 3\n", "1\n2\n3\n", true }, /* B043 */
        { COMPARE_TOKENS, "1 2\n3\n", "1 2\r\n3\r\n", true },
        { COMPARE_TOKENS, "1 2", "1 2 3", false },
        { COMPARE_TOKENS, "1 2 3", "1 2", false },
        { COMPARE_TOKENS, "12", "1 2", false },
        { COMPARE_TOKENS, "", " \n", true },
        { COMPARE_TOKENS, "1.0", "1", false },
    };
    CHECK(rows, 0, 0);
}

Test(compare, unordered_lines)
{
    const struct row rows[] = {
        { COMPARE_UNORDERED, "", "", true },
        { COMPARE_UNORDERED, "a\nb\n", "b\na", true },
        { COMPARE_UNORDERED, "a\nb\n", "b  \r\na\n\n\n", true },
        { COMPARE_UNORDERED, "a\nb\nb\n", "b\na\nb\n", true },
        { COMPARE_UNORDERED, "a\nb\nb\n", "b\na\na\n", false },
        { COMPARE_UNORDERED, "a\nb\n", "a\nb\nb\n", false },
        { COMPARE_UNORDERED, "a\nb\n", "a\n", false },
        { COMPARE_UNORDERED, "ab\n", "a\nb\n", false },
        { COMPARE_UNORDERED, "a\n\nb\n", "\na\nb\n", true },
        { COMPARE_UNORDERED, "a b\n", "b a\n", false },
    };
    CHECK(rows, 0, 0);
}

Test(compare, floats)
{
    const struct row rows[] = {
        { COMPARE_FLOAT, "1.0 x", "1.0000001 x", true },
        { COMPARE_FLOAT, "1.0", "1.1", false },
        { COMPARE_FLOAT, "1.0 x", "1.0 y", false },
        { COMPARE_FLOAT, "nan", "NaN", true },
        { COMPARE_FLOAT, "1", "nan", false },
        { COMPARE_FLOAT, "nan", "1", false },
        { COMPARE_FLOAT, "inf", "Infinity", true },
        { COMPARE_FLOAT, "inf", "-inf", false },
        { COMPARE_FLOAT, "inf", "1e308", false },
        { COMPARE_FLOAT, "1e5", "100000", true },
        { COMPARE_FLOAT, "16", "0x10", false },
        { COMPARE_FLOAT, "0", "-0", true },
        { COMPARE_FLOAT, "1 2", "1", false },
        { COMPARE_FLOAT, "1000000", "1000000.5", true },
        { COMPARE_FLOAT, "0", "0.0000009", true },
        { COMPARE_FLOAT, "0", "0.0000011", false },
        { COMPARE_FLOAT, "1e400", "1e400", true },
        { COMPARE_FLOAT, "1,5", "1.5", false },
    };
    CHECK(rows, 1e-6, 1e-6);
}

Test(compare, bytes_with_nul)
{
    const char a[] = "a\0b", b[] = "a\0c";
    for (int mode = COMPARE_EXACT; mode <= COMPARE_FLOAT; mode++) {
        cr_assert(compare_output((enum compare_mode)mode, (struct compare_text){ a, 3 },
                                 (struct compare_text){ a, 3 }, 0, 0, NULL));
        cr_assert(!compare_output((enum compare_mode)mode, (struct compare_text){ a, 3 },
                                  (struct compare_text){ b, 3 }, 0, 0, NULL));
    }
}

/* A megabyte without white space, and one of white space only, take one pass. */
Test(compare, large, .timeout = 20)
{
    size_t n = 8u << 20;
    char *spaces = malloc(n), *word = malloc(n);
    cr_assert(spaces && word);
    memset(spaces, ' ', n);
    memset(word, '7', n);
    for (int mode = COMPARE_TRIM; mode <= COMPARE_FLOAT; mode++) {
        cr_assert(compare_output((enum compare_mode)mode, (struct compare_text){ NULL, 0 },
                                 (struct compare_text){ spaces, n }, 0, 0, NULL));
        cr_assert(compare_output((enum compare_mode)mode, (struct compare_text){ word, n },
                                 (struct compare_text){ word, n }, 0, 0, NULL));
    }
    free(spaces);
    free(word);
}
