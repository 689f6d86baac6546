#include "common/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t now_ns(clockid_t id)
{
    struct timespec ts;
    (void)clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t mono_us(void)
{
    return now_ns(CLOCK_MONOTONIC) / 1000;
}

int64_t mono_ms(void)
{
    return now_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t wall_ms(void)
{
    return now_ns(CLOCK_REALTIME) / 1000000;
}

int64_t wall_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

void sleep_ms(int64_t ms)
{
    if (ms <= 0) {
        return;
    }
    struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 };
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR) {
    }
}

void clock_format_ms(int64_t unix_ms, char out[CLOCK_TEXT_MAX])
{
    int64_t s = unix_ms / 1000, ms = unix_ms % 1000;
    if (ms < 0) {
        ms += 1000;
        s--;
    }
    time_t t = (time_t)s;
    struct tm tm;
    (void)gmtime_r(&t, &tm);
    char head[24];
    (void)strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out, CLOCK_TEXT_MAX, "%s.%03dZ", head, (int)ms);
}
