#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
static void passes(void **state)
{
    (void)state;
}
static void fails(void **state)
{
    (void)state;
    assert_int_equal(1, 2);
}
static void skipped(void **state)
{
    (void)state;
    skip();
}
int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(passes), cmocka_unit_test(fails),
                                        cmocka_unit_test(skipped) };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
