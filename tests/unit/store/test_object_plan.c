#include <criterion/criterion.h>
#include <stdint.h>

#include "common/store/object_s3_pure.h"

#define MIB (1LL << 20)
#define GIB (1LL << 30)
#define TIB (1LL << 40)

static struct err err;

static void plan(int64_t size, int64_t part, bool multipart, int64_t part_bytes, int parts)
{
    struct s3_plan p = { 0 };
    cr_assert_eq(s3_plan(size, part, &p, &err), 0, "%s", err.text);
    cr_expect_eq(p.multipart, multipart, "size %lld", (long long)size);
    cr_expect_eq(p.part_bytes, part_bytes, "size %lld: part %lld", (long long)size,
                 (long long)p.part_bytes);
    cr_expect_eq(p.parts, parts, "size %lld: %d parts", (long long)size, p.parts);
    /* the parts cover the body, the last is not empty */
    cr_expect_geq(p.parts * p.part_bytes, size);
    cr_expect(size == 0 || (p.parts - 1) * p.part_bytes < size);
}

Test(plan, around_one_part)
{
    plan(0, 16 * MIB, false, 0, 1);
    plan(1, 16 * MIB, false, 1, 1);
    plan(16 * MIB, 16 * MIB, false, 16 * MIB, 1);
    plan(16 * MIB + 1, 16 * MIB, true, 16 * MIB, 2);
    plan(32 * MIB, 16 * MIB, true, 16 * MIB, 2);
    plan(32 * MIB + 1, 16 * MIB, true, 16 * MIB, 3);
    plan(7, 3, true, 3, 3);
}

Test(plan, ten_thousand_parts)
{
    plan(10000 * 16 * MIB, 16 * MIB, true, 16 * MIB, 10000);
    plan(10000 * 16 * MIB + 1, 16 * MIB, true, 17 * MIB, 9412);
    plan(10000, 1, true, 1, 10000);
    plan(10001, 1, false, 10001, 1); /* parts that grow are whole MiB: it fits into one */
    plan(10000 * MIB, MIB, true, MIB, 10000);
    plan(10000 * MIB + 1, MIB, true, 2 * MIB, 5001);
}

Test(plan, five_gib_of_one_put)
{
    plan(5 * GIB, 5 * GIB, false, 5 * GIB, 1);
    plan(5 * GIB, 100 * GIB, false, 5 * GIB, 1);
    plan(5 * GIB + 1, 100 * GIB, true, 5 * GIB, 2);
    plan(5 * GIB, 16 * MIB, true, 16 * MIB, 320);
}

Test(plan, largest_object)
{
    plan(5 * TIB, 16 * MIB, true, 525 * MIB, 9987);
    struct s3_plan p;
    cr_assert_eq(s3_plan(5 * TIB + 1, 16 * MIB, &p, &err), -ERR_TOO_LARGE);
    cr_assert_eq(s3_plan(INT64_MAX, 1, &p, &err), -ERR_TOO_LARGE);
}

Test(backoff, cap_doubles_up_to_max)
{
    /* random = cap gives the largest wait, cap + 1 wraps to 0 */
    const int64_t caps[] = { 200, 400, 800, 1600, 3000, 3000 };
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(s3_backoff_ms(200, 3000, i + 1, (uint64_t)caps[i]), caps[i]);
        cr_expect_eq(s3_backoff_ms(200, 3000, i + 1, (uint64_t)caps[i] + 1), 0);
    }
    cr_expect_eq(s3_backoff_ms(0, 3000, 50, 12345), 0);
    cr_expect_eq(s3_backoff_ms(5000, 3000, 1, 3000), 3000, "a base above the maximum");
    cr_expect_leq(s3_backoff_ms(600000, 3600000, 100, UINT64_MAX), 3600000);
}

Test(backoff, full_jitter_uses_the_whole_range)
{
    /* a seeded generator: the same waits every time */
    uint64_t x = 42;
    int low = 0, high = 0;
    for (int i = 0; i < 1000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int64_t ms = s3_backoff_ms(100, 100000, 4, x >> 11);
        cr_assert(ms >= 0 && ms <= 800);
        low += ms < 200;
        high += ms > 600;
    }
    cr_expect(low > 200 && low < 300, "%d of 1000 in the first quarter", low);
    cr_expect(high > 200 && high < 300, "%d of 1000 in the last quarter", high);
}

Test(status, what_is_tried_again)
{
    const long again[] = { 429, 500, 502, 503, 504, 599 };
    const long final[] = { 200, 301, 400, 401, 403, 404, 408, 409, 412, 416, 501, 600 };
    for (size_t i = 0; i < sizeof again / sizeof again[0]; i++) {
        cr_expect(s3_status_again(again[i]), "%ld", again[i]);
    }
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++) {
        cr_expect_not(s3_status_again(final[i]), "%ld", final[i]);
    }
}
