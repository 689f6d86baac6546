/* Usage records: integer milliseconds and nano-dollars, ids that cannot be written twice. Pure. */
#pragma once
#include <stdint.h>
#include "common/base/id.h"
#include "common/model/job.h"

struct rate_card {
    int64_t vcpu_second_nanousd, gib_second_nanousd, rounding_ms, minimum_ms;
};

enum meter { METER_VCPU_SECONDS, METER_GIB_SECONDS, METER_COUNT };
const char *meter_word(enum meter m); /* "vcpu_seconds", "gib_seconds" */

struct usage_record {
    struct id id; /* id_derive(job, attempt, branch, meter) */
    enum meter meter;
    int64_t from_ms, to_ms; /* UTC */
    int64_t measured_ms, charged_ms;
    int64_t amount; /* vCPUs, or MiB */
    int64_t unit_price_nanousd;
    int64_t cost_nanousd;
};

/* Charged time: measured rounded up to rounding_ms, at least minimum_ms (measured_ms >= 0,
 * asserted). */
int64_t usage_charged_ms(const struct rate_card *rates, int64_t measured_ms);
/* price x amount x time, in 128 bits, rounded half-even once. amount_per_unit: 1 for vCPUs, 1024
 * for MiB against GiB. */
int64_t usage_cost(int64_t unit_price_nanousd, int64_t amount, int64_t amount_per_unit,
                   int64_t charged_ms);
/* Fill out[METER_COUNT] for one sandbox. branch: "" for the job itself. */
void usage_records(const struct rate_card *rates, const char *job_id, int attempt,
                   const char *branch, int vcpus, int memory_mib, int64_t from_ms, int64_t to_ms,
                   int64_t measured_ms, struct usage_record out[METER_COUNT]);
