/* Numbers for people: money, times, counts. Integer arithmetic only. Pure. */
#pragma once
#include <stdint.h>

#define MONEY_TEXT_MAX 40
/* Nano-dollars as dollars: at least 2 and at most 9 decimals, zeros at the end cut.
 * 1500000000 -> "$1.50", 18500 -> "$0.0000185", -1 -> "-$0.000000001". */
void money_format(int64_t nanousd, char out[MONEY_TEXT_MAX]);
/* Milliseconds: "12 ms", "1.25 s", "3 min 05 s", "2 h 07 min". */
void duration_format(int64_t ms, char out[MONEY_TEXT_MAX]);
/* Microseconds: "850 us", "12.3 ms", then as duration_format. */
void duration_us_format(int64_t us, char out[MONEY_TEXT_MAX]);
