#include "worker/bill.h"

void bill_sandbox(const struct config *c, const char *job_id, int attempt, const char *branch,
                  const struct job_result *r, struct usage_record usage[METER_COUNT])
{
    struct rate_card rates = { .vcpu_second_nanousd = c->rate_vcpu_second_nanousd,
                               .gib_second_nanousd = c->rate_gib_second_nanousd,
                               .rounding_ms = c->rate_rounding_ms,
                               .minimum_ms = c->rate_minimum_ms };
    usage_records(&rates, job_id, attempt, branch, r->vcpus, r->memory_mib, r->leased_wall_ms,
                  r->ended_wall_ms, r->measured_ms, usage);
}
