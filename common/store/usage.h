/* Reading the ledger: sums by group, and the lines themselves. Rows come off the wire one at a
 * time; fn must not use pg, and stops the reading by a negative value, which is returned. */
#pragma once
#include <stdbool.h>
#include "common/base/id.h"
#include "common/model/usage.h"
#include "common/store/pg.h"

/* USAGE_GROUP(NAME, "word"): what can be summed by. */
#define USAGE_GROUPS                                                                               \
    USAGE_GROUP(DAY, "day")                                                                        \
    USAGE_GROUP(HOUR, "hour")                                                                      \
    USAGE_GROUP(MONTH, "month")                                                                    \
    USAGE_GROUP(TENANT, "tenant")                                                                  \
    USAGE_GROUP(TEMPLATE, "template")                                                              \
    USAGE_GROUP(BATCH, "batch")                                                                    \
    USAGE_GROUP(JOB, "job")                                                                        \
    USAGE_GROUP(LABEL, "label")
enum usage_group {
#define USAGE_GROUP(name, word) USAGE_BY_##name,
    USAGE_GROUPS
#undef USAGE_GROUP
        USAGE_GROUP_COUNT
};
const char *usage_group_word(enum usage_group g);
/* -1: no such word. */
int usage_group_parse(const char *word);

struct usage_query {
    const char *tenant; /* NULL: all */
    enum usage_group by;
    const char *label;      /* the key, for USAGE_BY_LABEL */
    int64_t from_ms, to_ms; /* lines that begin in [from, to); to 0: no end */
    int period;             /* billed in this month, yyyymm; 0: any */
    int top; /* only so many, dearest first; 0: all, times in order and the rest dearest first */
};

#define USAGE_KEY_MAX (JOB_LABEL_KEY_MAX + JOB_LABEL_VALUE_MAX + 2)
struct usage_sum {
    char key[USAGE_KEY_MAX]; /* 2026-11-30, 2026-11-30T14, 2026-11, tenant, template without digest,
                                batch's or job's id or "-", label=value */
    int64_t lines;
    int64_t jobs,
        accepted; /* billed jobs that began in it, and those of them with the verdict accepted */
    int64_t measured_ms, charged_ms; /* of sandboxes */
    int64_t vcpu_ms, mib_ms;         /* charged time x vCPUs, x MiB */
    int64_t snapshot_byte_hours, artifact_byte_hours;
    int64_t sandbox_nanousd, storage_nanousd, adjusted_nanousd;
    int64_t cost_nanousd; /* the three together */
};
typedef int (*usage_sum_fn)(void *ctx, const struct usage_sum *s, struct err *err);
/* Returns how many rows. */
MUST_CHECK int store_usage(struct pg *pg, const struct usage_query *q, usage_sum_fn fn, void *ctx,
                           struct err *err);

/* One line, texts valid until fn returns. */
struct usage_line {
    const char *id, *tenant, *job_id, *branch, *template_name, *labels, *batch_id, *verdict,
        *resource, *corrects, *reason; /* "" for NULL; labels is JSON */
    enum meter meter;
    bool adjustment;
    bool corrects_closed; /* an adjustment of a line of a month that is closed, or a line that came
                             late */
    bool closed;          /* its own month is */
    int attempt, part, period, rate_id;
    int64_t from_ms, to_ms, measured_ms, charged_ms, amount, unit_price_nanousd, cost_nanousd;
};
typedef int (*usage_line_fn)(void *ctx, const struct usage_line *line, struct err *err);
/* In the order of their numbers; by, label and top are not read. Returns how many lines. */
MUST_CHECK int store_usage_lines(struct pg *pg, const struct usage_query *q, usage_line_fn fn,
                                 void *ctx, struct err *err);

/* What was not billed, of jobs submitted in [from, to): counted, never charged. */
struct overhead_row {
    char what[32]; /* "lost", "infra": attempts; "unbilled": sandboxes of committed jobs */
    int64_t count, ms;
};
#define OVERHEAD_ROWS_MAX 16
/* Returns how many rows. */
MUST_CHECK int store_overhead(struct pg *pg, const struct usage_query *q,
                              struct overhead_row ret_rows[OVERHEAD_ROWS_MAX], struct err *err);
