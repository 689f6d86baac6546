#include "common/model/usage.h"

#include <assert.h>
#include <stdio.h>

__extension__ typedef __int128 wide;

const char *meter_word(enum meter m)
{
    static const char *const words[METER_COUNT] = {
        [METER_VCPU_SECONDS] = "vcpu_seconds", [METER_GIB_SECONDS] = "gib_seconds"
    };
    assert((int)m >= 0 && m < METER_COUNT);
    return words[m];
}

int64_t usage_charged_ms(const struct rate_card *rates, int64_t measured_ms)
{
    assert(measured_ms >= 0 && rates->rounding_ms >= 1 && rates->minimum_ms >= 0);
    assert(measured_ms <= INT64_MAX - rates->rounding_ms);
    int64_t over = measured_ms % rates->rounding_ms;
    int64_t charged = over ? measured_ms - over + rates->rounding_ms : measured_ms;
    return charged < rates->minimum_ms ? rates->minimum_ms : charged;
}

int64_t usage_cost(int64_t unit_price_nanousd, int64_t amount, int64_t amount_per_unit,
                   int64_t charged_ms)
{
    assert(unit_price_nanousd >= 0 && amount >= 0 && charged_ms >= 0);
    assert(amount_per_unit >= 1 && amount_per_unit <= INT64_MAX / 1000);
    wide product;
    bool over =
        __builtin_mul_overflow((wide)unit_price_nanousd * amount, (wide)charged_ms, &product);
    assert(!over);
    wide divisor = (wide)amount_per_unit * 1000; /* prices are for seconds */
    wide cost = product / divisor, rest = product % divisor;
    if (2 * rest > divisor || (2 * rest == divisor && (cost & 1))) {
        cost++;
    }
    /* the configuration's largest price, for the longest job in the largest sandbox, is a tenth of
     * this */
    assert(cost <= INT64_MAX);
    return (int64_t)cost;
}

void usage_records(const struct rate_card *rates, const char *job_id, int attempt,
                   const char *branch, int vcpus, int memory_mib, int64_t from_ms, int64_t to_ms,
                   int64_t measured_ms, struct usage_record out[METER_COUNT])
{
    assert(job_id && branch && vcpus >= 0 && memory_mib >= 0);
    char attempt_text[16];
    (void)snprintf(attempt_text, sizeof attempt_text, "%d", attempt);
    int64_t charged = usage_charged_ms(rates, measured_ms);
    for (int m = 0; m < METER_COUNT; m++) {
        bool cpu = m == METER_VCPU_SECONDS;
        const char *parts[] = { job_id, attempt_text, branch, meter_word((enum meter)m) };
        int64_t amount = cpu ? vcpus : memory_mib;
        int64_t price = cpu ? rates->vcpu_second_nanousd : rates->gib_second_nanousd;
        out[m] = (struct usage_record){ .id = id_derive(parts, 4),
                                        .meter = (enum meter)m,
                                        .from_ms = from_ms,
                                        .to_ms = to_ms,
                                        .measured_ms = measured_ms,
                                        .charged_ms = charged,
                                        .amount = amount,
                                        .unit_price_nanousd = price,
                                        .cost_nanousd =
                                            usage_cost(price, amount, cpu ? 1 : 1024, charged) };
    }
}
