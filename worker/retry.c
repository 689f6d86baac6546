#include "worker/retry.h"

#include <assert.h>

int64_t retry_delay_ms(int64_t base_ms, int64_t max_ms, int attempt, uint32_t random)
{
    assert(base_ms >= 0 && max_ms >= 0 && base_ms <= INT64_MAX >> 32);
    int64_t delay = base_ms;
    for (int i = 1; i < attempt && delay < max_ms; i++) {
        delay *= 2;
    }
    if (delay > max_ms) {
        delay = max_ms;
    }
    return delay - (int64_t)((uint64_t)(delay / 2) * random >> 32);
}
