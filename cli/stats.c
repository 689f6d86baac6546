#include "cli/stats.h"

#include <assert.h>
#include <stdlib.h>

void samples_add(struct samples *s, int64_t value)
{
    assert(s->n <= s->cap);
    if (s->n == SAMPLES_MAX) {
        return;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        int64_t *p = reallocarray(s->values, s->cap, sizeof *p);
        if (!p) {
            abort();
        }
        s->values = p;
    }
    s->values[s->n++] = value;
}

void samples_done(struct samples *s)
{
    free(s->values);
    *s = (struct samples){ 0 };
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t samples_percentile(struct samples *s, int percent)
{
    assert(percent >= 1 && percent <= 100);
    if (s->n == 0) {
        return 0;
    }
    qsort(s->values, s->n, sizeof *s->values, compare);
    size_t rank = (s->n * (size_t)percent + 99) / 100;
    return s->values[rank - 1];
}
