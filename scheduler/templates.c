#include <string.h>

#include "common/base/clock.h"
#include "common/store/snapshots.h"
#include "scheduler/scheduler.h"

int scheduler_template(struct scheduler *s, const char *tenant, const char *name,
                       struct template_info *ret_t, struct err *err)
{
    size_t n = strlen(SNAPSHOT_TEMPLATE_PREFIX);
    if (strncmp(name, SNAPSHOT_TEMPLATE_PREFIX, n) == 0) {
        return store_base_get(&s->pg, tenant, name, ret_t, err);
    }
    int64_t now = mono_ms();
    struct template_slot *use = &s->templates[0];
    for (int i = 0; i < SCHED_TEMPLATES_MAX; i++) {
        struct template_slot *t = &s->templates[i];
        if (t->name[0] && strcmp(t->name, name) == 0) {
            if (now - t->fetched_ms < SCHED_TEMPLATE_TTL_MS) {
                *ret_t = t->info;
                return 0;
            }
            use = t;
            break;
        }
        if (t->fetched_ms < use->fetched_ms) {
            use = t; /* the oldest, or a free one */
        }
    }
    struct template_info info;
    int rc = store_template_get(&s->pg, name, &info, err);
    if (rc < 0) {
        return rc;
    }
    use->info = info;
    use->fetched_ms = now;
    memcpy(use->name, name,
           strlen(name) + 1); /* at most JOB_TEMPLATE_MAX: store_template_get took it */
    *ret_t = info;
    return 0;
}
