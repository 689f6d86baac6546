#include <criterion/criterion.h>
#include <stdio.h>
#include <stdint.h>

#include "cli/money.h"

static void money(int64_t nano, const char *want)
{
    char text[MONEY_TEXT_MAX];
    money_format(nano, text);
    cr_assert_str_eq(text, want, "%lld: %s, wanted %s", (long long)nano, text, want);
}

Test(money, keeps_every_nano_and_cuts_zeros)
{
    money(0, "$0.00");
    money(1, "$0.000000001");
    money(10, "$0.00000001");
    money(18500, "$0.0000185");
    money(1500000000, "$1.50");
    money(1000000000, "$1.00");
    money(1230000000, "$1.23");
    money(-1, "-$0.000000001");
    money(INT64_MAX, "$9223372036.854775807");
    money(INT64_MIN, "-$9223372036.854775808");
}

static void duration(int64_t ms, const char *want)
{
    char text[MONEY_TEXT_MAX];
    duration_format(ms, text);
    cr_assert_str_eq(text, want, "%lld: %s, wanted %s", (long long)ms, text, want);
}

Test(money, durations)
{
    duration(-5, "0 ms");
    duration(0, "0 ms");
    duration(999, "999 ms");
    duration(1000, "1.00 s");
    duration(9999, "9.99 s");
    duration(10000, "10.0 s");
    duration(59999, "59.9 s");
    duration(60000, "1 min 00 s");
    duration(185000, "3 min 05 s");
    duration(3600000, "1 h 00 min");
}

Test(money, microseconds)
{
    char text[MONEY_TEXT_MAX];
    duration_us_format(850, text);
    cr_assert_str_eq(text, "850 us");
    duration_us_format(12345, text);
    cr_assert_str_eq(text, "12.3 ms");
    duration_us_format(1250000, text);
    cr_assert_str_eq(text, "1.25 s");
}
