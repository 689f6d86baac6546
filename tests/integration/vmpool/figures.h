/* What the benches of vmpool make of their samples. */
#pragma once
#include <jansson.h>

/* {p50, p95, n} of v[n], which is sorted by it; new reference. */
json_t *figures_quantiles(double *v, int n);
/* Memory, MiB, that only process pid holds. */
double figures_private_mib(int pid);
