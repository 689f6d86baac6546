#include "cli/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define REPEAT_EVERY_MS 200

/* What this call itself has stored, by a commit whose answer did not come, is new to the caller. */
static void take_own(struct submit_item *items, int n)
{
    for (int i = 0; i < n; i++) {
        items[i].ret_duplicate =
            items[i].ret_duplicate && strcmp(items[i].ret_id.text, items[i].id) != 0;
        items[i].id = NULL;
    }
}

int submit_jobs(struct pg *pg, const struct submit_to *to, struct submit_item *items, int n,
                struct err *err)
{
    cleanup_free struct id *ids = calloc((size_t)n, sizeof *ids);
    if (!ids) {
        abort();
    }
    for (int i = 0; i < n; i++) {
        ids[i] = id_new();
        items[i].id = ids[i].text;
        items[i].id_is_new = true;
    }
    int64_t end_ms = 0;
    int rc;
    while ((rc = store_submit(pg, to->tenant, to->batch, to->name, to->first_seq, items, n,
                              to->all_or_nothing, err)) == -ERR_UNAVAILABLE &&
           (end_ms == 0 || mono_ms() < end_ms)) {
        if (end_ms == 0) {
            end_ms = mono_ms() + SUBMIT_REPEAT_MS_MAX;
            (void)fprintf(stderr, "brood: %s; trying again for %d s\n", err->text,
                          SUBMIT_REPEAT_MS_MAX / 1000);
        }
        for (int i = 0; i < n; i++) {
            items[i].id_is_new = false;
        }
        sleep_ms(REPEAT_EVERY_MS);
    }
    take_own(items, n);
    return rc;
}

void submit_not_told(const struct err *err)
{
    (void)fprintf(stderr, "brood: the jobs are stored, but the scheduler could not be told: %s\n",
                  err->text);
}

void submit_wake(struct queue *q, const char *tenant, enum job_priority priority, int n)
{
    struct err err;
    if (queue_wake_for(q, tenant, priority, n, &err) < 0 && /* may have died unused: a new one */
        queue_wake_for(q, tenant, priority, n, &err) < 0) {
        submit_not_told(&err);
    }
}
