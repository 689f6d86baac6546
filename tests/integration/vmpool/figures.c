#include "tests/integration/vmpool/figures.h"

#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

json_t *figures_quantiles(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return json_pack("{s:f,s:f,s:i}", "p50", n ? v[n / 2] : 0.0, "p95",
                     n ? v[(n * 95 + 99) / 100 - 1] : 0.0, "n", n);
}

/* Memory that only this process holds. A page of the shared image that no other clone has mapped
 * counts as Private_Dirty too (a memfd's pages are always dirty), but not as Anonymous; a page
 * shared with the zygote the other way about. */
double figures_private_mib(int pid)
{
    char path[64], line[512];
    long kib, sum = 0, private_kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/smaps", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "Private_Dirty: %ld kB", &kib) == 1) {
            private_kib = kib;
        } else if (sscanf(line, "Anonymous: %ld kB", &kib) == 1) {
            sum += kib < private_kib ? kib : private_kib;
        }
    }
    if (f) {
        (void)fclose(f);
    }
    return (double)sum / 1024;
}
