/* One leader among the schedulers of a database: an advisory lock of a session. */
#pragma once
#include <stdint.h>
#include "common/store/pg.h"

#define LEADER_SILENT_MS 3000 /* a session that says nothing for so long is ended by Postgres */

/* Take the lock with the session that pg has. 1: this session holds it now; 0: another one does.
 * Calling it again in a session that holds it is no harm. */
MUST_CHECK int store_lead(struct pg *pg, struct err *err);

/* Who leads, as everyone can see it. */
struct leader_view {
    char who[64];     /* "HOST:PID"; "" when nobody does */
    int64_t since_ms; /* how long its session is there; -1: nobody */
    int waiting;      /* others that would take its place */
};
MUST_CHECK int store_leader(struct pg *pg, struct leader_view *ret_view, struct err *err);
