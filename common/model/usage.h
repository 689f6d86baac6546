/* Usage lines: integer milliseconds and nano-dollars, ids that cannot be written twice. Pure.
 *
 * What a sandbox used is cut at every UTC midnight and wherever another rate card comes into force,
 * so that each line belongs to one day, one month and one price. Lengths are exact: the parts'
 * measured times add up to the sandbox's, and so do charged times (what rounding and minimum add
 * belongs to the last part) and costs (each part costs the rounded sum up to its end less that up
 * to its beginning, so the total is rounded once). docs/billing.md is the contract. */
#pragma once
#include <stdint.h>
#include "common/base/id.h"
#include "common/model/job.h"
#include "common/model/rates.h"

enum meter {
    METER_VCPU_SECONDS,
    METER_GIB_SECONDS,
    METER_COUNT, /* those of a sandbox; the rest is storage */
    METER_SNAPSHOT_GIB_HOURS = METER_COUNT,
    METER_ARTIFACT_GIB_HOURS,
    METER_ALL_COUNT
};
const char *meter_word(enum meter m); /* "vcpu_seconds", "gib_seconds", ... */
/* -1: no such word. */
int meter_parse(const char *word);

/* What a sandbox was, and when. */
struct sandbox_use {
    int vcpus, memory_mib;
    int64_t from_ms; /* UTC: when it was resumed */
    int64_t
        measured_ms; /* monotonic; the wall clock may jump meanwhile, so this alone says how long */
};

struct usage_record {
    struct id id;
    enum meter meter;
    int part;               /* from 0 */
    int64_t from_ms, to_ms; /* UTC; to_ms - from_ms = measured_ms */
    int64_t measured_ms, charged_ms;
    int64_t amount; /* vCPUs, or MiB */
    int64_t unit_price_nanousd;
    int64_t cost_nanousd;
    int rate_id, period; /* the card; the month it is billed in as yyyymm */
};

#define USAGE_PARTS_MAX 64 /* of one sandbox; what is beyond stays in the last one */
#define USAGE_RECORDS_MAX (USAGE_PARTS_MAX * METER_COUNT)
#define DAY_MS 86400000

/* Charged time: measured rounded up to rounding_ms, at least minimum_ms (measured_ms >= 0,
 * asserted). */
int64_t usage_charged_ms(const struct rate_card *rates, int64_t measured_ms);
/* price x amount x time, in 128 bits, rounded half-even once. amount_per_unit: 1 for vCPUs, 1024
 * for MiB against GiB. */
int64_t usage_cost(int64_t unit_price_nanousd, int64_t amount, int64_t amount_per_unit,
                   int64_t charged_ms);
/* price of a GiB-hour x byte-hours, rounded half-even once. */
int64_t usage_storage_cost(int64_t unit_price_nanousd, int64_t byte_hours);
/* Month of a moment as yyyymm, UTC; the one after. */
int usage_month(int64_t at_ms);
int usage_month_after(int month);
/* First millisecond of a month yyyymm, UTC. */
int64_t usage_month_start_ms(int month);
/* The month that a line of at_ms is billed in: its own, or the first that is not closed. */
int usage_period(int64_t at_ms, int closed_through);
/* From job (a version 7 id: its time begins the new one, so that lines written together lie
 * together), attempt, branch, meter and part. */
struct id usage_record_id(const char *job_id, int attempt, const char *branch, enum meter meter,
                          int part);
/* Fill out[] with the lines of one sandbox: parts in order, of each part all METER_COUNT meters.
 * branch: "" for the job itself. Returns how many (a multiple of METER_COUNT, at most
 * USAGE_RECORDS_MAX), or 0 when the book has no card for that time. */
int usage_records(const struct rate_book *book, const char *tenant, const char *job_id, int attempt,
                  const char *branch, const struct sandbox_use *use,
                  struct usage_record out[USAGE_RECORDS_MAX]);
