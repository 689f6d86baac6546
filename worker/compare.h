/* Comparing a program's output with what was expected, on the host. Pure: no I/O, no allocation.
 *
 * EXACT: the same bytes. TRIM: CR LF counts as LF, white space at the end of each line and empty
 * lines at the end do not count; everything before does (a leading blank line is wrong). TOKENS:
 * the same words between white space. FLOAT: as TOKENS, but two words that both read as numbers are
 * equal within a tolerance. White space is space, tab, CR, LF, VT, FF. Source: docs/verdicts.md,
 * "Comparing". */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/model/job.h"

#define COMPARE_WHY_MAX 128

struct compare_text {
    const char *data; /* may hold NUL; NULL only when len is 0 */
    size_t len;       /* bytes */
};

/* Is got what want asks for? tolerance_abs and tolerance_rel (>= 0) are read for COMPARE_FLOAT
 * only: a difference of at most tolerance_abs, or at most tolerance_rel x |want|, is none. why
 * (COMPARE_WHY_MAX bytes or NULL) is filled when the answer is no; it says where the first
 * difference is, never what was expected. Any thread. */
bool compare_output(enum compare_mode mode, struct compare_text want, struct compare_text got,
                    double tolerance_abs, double tolerance_rel, char *why);
