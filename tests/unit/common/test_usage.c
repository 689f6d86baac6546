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

/* ---- lines of a sandbox ---- */

#define JOB "0190a6f0-0000-7000-8000-000000000000"
#define DAY1 ((int64_t)1798675200000) /* 2026-12-31 00:00:00 UTC */

static struct rate_card epoch_card(void)
{
    struct rate_card c = by_second;
    c.id = 1;
    return c;
}

static int lines(const struct rate_book *b, const char *branch, int vcpus, int mib, int64_t from,
                 int64_t ms, struct usage_record *out)
{
    const struct sandbox_use use = {
        .vcpus = vcpus, .memory_mib = mib, .from_ms = from, .measured_ms = ms
    };
    return usage_records(b, "t", JOB, 1, branch, &use, out);
}

static struct usage_record a[USAGE_RECORDS_MAX], b[USAGE_RECORDS_MAX];

Test(usage, records)
{
    struct rate_card card = epoch_card();
    struct rate_book book = { .cards = &card, .n = 1, .version = 1 };
    cr_assert_eq(lines(&book, "", 2, 256, 5000, 1200, a), METER_COUNT);
    cr_assert_eq(a[METER_VCPU_SECONDS].amount, 2);
    cr_assert_eq(a[METER_VCPU_SECONDS].charged_ms, 2000);
    cr_assert_eq(a[METER_VCPU_SECONDS].measured_ms, 1200);
    cr_assert_eq(a[METER_VCPU_SECONDS].cost_nanousd, 56000);
    cr_assert_eq(a[METER_GIB_SECONDS].amount, 256);
    cr_assert_eq(a[METER_GIB_SECONDS].cost_nanousd, 2250);
    cr_assert_eq(a[0].from_ms, 5000);
    cr_assert_eq(a[0].to_ms, 6200);
    cr_assert_eq(a[0].rate_id, 1);
    cr_assert_eq(a[0].period, 197001);
    cr_assert(id_valid(a[0].id.text));
    cr_assert_eq(memcmp(a[0].id.text, JOB, 13), 0);
    cr_assert_str_neq(a[0].id.text, a[1].id.text);
    /* ids come from job, attempt, branch, meter and part alone */
    cr_assert_eq(lines(&book, "", 1, 128, 1, 1, b), METER_COUNT);
    cr_assert_str_eq(a[0].id.text, b[0].id.text);
    cr_assert_str_eq(a[1].id.text, b[1].id.text);
    cr_assert_str_neq(usage_record_id(JOB, 2, "", 0, 0).text, a[0].id.text);
    cr_assert_str_neq(usage_record_id(JOB, 1, "b", 0, 0).text, a[0].id.text);
    cr_assert_str_neq(usage_record_id(JOB, 1, "", 0, 1).text, a[0].id.text);
    book.n = 0;
    cr_assert_eq(lines(&book, "", 1, 128, 1, 1, b), 0, "no card, no line");
}

/* Case B121: 10 s before to 10 s after the end of a month. */
Test(usage, b121_month_end)
{
    struct rate_card card = epoch_card();
    struct rate_book book = { .cards = &card, .n = 1 };
    int64_t edge = DAY1 + DAY_MS; /* 2027-01-01 00:00:00 */
    cr_assert_eq(lines(&book, "", 1, 1024, edge - 10000, 20000, a), 2 * METER_COUNT);
    cr_assert_eq(a[0].measured_ms, 10000);
    cr_assert_eq(a[0].charged_ms, 10000);
    cr_assert_eq(a[0].to_ms, edge);
    cr_assert_eq(a[0].period, 202612);
    cr_assert_eq(a[0].cost_nanousd, 140000);
    cr_assert_eq(a[2].part, 1);
    cr_assert_eq(a[2].from_ms, edge);
    cr_assert_eq(a[2].measured_ms, 10000);
    cr_assert_eq(a[2].period, 202701);
    cr_assert_eq(a[3].meter, METER_GIB_SECONDS);
    cr_assert_eq(a[3].cost_nanousd, 45000);
    /* ends exactly at the edge: nothing of length 0 beyond it */
    cr_assert_eq(lines(&book, "", 1, 1024, edge - 1500, 1500, a), METER_COUNT);
    cr_assert_eq(a[0].charged_ms, 2000, "what rounding adds stays in the line");
    cr_assert_eq(a[0].to_ms, edge);
    cr_assert_eq(lines(&book, "", 1, 1024, edge, 0, a), METER_COUNT);
    cr_assert_eq(a[0].period, 202701);
    cr_assert_eq(a[0].charged_ms, 1000);
    /* B122: what is added to the last part */
    cr_assert_eq(lines(&book, "", 1, 1024, edge - 300, 1100, a), 2 * METER_COUNT);
    cr_assert_eq(a[0].charged_ms, 300);
    cr_assert_eq(a[2].charged_ms, 1700);
}

/* POSIX time has no leap seconds: 2016-12-31 23:59:60 and 2017-01-01 00:00:00 have one number. A
 * run across it is as long as the monotonic clock says. */
Test(usage, leap_second)
{
    struct rate_card card = epoch_card();
    struct rate_book book = { .cards = &card, .n = 1 };
    int64_t edge = 1483228800000;
    cr_assert_eq(lines(&book, "", 1, 1024, edge - 2000, 4000, a), 2 * METER_COUNT);
    cr_assert_eq(a[0].measured_ms + a[2].measured_ms, 4000);
    cr_assert_eq(a[0].period, 201612);
    cr_assert_eq(a[2].period, 201701);
    cr_assert_eq(a[2].from_ms, edge);
}

Test(usage, months)
{
    cr_assert_eq(usage_month(0), 197001);
    cr_assert_eq(usage_month(DAY1 + DAY_MS - 1), 202612);
    cr_assert_eq(usage_month(DAY1 + DAY_MS), 202701);
    cr_assert_eq(usage_month_after(202612), 202701);
    cr_assert_eq(usage_month_after(202701), 202702);
    cr_assert_eq(usage_month_start_ms(202701), DAY1 + DAY_MS);
    cr_assert_eq(usage_period(DAY1, 202611), 202612);
    cr_assert_eq(usage_period(DAY1, 202612), 202701,
                 "a closed month's late line is billed in the next");
    cr_assert_eq(usage_period(DAY1, 202703), 202704);
}

/* Two prices within a run: the second decides, the new card's rounding does not. */
Test(usage, rate_change)
{
    struct rate_card cards[3] = { epoch_card(), epoch_card(), epoch_card() };
    cards[1].id = 2;
    cards[1].valid_from_ms = DAY1 + 5000;
    cards[1].vcpu_second_nanousd = 28000;
    cards[1].minimum_ms = 60000;
    cards[2].id = 3;
    cards[2].valid_from_ms = DAY1 + 5000;
    memcpy(cards[2].tenant, "other", 6);
    struct rate_book book = { .cards = cards, .n = 3, .version = 3 };
    cr_assert_eq(lines(&book, "", 1, 0, DAY1 + 3000, 3500, a), 2 * METER_COUNT);
    cr_assert_eq(a[0].cost_nanousd, 2 * 14000);
    cr_assert_eq(a[0].rate_id, 1);
    cr_assert_eq(a[2].charged_ms, 2000);
    cr_assert_eq(a[2].cost_nanousd, 2 * 28000);
    cr_assert_eq(a[2].rate_id, 2);
    cr_assert_eq(rate_book_at(&book, "t", DAY1 + 4999)->id, 1);
    cr_assert_eq(rate_book_at(&book, "t", DAY1 + 5000)->id, 2);
    cr_assert_eq(rate_book_at(&book, "other", DAY1 + 5000)->id, 3,
                 "a card of one's own goes first");
    cr_assert_eq(rate_book_next(&book, "t", DAY1), DAY1 + 5000);
    cr_assert_eq(rate_book_next(&book, "t", DAY1 + 5000), INT64_MAX);
    cr_assert_eq(rate_book_at(&book, "t", -1), NULL);
}

struct total {
    int64_t measured, charged, cost[METER_COUNT];
};

static struct total sum(const struct usage_record *u, int n)
{
    struct total t = { 0 };
    for (int i = 0; i < n; i++) {
        t.measured += u[i].meter == 0 ? u[i].measured_ms : 0;
        t.charged += u[i].meter == 0 ? u[i].charged_ms : 0;
        t.cost[u[i].meter] += u[i].cost_nanousd;
    }
    return t;
}

/* Random intervals and books: parts touch, add up to the whole, lie in one day and under one card
 * each, and at one price cost what the undivided interval costs. */
Test(usage, parts_sum_to_the_whole)
{
    for (int round = 0; round < 20000; round++) {
        struct rate_card cards[6];
        int n_cards = 1 + (int)next(6);
        bool one_price = round % 2;
        int64_t at = 0;
        for (int i = 0; i < n_cards; i++) {
            cards[i] = epoch_card();
            cards[i].id = i + 1;
            cards[i].valid_from_ms = at;
            cards[i].rounding_ms = 1 + (int64_t)next(3000);
            cards[i].minimum_ms = (int64_t)next(3000);
            if (!one_price) {
                cards[i].vcpu_second_nanousd = (int64_t)next(100000);
                cards[i].gib_second_nanousd = (int64_t)next(1000000000);
            }
            at = DAY1 + (int64_t)next(3 * DAY_MS / 1000) * 1000;
            at = at < cards[i].valid_from_ms ? cards[i].valid_from_ms : at;
        }
        struct rate_book book = { .cards = cards, .n = n_cards };
        int64_t from = DAY1 + (int64_t)next(DAY_MS);
        int64_t ms = (int64_t)next(round % 3 ? 14400000 : 2 * DAY_MS);
        int vcpus = 1 + (int)next(8), mib = 128 + (int)next(8192);
        int n = lines(&book, "", vcpus, mib, from, ms, a);
        struct total t = sum(a, n);
        cr_assert_eq(t.measured, ms);
        const struct rate_card *first = rate_book_at(&book, "t", from);
        cr_assert_eq(t.charged, usage_charged_ms(first, ms));
        int64_t expect = from;
        for (int i = 0; i < n; i++) {
            const struct usage_record *u = &a[i];
            cr_assert_eq(u->from_ms, i % METER_COUNT ? a[i - 1].from_ms : expect);
            cr_assert_eq(u->to_ms - u->from_ms, u->measured_ms);
            cr_assert_geq(u->cost_nanousd, 0);
            cr_assert(u->measured_ms == 0 || u->from_ms / DAY_MS == (u->to_ms - 1) / DAY_MS);
            const struct rate_card *c = rate_book_at(&book, "t", u->from_ms);
            cr_assert_eq(u->rate_id, c->id);
            cr_assert(rate_book_next(&book, "t", u->from_ms) >= u->to_ms);
            cr_assert_eq(u->unit_price_nanousd, u->meter == METER_VCPU_SECONDS
                                                    ? c->vcpu_second_nanousd
                                                    : c->gib_second_nanousd);
            int64_t alone = usage_cost(u->unit_price_nanousd, u->amount,
                                       u->meter == METER_VCPU_SECONDS ? 1 : 1024, u->charged_ms);
            cr_assert(u->cost_nanousd >= alone - 1 && u->cost_nanousd <= alone + 1);
            expect = u->to_ms;
        }
        cr_assert_eq(expect, from + ms);
        if (one_price) {
            cr_assert_eq(t.cost[METER_VCPU_SECONDS], usage_cost(14000, vcpus, 1, t.charged));
            cr_assert_eq(t.cost[METER_GIB_SECONDS], usage_cost(4500, mib, 1024, t.charged));
        }
        /* sums do not depend on the order of sandboxes: they are integers; and a second pricing is
         * the first */
        cr_assert_eq(lines(&book, "", vcpus, mib, from, ms, b), n);
        cr_assert_eq(memcmp(a, b, (size_t)n * sizeof a[0]), 0);
    }
}

/* Case B122: 1000 jobs of about 0.3 s, one of 300 s, three of 1.000 s: 1000, 300 and 3 seconds. */
Test(usage, b122_rounding)
{
    struct rate_card card = epoch_card();
    struct rate_book book = { .cards = &card, .n = 1 };
    int64_t cost = 0, charged = 0;
    for (int i = 0; i < 1004; i++) {
        int64_t ms = i < 1000 ? 250 + (int64_t)next(100) : i == 1000 ? 300000 : 1000;
        int n = lines(&book, "", 1, 1024, DAY1 + i, ms, a);
        struct total t = sum(a, n);
        charged += t.charged;
        cost += t.cost[0] + t.cost[1];
    }
    cr_assert_eq(charged, 1303000);
    cr_assert_eq(cost, 1303 * (14000 + 4500));
}

/* Case B128: what is quoted for a length is what its lines cost; never negative, monotone. */
Test(usage, b128_quote_is_the_line)
{
    struct rate_card card = epoch_card();
    struct rate_book book = { .cards = &card, .n = 1 };
    for (int round = 0; round < 50; round++) {
        card.rounding_ms = 1 + (int64_t)next(2000);
        card.minimum_ms = (int64_t)next(2000);
        card.vcpu_second_nanousd = (int64_t)next(100000);
        int64_t before = 0;
        for (int64_t ms = 0; ms <= 10000; ms += 1 + (int64_t)next(7)) {
            int n = lines(&book, "", 1, 1024, DAY1 + 1000, ms, a);
            struct total t = sum(a, n);
            int64_t quote = usage_cost(card.vcpu_second_nanousd, 1, 1, usage_charged_ms(&card, ms));
            cr_assert_eq(t.cost[0], quote);
            cr_assert_geq(quote, before);
            before = quote;
        }
    }
}

Test(usage, more_changes_than_parts)
{
    static struct rate_card cards[200];
    for (int i = 0; i < 200; i++) {
        cards[i] = epoch_card();
        cards[i].id = i + 1;
        cards[i].valid_from_ms = i * 1000;
    }
    struct rate_book book = { .cards = cards, .n = 200 };
    int n = lines(&book, "", 1, 1024, 0, 200000, a);
    cr_assert_eq(n, USAGE_RECORDS_MAX);
    struct total t = sum(a, n);
    cr_assert_eq(t.measured, 200000);
    cr_assert_eq(t.charged, 200000);
}

Test(usage, storage)
{
    cr_assert_eq(usage_storage_cost(108000, (int64_t)1 << 30), 108000);
    cr_assert_eq(usage_storage_cost(108000, 0), 0);
    cr_assert_eq(usage_storage_cost(108000, (int64_t)1 << 20), 105); /* 105.47 */
    cr_assert_eq(usage_storage_cost(1, (int64_t)1 << 29), 0);        /* 0.5 to even */
    cr_assert_eq(usage_storage_cost(3, (int64_t)1 << 29), 2);        /* 1.5 */
    for (int m = 0; m < METER_ALL_COUNT; m++) {
        cr_assert_eq(meter_parse(meter_word((enum meter)m)), m);
    }
    cr_assert_eq(meter_parse("nothing"), -1);
}
