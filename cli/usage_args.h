/* Words of the money commands: amounts, moments, months. Pure. */
#pragma once
#include <stdint.h>
#include "common/base/err.h"

/* Dollars as a decimal number with at most 9 decimals, maybe a sign and "$" -> nano-dollars.
 * -ERR_INVALID. */
MUST_CHECK int money_parse(const char *text, int64_t *ret_nanousd, struct err *err);
/* YYYY-MM-DD, YYYY-MM-DDTHH:MM:SSZ (UTC), or "now" -> milliseconds. -ERR_INVALID. */
MUST_CHECK int moment_parse(const char *text, int64_t *ret_ms, struct err *err);
/* YYYY-MM -> yyyymm. -ERR_INVALID. */
MUST_CHECK int month_parse(const char *text, int *ret_month, struct err *err);
/* "250ms", "10s", "5m", "2h" or a bare number of milliseconds. -ERR_INVALID. */
MUST_CHECK int duration_parse(const char *text, int64_t *ret_ms, struct err *err);
/* YYYY-MM-DDTHH:MM:SSZ, the millisecond cut or (up) rounded up to the second. */
#define MOMENT_TEXT_MAX 32
void moment_format(int64_t ms, int up, char out[MOMENT_TEXT_MAX]);
