/* Money: exact against a slow reference, monotone, never negative, rounded half-even once. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "common/model/usage.h"

static const struct rate_card by_second = { .vcpu_second_nanousd = 14000,
                                            .gib_second_nanousd = 4500,
                                            .rounding_ms = 1000,
                                            .minimum_ms = 1000 };

static uint64_t seed = 88172645463325252u;

static uint64_t next(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* Schoolbook: the product as decimal digits, divided digit by digit, rounded by comparing twice the
 * rest. */
static int64_t reference(int64_t price, int64_t amount, int64_t per, int64_t ms)
{
    uint8_t digits[64] = { 0 }; /* least first */
    int64_t factors[3] = { amount, ms, 1 };
    for (int i = 0; price; i++, price /= 10) {
        digits[i] = (uint8_t)(price % 10);
    }
    for (int f = 0; f < 2; f++) {
        uint64_t carry = 0;
        for (int i = 0; i < 64; i++) {
            uint64_t v = (uint64_t)digits[i] * (uint64_t)factors[f] + carry;
            digits[i] = (uint8_t)(v % 10);
            carry = v / 10;
        }
        cr_assert_eq(carry, 0);
    }
    uint64_t divisor = (uint64_t)per * 1000, rest = 0, out = 0;
    for (int i = 63; i >= 0; i--) {
        rest = rest * 10 + digits[i];
        out = out * 10 + rest / divisor;
        rest %= divisor;
    }
    if (2 * rest > divisor || (2 * rest == divisor && out % 2)) {
        out++;
    }
    return (int64_t)out;
}

Test(usage, equals_the_reference)
{
    for (int i = 0; i < 200000; i++) {
        int64_t price = (int64_t)next(i % 2 ? 1000000000001u : 5000);
        int64_t amount = (int64_t)next(i % 3 ? 65537 : 5);
        int64_t per = i % 5 == 0 ? 1 : 1024;
        int64_t ms = (int64_t)next(i % 7 ? 14400001u : 50);
        if (per == 1) {
            amount %= 65;
        }
        int64_t cost = usage_cost(price, amount, per, ms);
        cr_assert_eq(cost, reference(price, amount, per, ms), "%ld x %ld / %ld x %ld", price,
                     amount, per, ms);
        cr_assert_geq(cost, 0);
        cr_assert_geq(usage_cost(price, amount, per, ms + 1), cost);
        cr_assert_geq(usage_cost(price, amount + 1, per, ms), cost);
        cr_assert_geq(usage_cost(price + 1, amount, per, ms), cost);
    }
}

Test(usage, half_even)
{
    cr_assert_eq(usage_cost(1, 1, 1, 500), 0); /* 0.5 */
    cr_assert_eq(usage_cost(1, 1, 1, 501), 1);
    cr_assert_eq(usage_cost(1, 1, 1, 1500), 2); /* 1.5 */
    cr_assert_eq(usage_cost(1, 1, 1, 2500), 2); /* 2.5 */
    cr_assert_eq(usage_cost(1, 1, 1, 2501), 3);
    cr_assert_eq(usage_cost(1, 512, 1024, 1000), 0);
    cr_assert_eq(usage_cost(3, 512, 1024, 1000), 2);
    cr_assert_eq(usage_cost(14000, 2, 1, 1000), 28000);
    cr_assert_eq(usage_cost(4500, 256, 1024, 1000), 1125);
    /* the dearest there can be still fits: largest price, 64 GiB, four hours */
    cr_assert_eq(usage_cost(1000000000000, 65536, 1024, 14400000), 921600000000000000);
}

Test(usage, charged_time)
{
    cr_assert_eq(usage_charged_ms(&by_second, 0), 1000);
    cr_assert_eq(usage_charged_ms(&by_second, 1), 1000);
    cr_assert_eq(usage_charged_ms(&by_second, 1000), 1000);
    cr_assert_eq(usage_charged_ms(&by_second, 1001), 2000);
    struct rate_card exact = by_second;
    exact.rounding_ms = 1;
    exact.minimum_ms = 0;
    cr_assert_eq(usage_charged_ms(&exact, 0), 0);
    cr_assert_eq(usage_charged_ms(&exact, 37), 37);
    exact.rounding_ms = 100;
    exact.minimum_ms = 250;
    cr_assert_eq(usage_charged_ms(&exact, 1), 250);
    cr_assert_eq(usage_charged_ms(&exact, 251), 300);
    int64_t before = 0;
    for (int64_t ms = 0; ms < 5000; ms++) {
        int64_t charged = usage_charged_ms(&by_second, ms);
        cr_assert(charged >= ms && charged >= before && charged < ms + 2000);
        before = charged;
    }
}

Test(usage, records)
{
    struct usage_record a[METER_COUNT], b[METER_COUNT];
    const char *job = "0190a6f0-0000-7000-8000-000000000000";
    usage_records(&by_second, job, 1, "", 2, 256, 5000, 6200, 1200, a);
    cr_assert_eq(a[METER_VCPU_SECONDS].amount, 2);
    cr_assert_eq(a[METER_VCPU_SECONDS].charged_ms, 2000);
    cr_assert_eq(a[METER_VCPU_SECONDS].measured_ms, 1200);
    cr_assert_eq(a[METER_VCPU_SECONDS].cost_nanousd, 56000);
    cr_assert_eq(a[METER_GIB_SECONDS].amount, 256);
    cr_assert_eq(a[METER_GIB_SECONDS].cost_nanousd, 2250);
    cr_assert_eq(a[0].from_ms, 5000);
    cr_assert_eq(a[0].to_ms, 6200);
    cr_assert(id_valid(a[0].id.text));
    cr_assert_str_neq(a[0].id.text, a[1].id.text);
    /* ids come from job, attempt, branch and meter alone */
    usage_records(&by_second, job, 1, "", 1, 128, 1, 2, 1, b);
    cr_assert_str_eq(a[0].id.text, b[0].id.text);
    cr_assert_str_eq(a[1].id.text, b[1].id.text);
    usage_records(&by_second, job, 2, "", 2, 256, 5000, 6200, 1200, b);
    cr_assert_str_neq(a[0].id.text, b[0].id.text);
    usage_records(&by_second, job, 1, "b", 2, 256, 5000, 6200, 1200, b);
    cr_assert_str_neq(a[0].id.text, b[0].id.text);
}
