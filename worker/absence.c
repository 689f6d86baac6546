#include "worker/absence.h"

void absence_begin(struct absence *a)
{
    *a = (struct absence){ 0 };
}

static void add(struct absence *a, int64_t us)
{
    a->total_us += us >= ABSENCE_MIN_US ? us + ABSENCE_AFTER_US : 0;
}

void absence_waits(struct absence *a, int64_t now_us)
{
    if (a->seen_us > 0) {
        add(a, now_us - a->seen_us);
    }
    a->seen_us = now_us;
}

void absence_back(struct absence *a, int64_t due_us, int64_t now_us)
{
    int64_t should_us = due_us > a->seen_us ? due_us : a->seen_us;
    if (now_us > should_us) {
        add(a, now_us - should_us);
    }
    a->seen_us = now_us;
}
