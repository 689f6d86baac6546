#include <check.h>
#include <stdlib.h>
START_TEST(passes)
{
}
END_TEST
START_TEST(fails)
{
    ck_assert_int_eq(1 + 1, 3);
}
END_TEST
START_TEST(crashes)
{
    abort();
}
END_TEST
int main(void)
{
    Suite *s = suite_create("sample");
    TCase *c = tcase_create("core");
    tcase_add_test(c, passes);
    tcase_add_test(c, fails);
    tcase_add_test(c, crashes);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
