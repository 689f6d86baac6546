/* One log line when a server goes away, one when it is back, and how long to wait in between. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

#define OUTAGE_WAIT_FIRST_MS 50
#define OUTAGE_WAIT_MAX_MS 2000

struct outage {
    bool on;
    int64_t since_ms, wait_ms;
    char text[ERR_TEXT_MAX]; /* the last thing that was logged */
};
/* A turn failed: logs when this is new (or fails for another reason than before). Returns how long
 * to wait before the next. */
int64_t outage_failed(struct outage *o, int64_t now_ms, const struct err *err);
/* A turn went through. */
void outage_over(struct outage *o, int64_t now_ms);
