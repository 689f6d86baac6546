/* Back-off after a fault of ours: base x 2^(attempt-1), at most max, of which a random half is
 * taken off (so that jobs that failed together do not come back together). Pure. attempt >= 1;
 * random: any 32 bits. Milliseconds. */
#pragma once
#include <stdint.h>

int64_t retry_delay_ms(int64_t base_ms, int64_t max_ms, int attempt, uint32_t random);
