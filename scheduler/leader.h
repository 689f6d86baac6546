/* Which of several schedulers works: the one that holds an advisory lock in Postgres.
 *
 * The lock belongs to the leader's session. Postgres gives it up when that session ends: at once
 * after kill -9, within LEADER_SILENT_MS when the leader stands still (idle_session_timeout) or its
 * host is gone (TCP keepalives). The leader says something at least every SCHED_BEAT_MS. A session
 * that was replaced by another has lost the lock: generation tells. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/store/leader.h"

#define LEADER_TRY_MS 500 /* between two tries of one that does not lead */

struct leader {
    bool leads;
    unsigned generation; /* of the session that holds the lock */
    bool told;           /* that it waits */
};

/* Try to lead with pg's session as it is now. 0 in every case but an error; logs a change. */
MUST_CHECK int leader_stand(struct leader *l, struct pg *pg, struct err *err);
/* Still the session that holds the lock? */
bool leader_holds(const struct leader *l, const struct pg *pg);
