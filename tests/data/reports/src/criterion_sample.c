#include <criterion/criterion.h>
#include <stdlib.h>
Test(sample, passes)
{
}
Test(sample, fails)
{
    cr_assert_eq(1 + 1, 3, "one & one");
}
Test(sample, crashes)
{
    abort();
}
Test(sample, skipped)
{
    cr_skip_test("not today");
}
