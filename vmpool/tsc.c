#include "vmpool/tsc.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define MEASURE_NS 50000000L
#define FLAGS_LINE_MAX 8192

static int64_t raw_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static bool constant_rate(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[FLAGS_LINE_MAX];
    bool constant = false;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) == 0) {
            constant = strstr(line, " constant_tsc") != NULL;
            break;
        }
    }
    if (f) {
        (void)fclose(f);
    }
    return constant;
}

uint32_t tsc_measure_khz(void)
{
    if (!constant_rate()) {
        return 0;
    }
    int64_t t0 = raw_ns();
    uint64_t c0 = __rdtsc();
    struct timespec pause = { .tv_nsec = MEASURE_NS };
    (void)nanosleep(&pause, NULL);
    int64_t t1 = raw_ns();
    uint64_t c1 = __rdtsc();
    if (t1 <= t0 || c1 <= c0) {
        return 0;
    }
    return (uint32_t)((double)(c1 - c0) * 1e6 / (double)(t1 - t0) + 0.5);
}
