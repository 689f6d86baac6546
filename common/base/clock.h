/* Clocks. mono_* never jumps (time-outs, durations); wall_* is UTC since 1970 (records). */
#pragma once
#include <stdint.h>
#include <stddef.h>

int64_t mono_us(void);
int64_t mono_ms(void);
int64_t wall_ms(void);
int64_t wall_ns(void);
void sleep_ms(int64_t ms);
#define CLOCK_TEXT_MAX 32
/* "2026-11-29T20:45:45.123Z" into out[CLOCK_TEXT_MAX]. */
void clock_format_ms(int64_t unix_ms, char out[CLOCK_TEXT_MAX]);
