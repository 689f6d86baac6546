#include "common/store/leader.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/store/pg_internal.h"

#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
#define APPLICATION "brood-scheduler "
#define LOCK "7310579512230490" /* LOCKS in pg_internal.h */

/* Settings that a server does not know (idle_session_timeout came with version 14) are left out. On
 * a Unix socket the keepalives are ignored. */
#define SETTINGS_SQL                                                                               \
    "SELECT set_config(name, value, false) FROM (VALUES ('idle_session_timeout', '3000'),"         \
    " ('idle_in_transaction_session_timeout', '3000'), ('tcp_keepalives_idle', '1'),"              \
    " ('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '2'),"                            \
    " ('application_name', '" APPLICATION "%s:%d')) w (name, value)"                               \
    " WHERE EXISTS (SELECT FROM pg_settings s WHERE s.name = w.name)"

#define HOLDS_LOCK                                                                                 \
    "locktype = 'advisory' AND objsubid = 1 AND granted AND (classid::int8 << 32 | "               \
    "objid::int8) = " LOCK

static const struct statement leader = {
    "leader",
    "WITH s AS (SELECT substr(application_name, length('" APPLICATION "') + 1) AS who,"
    "   (extract(epoch from clock_timestamp() - backend_start) * 1000)::int8 AS since,"
    "   EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.database = a.datid"
    "     AND " HOLDS_LOCK ") AS leads"
    "   FROM pg_stat_activity a WHERE datname = current_database()"
    "   AND starts_with(application_name, '" APPLICATION "'))"
    " SELECT coalesce(max(who) FILTER (WHERE leads), ''), coalesce(max(since) FILTER (WHERE leads),"
    "  -1), count(*) FILTER (WHERE NOT leads) FROM s"
};
static const struct statement lead = {
    "lead", "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND " HOLDS_LOCK ")"
            " OR pg_try_advisory_lock(" LOCK ")"
};
static_assert(LEADER_SILENT_MS == 3000, "as in SETTINGS_SQL");

int store_lead(struct pg *pg, struct err *err)
{
    char host[40] = "", settings[1024];
    if (gethostname(host, sizeof host - 1) < 0 || strspn(host, HOST_CHARS) != strlen(host)) {
        host[0] = 0; /* it goes into a statement */
    }
    (void)snprintf(settings, sizeof settings, SETTINGS_SQL, host[0] ? host : "host", (int)getpid());
    int rc = pg_ensure(pg, err);
    if (rc < 0 || (rc = pg_exec(pg, settings, "settings of the leader's session", err)) < 0) {
        return rc;
    }
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &lead, NULL, false, &res, err);
    return rc < 0 ? rc : *PQgetvalue(res, 0, 0) == 't';
}

int store_leader(struct pg *pg, struct leader_view *ret_view, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &leader, NULL, &res, err);
    if (rc < 0) {
        return rc;
    }
    pg_copy(res, 0, 0, ret_view->who, sizeof ret_view->who);
    ret_view->since_ms = pg_int(res, 0, 1);
    ret_view->waiting = (int)pg_int(res, 0, 2);
    return 0;
}
