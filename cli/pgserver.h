/* The private Postgres of `brood up`: where its programs and data are, who it runs as, how it is
 * made and started. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "common/base/config.h"

#define PGSERVER_ARGS_MAX 48

struct pgserver {
    char bin_dir[CONFIG_STR_MAX];    /* /usr/lib/postgresql/15/bin */
    char data_dir[CONFIG_STR_MAX];   /* HOME/postgres/data, or below /var/lib/brood-pg when its user
                                        cannot reach HOME */
    char socket_dir[CONFIG_STR_MAX]; /* run_dir/pg */
    bool outside_home;
    char user[64]; /* "" = ours (not root) */
    uid_t uid;     /* PROC_KEEP_USER or the unprivileged user's */
    gid_t gid;
    gid_t socket_gid; /* of the socket and its folder, set by the caller; 0: the server's user alone
                       */
    char settings[PGSERVER_ARGS_MAX][CONFIG_STR_MAX + 32];
    char *argv[2 * PGSERVER_ARGS_MAX];
};

/* Find everything; nothing is changed. -ERR_NOT_FOUND / -ERR_UNSUPPORTED say what to install. */
MUST_CHECK int pgserver_find(struct pgserver *s, const struct config *c, struct err *err);
/* true when the cluster has to be made first. */
bool pgserver_is_new(const struct pgserver *s);
/* Make the cluster with role and database brood, complete or not at all. log_path gets initdb's
 * words. */
MUST_CHECK int pgserver_init(const struct pgserver *s, const char *log_path, struct err *err);
/* Before every start: socket folder, owner, and what a killed predecessor left (postmaster.pid). */
MUST_CHECK int pgserver_prepare(struct pgserver *s, struct err *err);
/* Is postgres.url / redis.url the one of brood up, not something the configuration named? */
bool config_postgres_embedded(const struct config *c);
bool config_redis_embedded(const struct config *c);
