/* Work that would stop the loop (reading and writing a hundred MiB): one short-lived thread a job,
 * its end told in the loop. */
#pragma once
#include <event2/event.h>
#include "common/base/err.h"

struct background;

/* work runs on a thread of its own and may touch only what user points to; done runs in the loop
 * afterwards. */
typedef void background_work(void *user);
typedef void background_done(void *user);

MUST_CHECK int background_new(struct event_base *base, struct background **ret, struct err *err);
MUST_CHECK int background_run(struct background *b, background_work *work, background_done *done,
                              void *user, struct err *err);
/* Jobs that still run. */
int background_busy(const struct background *b);
/* Only with no job running. */
void background_free(struct background *b);
