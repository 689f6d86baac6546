/* Whom the services of `brood up` run as, and who may open what in the home because of that.
 *
 * As root, Redis and vmpool get a user id of the home's own block (config_uids), or the one that
 * user.* names; scheduler and worker stay root unless user.* names somebody who can read the key of
 * secrets. All get the block's first id as their group, by which they reach one another's
 * sockets. Nothing is added to /etc/passwd. When those users cannot walk to the home (it lies in
 * /root, say), or when brood up is not root, the services stay whoever brood up is. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "cli/services.h"
#include "common/base/config.h"

/* -ERR_INVALID when user.* names nobody. */
MUST_CHECK int users_find(const struct config *c, struct users *ret_users, struct err *err);
/* Owners and modes of the home and the run folder, and of what in it each service writes. Changes
 * what an earlier version, or root by hand, made. */
MUST_CHECK int users_prepare(const struct config *c, const struct users *u, struct err *err);
