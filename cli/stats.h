/* Order statistics over a growing list. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define SAMPLES_MAX ((size_t)1 << 24)

struct samples {
    int64_t *values;
    size_t n, cap;
};
/* Values beyond SAMPLES_MAX are left out. */
void samples_add(struct samples *s, int64_t value);
void samples_done(struct samples *s);
/* Nearest-rank percentile, 1..100; 0 for no values. Sorts s. */
int64_t samples_percentile(struct samples *s, int percent);
