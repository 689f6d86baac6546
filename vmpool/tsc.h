/* Rate of the host's time-stamp counter. A TCG guest reads the host's counter but has nothing to
 * measure it with on a busy host (calibration against an emulated PIT fails under load, and its
 * clock is then 4 ms coarse), so the kernel command line tells it (tsc_early_khz). */
#pragma once
#include <stdint.h>

/* Takes about 50 ms. 0 when the host's counter is not constant. */
uint32_t tsc_measure_khz(void);
