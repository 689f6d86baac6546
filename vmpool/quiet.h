/* Wait until a machine has nothing more to do by itself.
 *
 * Theory: what a guest answers is not the end of what it does: processes are torn down, cgroups
 * freed, timers run. A machine that is stopped at its answer does all that when it is resumed, in
 * front of the job. The vCPU thread's CPU time tells: it is looked at every few milliseconds, until
 * it has stood nearly still for two looks. Loop's thread only. */
#pragma once
#include <stdint.h>
#include <event2/event.h>

struct quiet;

typedef void quiet_done(void *user);
/* schedstat_fd: of the vCPU thread, borrowed. done is called once, from the loop, at the latest
 * after about max_ms; not after quiet_free. */
struct quiet *quiet_wait(struct event_base *base, int schedstat_fd, int64_t max_ms,
                         quiet_done *done, void *user);
void quiet_free(struct quiet *q);
