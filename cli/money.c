#include "cli/money.h"

#include <stdio.h>
#include <string.h>

void money_format(int64_t nanousd, char out[MONEY_TEXT_MAX])
{
    uint64_t n = nanousd < 0 ? 0 - (uint64_t)nanousd : (uint64_t)nanousd;
    (void)snprintf(out, MONEY_TEXT_MAX, "%s$%llu.%09llu", nanousd < 0 ? "-" : "",
                   (unsigned long long)(n / 1000000000), (unsigned long long)(n % 1000000000));
    size_t len = strlen(out);
    for (int cut = 0; cut < 7 && out[len - 1] == '0'; cut++) {
        out[--len] = 0;
    }
}

void duration_format(int64_t ms, char out[MONEY_TEXT_MAX])
{
    long long v = ms < 0 ? 0 : ms;
    if (v < 1000) {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld ms", v);
    } else if (v < 10000) {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld.%02lld s", v / 1000, v % 1000 / 10);
    } else if (v < 60000) {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld.%lld s", v / 1000, v % 1000 / 100);
    } else if (v < 3600000) {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld min %02lld s", v / 60000, v / 1000 % 60);
    } else {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld h %02lld min", v / 3600000, v / 60000 % 60);
    }
}

void duration_us_format(int64_t us, char out[MONEY_TEXT_MAX])
{
    long long v = us < 0 ? 0 : us;
    if (v < 1000) {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld us", v);
    } else if (v < 100000) {
        (void)snprintf(out, MONEY_TEXT_MAX, "%lld.%lld ms", v / 1000, v % 1000 / 100);
    } else {
        duration_format(v / 1000, out);
    }
}
