/* Whom the services of `brood up` run as, and who may open what in the home because of that.
 *
 * Theory: as root, each service gets a user id of the home's own block (config_uids), or the one
 * that user.* names. All have the block's first id as their group, by which they reach one
 * another's sockets. Two more groups of the block join those that share files and nobody else:
 * "stores", scheduler and worker, for the objects; "states", vmpool and worker, for HOME/kept. The
 * key of secrets stays root's alone: scheduler and worker get an open descriptor of it. Nothing is
 * added to /etc/passwd. A service whose user cannot do its work (the home lies in /root, say, or an
 * external Postgres does not let it in) stays root, and it is said why; when brood up is not root,
 * all stay whoever that is. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "cli/services.h"
#include "common/base/config.h"

#define USERS_TEXT_MAX 64

/* Who each is to be, and can walk to the home and the programs. -ERR_INVALID when user.* names
 * nobody. */
MUST_CHECK int users_find(const struct config *c, struct users *ret_users, struct err *err);
/* Owners, groups and modes of the home and the run folder, and of what each service writes. Changes
 * what an earlier version, or root by hand, made; may be repeated, also after it was killed. */
MUST_CHECK int users_prepare(const struct config *c, const struct users *u, struct err *err);
/* Once all that is outside can be asked: a user who cannot use the settings' file, the objects, an
 * external Redis or Postgres, which root can, is not taken. */
void users_try(const struct config *c, struct users *u);
/* "--user=UID:GID[:GID]", as brood-vmpool takes it. */
void users_text(const struct user *u, char out[USERS_TEXT_MAX]);
