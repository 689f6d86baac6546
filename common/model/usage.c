#include "common/model/usage.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

__extension__ typedef __int128 wide;

#define GIB ((int64_t)1 << 30)

static const char *const meter_words[METER_ALL_COUNT] = {
    [METER_VCPU_SECONDS] = "vcpu_seconds",
    [METER_GIB_SECONDS] = "gib_seconds",
    [METER_SNAPSHOT_GIB_HOURS] = "snapshot_gib_hours",
    [METER_ARTIFACT_GIB_HOURS] = "artifact_gib_hours",
};

const char *meter_word(enum meter m)
{
    assert((int)m >= 0 && m < METER_ALL_COUNT);
    return meter_words[m];
}

int meter_parse(const char *word)
{
    for (int m = 0; m < METER_ALL_COUNT; m++) {
        if (strcmp(word, meter_words[m]) == 0) {
            return m;
        }
    }
    return -1;
}

int64_t usage_charged_ms(const struct rate_card *rates, int64_t measured_ms)
{
    assert(measured_ms >= 0 && rates->rounding_ms >= 1 && rates->minimum_ms >= 0);
    assert(measured_ms <= INT64_MAX - rates->rounding_ms);
    int64_t over = measured_ms % rates->rounding_ms;
    int64_t charged = over ? measured_ms - over + rates->rounding_ms : measured_ms;
    return charged < rates->minimum_ms ? rates->minimum_ms : charged;
}

static int64_t half_even(wide product, wide divisor)
{
    assert(product >= 0 && divisor > 0);
    wide cost = product / divisor, rest = product % divisor;
    if (2 * rest > divisor || (2 * rest == divisor && (cost & 1))) {
        cost++;
    }
    /* the largest price, for the longest job in the largest sandbox, is a tenth of this */
    assert(cost <= INT64_MAX);
    return (int64_t)cost;
}

static wide product(int64_t unit_price_nanousd, int64_t amount, int64_t charged_ms)
{
    assert(unit_price_nanousd >= 0 && amount >= 0 && charged_ms >= 0);
    wide p;
    bool over = __builtin_mul_overflow((wide)unit_price_nanousd * amount, (wide)charged_ms, &p);
    assert(!over);
    return p;
}

int64_t usage_cost(int64_t unit_price_nanousd, int64_t amount, int64_t amount_per_unit,
                   int64_t charged_ms)
{
    assert(amount_per_unit >= 1 && amount_per_unit <= INT64_MAX / 1000);
    /* prices are for seconds */
    return half_even(product(unit_price_nanousd, amount, charged_ms), (wide)amount_per_unit * 1000);
}

int64_t usage_storage_cost(int64_t unit_price_nanousd, int64_t byte_hours)
{
    return half_even(product(unit_price_nanousd, byte_hours, 1), GIB);
}

int usage_month(int64_t at_ms)
{
    time_t t = (time_t)(at_ms >= 0 ? at_ms / 1000 : 0);
    struct tm tm;
    (void)gmtime_r(&t, &tm);
    return (tm.tm_year + 1900) * 100 + tm.tm_mon + 1;
}

int usage_month_after(int month)
{
    return month % 100 == 12 ? month + 89 : month + 1;
}

int64_t usage_month_start_ms(int month)
{
    struct tm tm = { .tm_year = month / 100 - 1900, .tm_mon = month % 100 - 1, .tm_mday = 1 };
    return (int64_t)timegm(&tm) * 1000;
}

int usage_period(int64_t at_ms, int closed_through)
{
    int month = usage_month(at_ms);
    return month > closed_through ? month : usage_month_after(closed_through);
}

struct id usage_record_id(const char *job_id, int attempt, const char *branch, enum meter meter,
                          int part)
{
    char attempt_text[16], part_text[16];
    (void)snprintf(attempt_text, sizeof attempt_text, "%d", attempt);
    (void)snprintf(part_text, sizeof part_text, "%d", part);
    const char *parts[] = { job_id, attempt_text, branch, meter_word(meter), part_text };
    struct id id = id_derive(parts, 5);
    memcpy(id.text, job_id, 13); /* 48 bits and their dash */
    assert(id_valid(id.text));
    return id;
}

/* Where the part that begins at from_ms ends. */
static int64_t part_end(const struct rate_book *book, const char *tenant, int64_t from_ms,
                        int64_t end_ms)
{
    int64_t midnight = from_ms - from_ms % DAY_MS + DAY_MS;
    int64_t change = rate_book_next(book, tenant, from_ms);
    int64_t to = midnight < change ? midnight : change;
    return to < end_ms ? to : end_ms;
}

int usage_records(const struct rate_book *book, const char *tenant, const char *job_id, int attempt,
                  const char *branch, const struct sandbox_use *use,
                  struct usage_record out[USAGE_RECORDS_MAX])
{
    assert(job_id && branch && use->vcpus >= 0 && use->memory_mib >= 0);
    assert(use->measured_ms >= 0 && use->from_ms >= 0);
    const struct rate_card *card = rate_book_at(book, tenant, use->from_ms);
    if (!card) {
        return 0;
    }
    static const int64_t per_unit[METER_COUNT] = { 1, 1024 };
    const int64_t amounts[METER_COUNT] = { use->vcpus, use->memory_mib };
    wide sums[METER_COUNT] = { 0 };
    int64_t end_ms = use->from_ms + use->measured_ms, from_ms = use->from_ms;
    int64_t added_ms = usage_charged_ms(card, use->measured_ms) - use->measured_ms;
    int part = 0, n = 0;
    for (bool last = false; !last; part++) {
        int64_t to_ms =
            part == USAGE_PARTS_MAX - 1 ? end_ms : part_end(book, tenant, from_ms, end_ms);
        last = to_ms == end_ms;
        card = rate_book_at(book, tenant, from_ms);
        const int64_t prices[METER_COUNT] = { card->vcpu_second_nanousd, card->gib_second_nanousd };
        int64_t charged_ms = to_ms - from_ms + (last ? added_ms : 0);
        for (int m = 0; m < METER_COUNT; m++) {
            wide divisor = (wide)per_unit[m] * 1000;
            int64_t before = half_even(sums[m], divisor);
            sums[m] += product(prices[m], amounts[m], charged_ms);
            out[n++] =
                (struct usage_record){ .id = usage_record_id(job_id, attempt, branch, (enum meter)m,
                                                             part),
                                       .meter = (enum meter)m,
                                       .part = part,
                                       .from_ms = from_ms,
                                       .to_ms = to_ms,
                                       .measured_ms = to_ms - from_ms,
                                       .charged_ms = charged_ms,
                                       .amount = amounts[m],
                                       .unit_price_nanousd = prices[m],
                                       .cost_nanousd = half_even(sums[m], divisor) - before,
                                       .rate_id = card->id,
                                       .period = usage_period(from_ms, book->closed_through) };
        }
        from_ms = to_ms;
    }
    return n;
}
