#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/id.h"

Test(id, ordered_and_unique)
{
    struct id last = id_new();
    cr_assert(id_valid(last.text));
    cr_assert_eq(last.text[14], '7');
    for (int i = 0; i < 200000; i++) {
        struct id next = id_new();
        cr_assert_lt(strcmp(last.text, next.text), 0, "%s then %s", last.text, next.text);
        last = next;
    }
}

Test(id, carries_the_time)
{
    int64_t before = wall_ms();
    struct id id = id_new();
    int64_t after = wall_ms();
    char hex[13];
    memcpy(hex, id.text, 8);
    memcpy(hex + 8, id.text + 9, 4);
    hex[12] = 0;
    int64_t at = strtoll(hex, NULL, 16);
    cr_assert(at >= before && at <= after + 1);
}

#define THREADS 4
#define EACH 20000
static struct id ids[THREADS * EACH];

static void *make(void *arg)
{
    struct id *out = arg;
    for (int i = 0; i < EACH; i++) {
        out[i] = id_new();
    }
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct id *)a)->text, ((const struct id *)b)->text);
}

Test(id, unique_across_threads)
{
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&t[i], NULL, make, &ids[i * EACH]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_join(t[i], NULL), 0);
    }
    qsort(ids, THREADS * EACH, sizeof ids[0], by_text);
    for (int i = 1; i < THREADS * EACH; i++) {
        cr_assert_neq(strcmp(ids[i - 1].text, ids[i].text), 0);
    }
}

Test(id, derive)
{
    const char *a[] = { "job", "1", "", "vcpu" }, *b[] = { "job", "1", "", "vcpu" },
               *c[] = { "job", "1", "v", "cpu" }, *d[] = { "job1", "", "", "vcpu" };
    struct id ida = id_derive(a, 4), idb = id_derive(b, 4);
    cr_assert(id_valid(ida.text));
    cr_assert_eq(ida.text[14], '8');
    cr_assert_str_eq(ida.text, idb.text);
    cr_assert_str_neq(ida.text, id_derive(c, 4).text);
    cr_assert_str_neq(ida.text, id_derive(d, 4).text);
    cr_assert_str_neq(ida.text, id_derive(a, 3).text);
}

Test(id, valid)
{
    cr_assert(id_valid("0190a6f0-0000-7000-8000-00000000000f"));
    const char *bad[] = { "",
                          "0190a6f0",
                          "0190A6F0-0000-7000-8000-000000000000",
                          "0190a6f0-0000-7000-8000-00000000000",
                          "0190a6f0-0000-7000-8000-0000000000000",
                          "0190a6f000000-7000-8000-000000000000",
                          "0190a6g0-0000-7000-8000-000000000000",
                          "{190a6f0-0000-7000-8000-00000000000}" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert(!id_valid(bad[i]), "%s", bad[i]);
    }
}

Test(clock, format)
{
    char out[CLOCK_TEXT_MAX];
    clock_format_ms(0, out);
    cr_assert_str_eq(out, "1970-01-01T00:00:00.000Z");
    clock_format_ms(1795985145123, out);
    cr_assert_str_eq(out, "2026-11-29T20:45:45.123Z");
    clock_format_ms(-1, out);
    cr_assert_str_eq(out, "1969-12-31T23:59:59.999Z");
}
