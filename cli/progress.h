/* What `brood watch` shows: pure rendering of one line from counts and times. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "common/store/jobs.h"

#define PROGRESS_LINE_MAX 512

struct progress {
    int64_t started_ms; /* mono_ms of the first look */
    int first_done;     /* jobs already done then */
};

/* One line into out, at most width columns (20..PROGRESS_LINE_MAX - 1; 0 = plain, without a bar):
 * bar, done/total, rate since the first look, time left, verdicts that occurred, most frequent
 * first. */
void progress_line(const struct progress *p, const struct batch_counts *counts, int64_t now_ms,
                   int width, char out[PROGRESS_LINE_MAX]);
/* "accepted 61, wrong_answer 4" into out; most frequent first; "" when none. */
void progress_verdicts(const int by_verdict[VERDICT_COUNT], char *out, size_t room);
