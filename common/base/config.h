/* Configuration: one table (config.def), an INI file, the environment.
 *
 * Order: defaults, HOME/brood.ini (if there), the file of --config, BROOD_* variables. An unknown
 * key or a value out of range is refused with file, line, key and rule. Empty addresses are filled
 * from the home: sockets live in a short run folder (config.run_dir), because of the 108-byte limit
 * of sockaddr_un. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include "common/base/err.h"

#define CONFIG_STR_MAX 512

struct config {
#define CONF_STR(field, key, def, help) char field[CONFIG_STR_MAX];
#define CONF_INT(field, key, def, min, max, help) int64_t field;
#include "common/base/config.def"
#undef CONF_STR
#undef CONF_INT
    char home[CONFIG_STR_MAX];    /* absolute; holds templates, snapshots, redis, postgres, log */
    char run_dir[CONFIG_STR_MAX]; /* /run/brood/<hash of home>, else /tmp/brood-<uid>/<hash>;
                                     BROOD_RUN_DIR from brood up to its services, which are other
                                     users */
};

/* home: NULL = $BROOD_HOME, else /var/lib/brood as root, else ~/.brood. file: NULL or an INI file
 * that must exist. Does not create anything. */
MUST_CHECK int config_load(struct config *ret_config, const char *home, const char *file,
                           struct err *err);
/* Apply one "section.key" = value; where is used in errors ("brood.ini:3", "BROOD_LOG_LEVEL"). */
MUST_CHECK int config_set(struct config *c, const char *key, const char *value, const char *where,
                          struct err *err);
/* Print every key with its value in force, as an INI file with the help as comments. */
void config_print(const struct config *c, FILE *out);
/* First of the 8192 user ids that belong to this home alone: the first 4096 for brood's own
 * processes, the others for machines. Between 0x70000000 and 0x7fffffff, which nobody hands out
 * (systemd's UIDS-GIDS.md); by the hash in the run folder's name. */
uint32_t config_uids(const struct config *c);
/* Make HOME/kept when it is not there (brood up makes it; it is a cache that may be removed).
 * Worker and vmpool both write to it: by the group of the home's block that only they have, else by
 * their first one. */
MUST_CHECK int config_make_kept(const char *home, struct err *err);
/* mkdir -p of the home alone, mode 0711: for what keeps nothing in the run folder. */
MUST_CHECK int config_make_home(const struct config *c, struct err *err);
/* mkdir -p run_dir and home with mode 0711; an empty run folder looks newly made afterwards. */
MUST_CHECK int config_make_dirs(const struct config *c, struct err *err);
