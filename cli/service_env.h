/* Which variables of brood up's environment a service sees: a table (service_env.c), and nothing
 * that is not in it. Credentials of the object store, of Redis and of Postgres reach those who log
 * in with them, scheduler and worker, and not the private servers, vmpool or a machine's process,
 * where code that nobody trusts would look for them first. */
#pragma once
#include "cli/services.h"

#define SERVICE_ENV_MAX 512 /* variables that a service can be given, the end's NULL included */

/* Those strings of from (NULL-ended) that are for the service, NULL-ended; they stay from's.
 * -ERR_TOO_LARGE when they are more than fit. Pure. */
MUST_CHECK int service_env(enum service_id id, char *const *from, char *ret_env[SERVICE_ENV_MAX],
                           struct err *err);
