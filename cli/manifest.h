/* The templates of a home: HOME/templates/NAME/current/manifest.json, written by templates/build.
 */
#pragma once
#include "common/base/config.h"
#include "common/model/job.h"
#include "common/store/pg.h"

#define MANIFESTS_MAX 256

/* Read one. -ERR_NOT_FOUND when it was never built, -ERR_INVALID names the key. */
MUST_CHECK int manifest_read(const struct config *c, const char *name, struct template_info *ret_t,
                             struct err *err);
/* All that are built, by name; unreadable ones are told on stderr and left out. Returns the count.
 */
int manifest_list(const struct config *c, struct template_info *ret_rows, int max);
/* Put all into Postgres; returns the count. */
MUST_CHECK int manifest_register_all(const struct config *c, struct pg *pg, struct err *err);
