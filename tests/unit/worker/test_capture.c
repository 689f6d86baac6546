#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/capture.h"

static char pattern(uint64_t i)
{
    return (char)((i * 2654435761u) >> 13);
}

static void feed(struct capture *c, uint64_t total, size_t chunk)
{
    char *data = malloc(chunk);
    cr_assert_not_null(data);
    for (uint64_t at = 0; at < total;) {
        size_t n = total - at < chunk ? (size_t)(total - at) : chunk;
        for (size_t i = 0; i < n; i++) {
            data[i] = pattern(at + i);
        }
        capture_add(c, data, n);
        at += n;
    }
    free(data);
}

static void check(const struct capture *c, uint64_t total, size_t limit)
{
    struct stream_result r;
    capture_result(c, &r);
    cr_assert_eq(r.total_bytes, total);
    cr_assert_eq(r.truncated, total > limit);
    if (total <= limit) {
        cr_assert_eq(r.head.len, total);
        cr_assert_eq(r.tail.len, 0);
    } else {
        uint64_t end = total < limit + CAPTURE_SLACK_BYTES ? total : limit + CAPTURE_SLACK_BYTES;
        cr_assert_eq(r.head.len, limit / 2 + limit % 2);
        cr_assert_eq(r.tail.len, limit / 2, "limit %zu total %zu: tail %zu", limit, (size_t)total,
                     r.tail.len);
        for (size_t i = 0; i < r.tail.len; i++) {
            cr_assert_eq(r.tail.data[i], pattern(end - r.tail.len + i), "tail at %zu", i);
        }
    }
    for (size_t i = 0; i < r.head.len; i++) {
        cr_assert_eq(r.head.data[i], pattern(i));
    }
    free(r.head.data);
    free(r.tail.data);
}

Test(capture, any_chunking_keeps_the_same_bytes, .timeout = 60)
{
    const size_t limits[] = { 1, 2, 3, 7, 1024, 65536 };
    const size_t chunks[] = { 1, 3, 100, 1024, 1025, 65536, 200000 };
    struct capture c = { 0 };
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
        size_t limit = limits[l];
        const uint64_t totals[] = { 0,
                                    1,
                                    limit / 2,
                                    limit - 1,
                                    limit,
                                    limit + 1,
                                    2 * limit,
                                    3 * limit + 5,
                                    limit + CAPTURE_SLACK_BYTES - 1,
                                    limit + CAPTURE_SLACK_BYTES,
                                    limit + CAPTURE_SLACK_BYTES + 1,
                                    limit + 2 * CAPTURE_SLACK_BYTES };
        for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++) {
            for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++) {
                if (totals[t] > 100000 && chunks[k] < 100) {
                    continue;
                }
                capture_start(&c, limit); /* the same memory again */
                feed(&c, totals[t], chunks[k]);
                check(&c, totals[t], limit);
            }
        }
    }
    capture_done(&c);
}

Test(capture, memory_is_bounded_by_the_limit)
{
    struct capture c = { 0 };
    capture_start(&c, 1000);
    feed(&c, 5u << 20, 65536);
    cr_assert_leq(c.cap, 1000);
    cr_assert(capture_over(&c));
    cr_assert(capture_flooded(&c));
    capture_start(&c, 16u << 20);
    feed(&c, 16u << 20, 65536);
    cr_assert(!capture_over(&c));
    capture_start(&c, 10); /* a large buffer is given back */
    cr_assert_eq(c.cap, 0);
    capture_add(&c, "0123456789", 10);
    cr_assert(!capture_over(&c));
    capture_add(&c, "a", 1);
    cr_assert(capture_over(&c));
    cr_assert(!capture_flooded(&c));
    capture_done(&c);
}

/* Case B023: one write or 1626 writes of the same bytes. */
Test(capture, b023)
{
    struct capture a = { 0 }, b = { 0 };
    capture_start(&a, 1024);
    capture_start(&b, 1024);
    char all[1626 * 12];
    for (int i = 0; i < 1626; i++) {
        memcpy(all + i * 12, "Hello world\n", 12);
        capture_add(&a, "Hello world\n", 12);
    }
    capture_add(&b, all, sizeof all);
    struct stream_result x, y;
    capture_result(&a, &x);
    capture_result(&b, &y);
    cr_assert_eq(x.head.len + x.tail.len, 1024);
    cr_assert_eq(y.head.len + y.tail.len, 1024);
    cr_assert(memcmp(x.head.data, y.head.data, x.head.len) == 0);
    cr_assert(memcmp(x.tail.data, y.tail.data, x.tail.len) == 0);
    cr_assert(memcmp(x.tail.data, all + sizeof all - 512, 512) == 0);
    free(x.head.data);
    free(x.tail.data);
    free(y.head.data);
    free(y.tail.data);
    capture_done(&a);
    capture_done(&b);
}
