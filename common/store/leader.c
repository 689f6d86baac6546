#include "common/store/leader.h"

#include <assert.h>

#include "common/base/cleanup.h"
#include "common/store/pg_internal.h"

#define LOCK "7310579512230490" /* a constant of our own: no other lock of ours has it */

/* Settings that a server does not know (idle_session_timeout came with version 14) are left out. On
 * a Unix socket the keepalives are ignored. */
#define SETTINGS_SQL                                                                               \
    "SELECT set_config(name, value, false) FROM (VALUES ('idle_session_timeout', '3000'),"         \
    " ('idle_in_transaction_session_timeout', '3000'), ('tcp_keepalives_idle', '1'),"              \
    " ('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '2')) w (name, value)"            \
    " WHERE EXISTS (SELECT FROM pg_settings s WHERE s.name = w.name)"

static const struct statement lead = {
    "lead",
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    "  AND pid = pg_backend_pid() AND (classid::int8 << 32 | objid::int8) = " LOCK ")"
    " OR pg_try_advisory_lock(" LOCK ")"
};
static_assert(LEADER_SILENT_MS == 3000, "as in SETTINGS_SQL");

int store_lead(struct pg *pg, struct err *err)
{
    int rc = pg_ensure(pg, err);
    if (rc < 0 || (rc = pg_exec(pg, SETTINGS_SQL, "settings of the leader's session", err)) < 0) {
        return rc;
    }
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &lead, NULL, false, &res, err);
    return rc < 0 ? rc : *PQgetvalue(res, 0, 0) == 't';
}
